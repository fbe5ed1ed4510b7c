"""Private sums: the workers' secret, and the session that they make of it.

The secret is a file that all workers of a job have, and neither controller nor switch. Every worker
sends the others a random nonce, with a code that only the secret can make of it. The session's key
follows from the secret and all nonces. So no two sessions have the same key, whatever the network
or the controller repeats: each worker's own nonce is new.
"""

import hmac
import secrets
from pathlib import Path

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from innet.errors import UsageError, WorkersDisagree
from innet.host.agreement import KEY_AGREEMENT
from innet.host.exchanges import Exchanges
from innet.host.job import WorkerInfo
from innet.host.moves import Moves
from innet.host.pads import KEY_BYTES, Pads
from innet.machine import private
from innet.machine.environment import PRIVATE_KEY_FILE

LEAST_BYTES = 32
_NONCE_BYTES, _CODE_BYTES = 16, 16


def read_secret(path: Path) -> bytes:
    """Return a secret from a file. Raises UsageError if it is short, or others may read the file."""
    try:
        secret = private.read_secret(path)
    except OSError as problem:
        raise UsageError(
            f"cannot read the key of private sums, {path}: {problem.strerror}"
        ) from None
    if len(secret) < LEAST_BYTES:
        raise UsageError(
            f"{path} has {len(secret)} bytes: a key of private sums has at least {LEAST_BYTES}, as "
            f"from `head -c {LEAST_BYTES} /dev/urandom`"
        )
    return secret


def check_suits(info: WorkerInfo, *, sealed: bool) -> None:
    """Raise UsageError if pads would not cancel in a job's sums."""
    if info.has_quorum:
        raise UsageError(
            f"private sums need all {info.workers} workers, and this job goes on with "
            f"{info.min_workers}, without whose pads a sum is noise: create it without --quorum "
            f"and --min-workers, or unset {PRIVATE_KEY_FILE}"
        )
    if 2 * info.workers > info.lanes:
        raise UsageError(
            f"private sums need 2 lanes for each worker, and {info.workers} workers with packets of "
            f"{info.lanes} lanes have fewer: use a program with more lanes, or unset {PRIVATE_KEY_FILE}"
        )
    if not sealed:
        raise UsageError(
            "private sums need a switch that adds modulo 2**32, and the program for Tofino does not: "
            f"use another switch, or unset {PRIVATE_KEY_FILE}"
        )


def begin_session(exchanges: Exchanges, info: WorkerInfo, secret: bytes) -> None:
    """Agree on a new session, and cover all later exchanges with its pads.

    Raises WorkersDisagree if another worker has another secret, or none, and any AllReduceError.
    """
    nonce = secrets.token_bytes(_NONCE_BYTES)
    own = np.frombuffer(nonce + _code(secret, info, info.rank, nonce), np.uint8)
    said = Moves(exchanges, info).all_gather(own, collective=KEY_AGREEMENT)
    nonces = [each[:_NONCE_BYTES].tobytes() for each in said]
    codes = [each[_NONCE_BYTES:].tobytes() for each in said]
    others = [
        rank
        for rank in range(info.workers)
        if not hmac.compare_digest(codes[rank], _code(secret, info, rank, nonces[rank]))
    ]
    if others or nonces[info.rank] != nonce:
        names = ", ".join(map(str, others or [info.rank]))
        raise WorkersDisagree(
            f"the key of private sums of worker {names} is not that of worker {info.rank}: give all "
            f"workers the same file as {PRIVATE_KEY_FILE}"
        )
    exchanges.cover(Pads(_session_key(secret, info, nonces), info.rank, info.workers))


def _code(secret: bytes, info: WorkerInfo, rank: int, nonce: bytes) -> bytes:
    """Return the proof that the worker of a rank has the secret. It also covers the job."""
    key = HKDF(SHA256(), KEY_BYTES, salt=None, info=b"innet key agreement").derive(secret)
    what = f"{info.job_name}\0{info.workers}\0{rank}\0".encode() + nonce
    return hmac.digest(key, what, "sha256")[:_CODE_BYTES]


def _session_key(secret: bytes, info: WorkerInfo, nonces: list[bytes]) -> bytes:
    job = f"innet session\0{info.job_name}".encode()
    return HKDF(SHA256(), KEY_BYTES, salt=b"".join(nonces), info=job).derive(secret)
