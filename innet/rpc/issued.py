"""The record of the certificates that a folder's authorities have signed, and their revocation by name.

``issued.txt`` has a line for every certificate: its name in lists (:mod:`innet.rpc.revocation`), the
owner's name, the role, and the time at which it expires. With it, all certificates of a name can be
revoked, also those whose files are gone. Lines of older records begin with a fingerprint instead.
"""

import contextlib
import fcntl
import os
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from innet.errors import UsageError
from innet.machine.replaced_file import replace_file
from innet.rpc import tls
from innet.rpc.revocation import SIGNED, Listed, fingerprint, line_content, signed_part_of_pem

RECORD = "issued.txt"
_READABLE = 0o644


@dataclass(frozen=True)
class Issued:
    """A certificate that was signed.

    `certificate` is its name in lists. If the line of the record is an old one, `fingerprint` is its name
    in older lists. If the certificate's file is then gone, both are equal, and it is not `known`.
    """

    certificate: str
    name: str
    role: str
    expires: datetime
    fingerprint: str = ""

    @property
    def known(self) -> bool:
        """Return whether lists would have the certificate under this name."""
        return self.certificate.startswith(SIGNED)

    @property
    def line(self) -> str:
        """Return the certificate's line in the record."""
        return f"{self.certificate} {self.name} {self.role} {self.expires.isoformat()}"


def record(folder: Path, certificates: Iterable[Issued]) -> None:
    """Add certificates to a folder's record. Raises OSError."""
    _append(folder / RECORD, [each.line for each in certificates])


def issued(folder: Path) -> list[Issued]:
    """Return all certificates of a folder's record. Raises UsageError."""
    path = folder / RECORD
    try:
        found = [_parse(line) for line in path.read_text("ascii").splitlines()]
    except FileNotFoundError:
        raise UsageError(
            f"there is no {path}: name the folder in which `innet certificates` made certificates"
        ) from None
    except (OSError, ValueError) as problem:
        raise UsageError(f"cannot read {path}: {problem}") from None
    unknown = {each.name for each in found if not each.known}
    names = _names(folder, unknown) if unknown else {}
    return [
        each
        if each.known
        else replace(
            each,
            certificate=names.get(each.certificate, each.certificate),
            fingerprint=each.certificate,
        )
        for each in found
    ]


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
    known, now = listed(folder).certificates, datetime.now(UTC)
    for each in of_name:
        if not each.known and each.expires > now:
            raise UsageError(
                f"{folder / RECORD} has only the fingerprint of a certificate of {name}, role "
                f"{each.role}, and its file is not in {folder}: give the file with --certificate, or "
                "make new authorities with `innet certificates make --force`"
            )
    revoked = [each for each in of_name if each.known and each.certificate not in known]
    lines = [
        f"{each.certificate}  # {each.name}, {each.role}, revoked {now:%Y-%m-%d}"
        for each in revoked
    ]
    _add(folder, lines, {each.fingerprint for each in of_name if each.known and each.fingerprint})
    return revoked


def revoke_files(folder: Path, paths: Iterable[Path]) -> list[Path]:
    """Revoke the certificates in these files, and return the files of those that were not revoked before.

    Lines with their fingerprints, as older lists have them, are replaced. Raises UsageError if a file is
    no certificate, or the list cannot be written.
    """
    known, now = listed(folder).certificates, datetime.now(UTC)
    names: dict[Path, str] = {}
    old = set()
    for path in paths:
        try:
            pem = path.read_text("ascii")
            names[path] = signed_part_of_pem(pem)
        except (OSError, ValueError) as problem:
            raise UsageError(f"{path} is not a certificate in PEM: {problem}") from None
        old.add(fingerprint(pem))
    new = {path: name for path, name in names.items() if name not in known}
    _add(
        folder,
        [f"{name}  # {path.name!a}, revoked {now:%Y-%m-%d}" for path, name in new.items()],
        old,
    )
    return [*new]


def listed(folder: Path) -> Listed:
    """Return the content of a folder's list of revoked certificates. Raises UsageError."""
    path = folder / tls.REVOKED
    try:
        return Listed.of(path.read_text("ascii", errors="replace"))
    except FileNotFoundError:
        return Listed.of("")
    except OSError as problem:
        raise UsageError(f"cannot read {path}: {problem.strerror}") from None


def unwritable(folder: Path, problem: OSError) -> UsageError:
    """Return the error for files of a folder that cannot be written; a write's error has no name."""
    return UsageError(f"cannot write {problem.filename or folder}: {problem.strerror}")


def _add(folder: Path, lines: Iterable[str], replaced: Container[str]) -> None:
    """Add lines to the list of revoked certificates, and remove those with these fingerprints."""
    try:
        _append(folder / tls.REVOKED, lines, replaced)
    except OSError as problem:
        raise unwritable(folder, problem) from None


def _append(path: Path, lines: Iterable[str], replaced: Container[str] = ()) -> None:
    """Add lines to a file, and remove those with this content. Raises OSError."""
    with _alone(path.parent):
        before = path.read_bytes() if path.exists() else b""
        kept = [
            line
            for line in before.splitlines()
            if line_content(line.decode("ascii", "replace")) not in replaced
        ]
        after = b"".join(
            line + b"\n" for line in [*kept, *(each.encode("ascii") for each in lines)]
        )
        if after != before:
            replace_file(path, after, _READABLE)


def _names(folder: Path, owners: Iterable[str]) -> dict[str, str]:
    """Return how lists name the certificates that lie in a folder and its owners', by fingerprint."""
    names = {}
    folders = [folder, *(folder / each for each in owners)]
    for path in (path for each in folders for path in each.glob("*.pem")):
        with contextlib.suppress(OSError, ValueError):  # it is a key
            pem = path.read_text("ascii")
            names[fingerprint(pem)] = signed_part_of_pem(pem)
    return names


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
    certificate, name, role, expires = line.split()
    return Issued(certificate, name, role, datetime.fromisoformat(expires))
