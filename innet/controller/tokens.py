"""What proves that a worker belongs to a job. The controller keeps only a digest of it."""

import hashlib
import hmac
import secrets

from innet.errors import NotAuthorized

_BYTES = 32


def new_token() -> str:
    """A token that nobody can guess."""
    return secrets.token_urlsafe(_BYTES)


def token_digest(token: str) -> bytes:
    """What is kept of a token."""
    return hashlib.sha256(token.encode()).digest()


def check_token(token: str, digest: bytes, job: str) -> None:
    """Raise NotAuthorized unless the token is the job's."""
    if not token:
        raise NotAuthorized(
            f"a worker of the job {job!r} needs its token: set INNET_TOKEN to what "
            "`innet job create` said"
        )
    if not hmac.compare_digest(token_digest(token), digest):
        raise NotAuthorized(
            f"the token is not the job {job!r}'s: set INNET_TOKEN to what `innet job create` said"
        )
