"""Revocation: a file lists the certificates that a server refuses although their authority is trusted.

A line of ``revoked.txt`` is ``tbs:`` and the SHA-256 of the part of a certificate that its authority has
signed: the *tbsCertificate* of RFC 5280, section 4.1. What follows a ``#`` is a comment. Whoever has a
certificate can change everything else in it: an ECDSA signature (r, s) is as valid as (r, n - s). So the
fingerprint of the whole certificate, which older lists have, does not name a certificate for good.

A server reads the file again at every call. A revocation is final while the server runs: a line that
disappears, or a file that cannot be read for a moment, takes none back.
"""

import hashlib
import re
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import structlog

from innet.errors import NotAuthorized, UsageError

REFUSAL = "this certificate has been revoked: ask whoever makes certificates for a new one"
"""The error for the owner of a revoked certificate."""
SIGNED = "tbs:"
"""The beginning of a certificate's name in lists."""
_SIGNED_PART = re.compile(r"tbs:[0-9a-f]{64}")
_FINGERPRINT = re.compile(r"[0-9a-f]{64}")
_SEQUENCE, _INDEFINITE, _LONG = 0x30, 0x80, 0x80
_log = structlog.get_logger("innet.revocation")


def signed_part(der: bytes) -> str:
    """Return the name of a certificate in lists: ``tbs:`` and the SHA-256 of what its authority signed.

    It is the same for every encoding of the rest of the certificate. Raises ValueError for bytes that are
    no certificate.
    """
    content, _, _ = _sequence(der)
    _, after, whole = _sequence(content)
    if not after:
        raise ValueError("this is no certificate")
    return SIGNED + hashlib.sha256(whole).hexdigest()


def signed_part_of_pem(pem: str) -> str:
    """Return the name of a certificate in PEM, as :func:`signed_part` does. Raises ValueError."""
    return signed_part(ssl.PEM_cert_to_DER_cert(pem))


def fingerprint(pem: str) -> str:
    """Return the SHA-256 of a whole certificate, in hexadecimal digits, as older lists have it."""
    return hashlib.sha256(ssl.PEM_cert_to_DER_cert(pem)).hexdigest()


def shown_names(auth_context: Mapping[str, Any]) -> frozenset[str]:
    """Return how lists may name a client's certificate, from gRPC's ``auth_context()``.

    Raises NotAuthorized if it cannot be read.
    """
    pem = auth_context["x509_pem_cert"][0].decode()
    try:
        return frozenset({signed_part_of_pem(pem), fingerprint(pem)})
    except ValueError:
        raise NotAuthorized("the certificate that was shown cannot be read") from None


@dataclass(frozen=True)
class Listed:
    """The content of a list: certificates, their fingerprints in older lists, and the first bad line."""

    certificates: frozenset[str]
    fingerprints: Mapping[str, int]
    """The fingerprints, and the lines that they are in."""
    bad: int | None

    @classmethod
    def of(cls, text: str) -> "Listed":
        """Return the content of a list. All good lines count, also those after a bad one."""
        lines = dict(enumerate(map(line_content, text.splitlines()), 1))
        known = {line for line in lines.values() if _SIGNED_PART.fullmatch(line)}
        older = {line: at for at, line in lines.items() if _FINGERPRINT.fullmatch(line)}
        bad = [at for at, line in lines.items() if line and line not in known and line not in older]
        return cls(frozenset(known), older, bad[0] if bad else None)

    @property
    def problem(self) -> str:
        """Return what is wrong with the list, or ""."""
        if self.bad:
            return f"line {self.bad} is neither a comment nor tbs: and a SHA-256"
        if self.fingerprints:
            line = min(self.fingerprints.values())
            return (
                f"line {line} is the fingerprint of a whole certificate, which its owner can change: "
                "revoke the certificate again with `innet certificates revoke FOLDER NAME`, or with "
                "`innet certificates revoke FOLDER --certificate FILE`, which replaces the line"
            )
        return ""


class Revocations:
    """The revoked certificates of a file. Any thread may ask.

    Raises UsageError if the file is missing or cannot be read, or if it has a line that names no
    certificate for good. If such a line is added while the server runs, the server logs an error. It
    then still refuses certificates with a listed fingerprint, as long as their owners do not change them.
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
        """Return the names of all certificates that were revoked at the last look."""
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
        """Raise NotAuthorized if a client shows a revoked certificate, or one that cannot be read."""
        self.refresh()
        if not shown_names(auth_context).isdisjoint(self._revoked):
            raise NotAuthorized(REFUSAL)

    def _read(self) -> None:
        text = self._path.read_text("ascii", errors="replace")  # comments may say anything
        if text == self._text:
            return
        listed = Listed.of(text)
        self._revoked |= listed.certificates | listed.fingerprints.keys()
        if listed.problem:
            raise ValueError(listed.problem)
        self._text = text


def line_content(line: str) -> str:
    """Return a line of a list without its comment, in one spelling."""
    content = line.partition("#")[0].strip().lower()
    if content.startswith(SIGNED):
        return content
    return content.rpartition("=")[2].replace(":", "")  # openssl writes fingerprints so


def _sequence(encoded: bytes) -> tuple[bytes, bytes, bytes]:
    """Split what begins with a sequence in BER. Return its content, what follows it, and all of it.

    The content of a sequence without a length may have more behind it. Raises ValueError.
    """
    try:
        if encoded[0] != _SEQUENCE:
            raise ValueError("this is no sequence")
        size, begin = encoded[1], 2
        if size == _INDEFINITE:
            return encoded[begin:], b"", encoded
        if size & _LONG:
            begin += size & ~_LONG
            size = int.from_bytes(encoded[2:begin])
        end = begin + size
    except IndexError:
        raise ValueError("this is no sequence") from None
    if end > len(encoded):
        raise ValueError("this is not all of a sequence")
    return encoded[begin:end], encoded[end:], encoded[:end]
