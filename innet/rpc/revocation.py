"""Revocation: a file lists the certificates that a server refuses although their authority is trusted.

A line of ``revoked.txt`` is the SHA-256 fingerprint of one certificate, as ``openssl x509 -noout
-fingerprint -sha256`` prints it; what follows a ``#`` is a comment. A server reads the file again at
every call. A revocation is final while the server runs: a line that disappears, or a file that
cannot be read for a moment, takes none back.
"""

import hashlib
import re
import ssl
import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import structlog

from innet.errors import NotAuthorized, UsageError

REFUSAL = "this certificate has been revoked: ask whoever makes certificates for a new one"
"""The error for the owner of a revoked certificate."""
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_log = structlog.get_logger("innet.revocation")


def fingerprint(pem: str) -> str:
    """Return the SHA-256 of a certificate, in hexadecimal digits."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def shown_fingerprint(auth_context: Mapping[str, Any]) -> str:
    """Return the fingerprint of a client's certificate, from gRPC's ``auth_context()``."""
    return fingerprint(auth_context["x509_pem_cert"][0].decode())


class Revocations:
    """The revoked certificates of a file. Any thread may ask.

    Raises UsageError if the file is missing or cannot be read, or has a line that is no fingerprint.
    """

    def __init__(self, path: Path) -> None:
        self._path, self._lock = path, threading.Lock()
        self._revoked: set[str] = set()
        self._text, self._problem = "", ""
        self.refresh()
        if self._problem:
            raise UsageError(self._problem)

    @property
    def all(self) -> frozenset[str]:
        """Return the fingerprints of all certificates that were revoked at the last look."""
        with self._lock:
            return frozenset(self._revoked)

    def refresh(self) -> None:
        """Read the file again."""
        with self._lock:
            before, self._problem = self._problem, ""
            try:
                self._read()
            except FileNotFoundError:
                self._problem = (
                    f"there is no {self._path}: copy it from where the certificates were made, because "
                    "without it nobody knows which ones have been revoked; an empty file revokes none"
                )
            except (OSError, ValueError) as problem:
                self._problem = f"cannot read {self._path}: {problem}"
            if self._problem and self._problem != before:
                _log.error("some revocations may be missing", problem=self._problem)

    def check(self, auth_context: Mapping[str, Any]) -> None:
        """Raise NotAuthorized if a client shows a revoked certificate."""
        self.refresh()
        if shown_fingerprint(auth_context) in self._revoked:
            raise NotAuthorized(REFUSAL)

    def _read(self) -> None:
        text = self._path.read_text("ascii", errors="replace")  # comments may say anything
        if text == self._text:
            return
        lines = [*_lines(text)]
        # All good lines count, also those after a bad one.
        self._revoked |= {line for line in lines if _FINGERPRINT.fullmatch(line)}
        bad = [at for at, line in enumerate(lines, 1) if line and line not in self._revoked]
        if bad:
            raise ValueError(f"line {bad[0]} is no SHA-256 fingerprint of a certificate")
        self._text = text


def _lines(text: str) -> Iterator[str]:
    """Yield the lines of a list, without comments, in one spelling."""
    for line in text.splitlines():
        content = line.partition("#")[0].strip().lower()
        yield content.rpartition("=")[2].replace(":", "")
