"""Tokens that prove that a worker belongs to a job. The controller keeps only their digests.

A job has one token for all ranks, or one for each rank. The digests are stored one after the other.
"""

import hashlib
import hmac
import secrets

from innet.errors import NotAuthorized

DIGEST_BYTES = hashlib.sha256().digest_size
_BYTES = 32


def new_token() -> str:
    """Return a token that nobody can guess."""
    return secrets.token_urlsafe(_BYTES)


def token_digest(token: str) -> bytes:
    """Return the SHA-256 of a token, which the controller keeps in its place."""
    return hashlib.sha256(token.encode()).digest()


def digest_for(rank: int, digests: bytes) -> bytes:
    """Return the digest of a rank's token, from a job's digests, or b"" if the rank has none."""
    if len(digests) == DIGEST_BYTES:
        return digests
    return digests[DIGEST_BYTES * rank : DIGEST_BYTES * (rank + 1)]


def check_token(token: str, digest: bytes, job: str) -> None:
    """Raise NotAuthorized unless the token is the job's."""
    if not token:
        raise NotAuthorized(
            f"a worker of the job {job!r} needs its token: set INNET_TOKEN to what "
            "`innet job create` printed"
        )
    if not hmac.compare_digest(token_digest(token), digest):
        raise NotAuthorized(
            f"the token is not the job {job!r}'s: set INNET_TOKEN to what `innet job create` printed"
        )
