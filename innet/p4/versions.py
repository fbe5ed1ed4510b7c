"""Versions of P4 compilers, as the compilers print them and as the manifests record them."""

import re
from typing import NamedTuple, Self

from innet.errors import CompilerError

_PRINTED = re.compile(r"Version\s+(?P<number>[\w.-]+)")
_RECORDED = re.compile(r"^(?P<name>\S+) (?P<number>[\w.-]+)")
_COMMIT = re.compile(r"\(SHA:\s*([0-9a-f]{7,40})\b")
"""A commit of git. A compiler built outside of a git checkout prints ``(SHA:  BUILD: Release)``."""


class CompilerVersion(NamedTuple):
    """A compiler's name, version number and, where it knows it, the commit that it was built from."""

    name: str
    number: str
    commit: str | None = None

    @classmethod
    def printed(cls, name: str, text: str) -> Self:
        """Read what the compiler `name` prints for ``--version``. Raises CompilerError."""
        found = _PRINTED.search(text)
        if not found:
            raise CompilerError(
                f"{name} --version prints nothing that looks like a version: {text}"
            )
        return cls(name, found["number"], _commit(text))

    @classmethod
    def recorded(cls, text: str) -> Self:
        """Read the entry ``compiler`` of a manifest. Raises CompilerError."""
        found = _RECORDED.search(text)
        if not found:
            raise CompilerError(f"{text!r} names no compiler: it should read 'p4c-bm2-ss 1.2.5.16'")
        return cls(found["name"], found["number"], _commit(text))

    def __str__(self) -> str:
        """Return the form for manifests, as in ``p4c-bm2-ss 1.2.5.16 (SHA: 34b86e9bac)``."""
        return f"{self.name} {self.number}" + (f" (SHA: {self.commit})" if self.commit else "")

    @property
    def release(self) -> tuple[str, ...]:
        """Return the first three parts of the version number."""
        return tuple(self.number.split(".")[:3])

    def should_agree(self, other: "CompilerVersion") -> bool:
        """Return whether both compilers should make the same files of the same sources.

        They should if they are of one release and, where both know their commits, of one commit.
        """
        if (self.name, self.release) != (other.name, other.release):
            return False
        if not (self.commit and other.commit):
            return True
        # Git abbreviates a commit to as many digits as the checkout needs.
        return self.commit.startswith(other.commit) or other.commit.startswith(self.commit)


def _commit(text: str) -> str | None:
    found = _COMMIT.search(text)
    return found[1] if found else None
