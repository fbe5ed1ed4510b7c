"""Versions of P4 compilers, as the compilers print them and as manifests record them."""

import re
from typing import NamedTuple, Self

from innet.errors import CompilerError

_PRINTED = re.compile(r"Version\s+(?P<number>[\w.-]+)")
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
        commit = _COMMIT.search(text)
        return cls(name, found["number"], commit[1] if commit else None)

    def __str__(self) -> str:
        """Return the form for manifests, as in ``p4c-bm2-ss 1.2.5.16 (SHA: 34b86e9bac)``."""
        return f"{self.name} {self.number}" + (f" (SHA: {self.commit})" if self.commit else "")
