"""The record of the certificates that a folder's authorities have signed, and their revocation by name.

``issued.txt`` has a line for every certificate: its fingerprint, the owner's name, the role, and the time
at which it expires. With it, all certificates of a name can be revoked, also those whose files are gone.
"""

import contextlib
import fcntl
import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from innet.errors import UsageError
from innet.machine.replaced_file import replace_file
from innet.rpc import tls
from innet.rpc.revocation import Revocations

RECORD = "issued.txt"
_READABLE = 0o644


@dataclass(frozen=True)
class Issued:
    """A certificate that was signed."""

    fingerprint: str
    name: str
    role: str
    expires: datetime

    @property
    def line(self) -> str:
        """Return the certificate's line in the record."""
        return f"{self.fingerprint} {self.name} {self.role} {self.expires.isoformat()}"


def record(folder: Path, certificates: Iterable[Issued]) -> None:
    """Add certificates to a folder's record. Raises OSError."""
    _append(folder / RECORD, [each.line for each in certificates])


def issued(folder: Path) -> list[Issued]:
    """Return all certificates of a folder's record. Raises UsageError."""
    path = folder / RECORD
    try:
        return [_parse(line) for line in path.read_text("ascii").splitlines()]
    except FileNotFoundError:
        raise UsageError(
            f"there is no {path}: name the folder in which `innet certificates` made certificates"
        ) from None
    except (OSError, ValueError) as problem:
        raise UsageError(f"cannot read {path}: {problem}") from None


def revoke(folder: Path, name: str) -> list[Issued]:
    """Revoke all certificates of a name, and return those that were not revoked before.

    Raises UsageError if there are none of this name, if it is a server's, or if a file cannot be used.
    """
    of_name = [each for each in issued(folder) if each.name == name]
    if not of_name:
        names = ", ".join(sorted({each.name for each in issued(folder)}))
        raise UsageError(f"no certificate was made for {name!r}; there are some for: {names}")
    if name in tls.SERVERS:
        raise UsageError(
            f"{name!r} is a server, and clients read no list: make new authorities with "
            "`innet certificates make --force`"
        )
    revocations = Revocations(folder / tls.REVOKED)
    now = datetime.now(UTC)
    new = [each for each in of_name if each.fingerprint not in revocations.all]
    try:
        _append(
            folder / tls.REVOKED,
            [
                f"{each.fingerprint}  # {each.name}, {each.role}, revoked {now:%Y-%m-%d}"
                for each in new
            ],
        )
    except OSError as problem:
        raise unwritable(folder, problem) from None
    return new


def unwritable(folder: Path, problem: OSError) -> UsageError:
    """Return the error for files of a folder that cannot be written; a write's error has no name."""
    return UsageError(f"cannot write {problem.filename or folder}: {problem.strerror}")


def _append(path: Path, lines: Iterable[str]) -> None:
    with _alone(path.parent):
        before = path.read_bytes() if path.exists() else b""
        if before and not before.endswith(b"\n"):  # somebody has edited it
            before += b"\n"
        after = before + "".join(f"{line}\n" for line in lines).encode("ascii")
        if after != before:
            replace_file(path, after, _READABLE)


@contextlib.contextmanager
def _alone(folder: Path) -> Iterator[None]:
    """Wait until no other process appends to a file of this folder. Raises OSError."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _parse(line: str) -> Issued:
    fingerprint, name, role, expires = line.split()
    return Issued(fingerprint, name, role, datetime.fromisoformat(expires))
