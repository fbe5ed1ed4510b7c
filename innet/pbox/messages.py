"""The control connection between a worker and a server: JSON in frames, each after its length.

The length is four bytes, most significant first. What another process has sent is believed only after
:class:`Registration` and its kin have looked at it.
"""

import json
import socket
import struct
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from innet import errors
from innet.errors import InnetError, ParameterServerError, UsageError
from innet.pbox.native import MOST_WORKERS
from innet.pbox.optimizers import Optimizer

VERSION = 1
MOST_BYTES = 16 << 20
MOST_CORES = 1024
MOST_KEYS = 1 << 18
MOST_TEXT = 200
MOST_FLOATS = 1 << 40
LONGEST_PATIENCE_S = 86_400.0
_LENGTH = struct.Struct(">I")
_TELLABLE = ("UsageError", "NotAuthorized", "AlreadyExists", "NoCapacity", "WorkerLost")


class Malformed(ParameterServerError):
    """What has arrived is not a message."""


def send(sock: socket.socket, message: Mapping[str, Any]) -> None:
    """Send one message. Raises OSError."""
    body = json.dumps(message).encode()
    sock.sendall(_LENGTH.pack(len(body)) + body)


def receive(sock: socket.socket) -> dict[str, Any] | None:
    """Receive one message; None if the other side has hung up. Raises OSError and Malformed."""
    if not (head := _exactly(sock, _LENGTH.size)):
        return None
    (size,) = _LENGTH.unpack(head)
    if size > MOST_BYTES:
        raise Malformed(f"a message of {size} bytes: at most {MOST_BYTES} are allowed")
    if (body := _exactly(sock, size)) is None:
        return None
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise Malformed("what has arrived is not JSON") from None
    if not isinstance(message, dict):
        raise Malformed("what has arrived is not a JSON object")
    return message


def _exactly(sock: socket.socket, size: int) -> bytes | None:
    """`size` bytes, or None at the end. Memory grows with what has come, not with what was announced."""
    parts = bytearray()
    while len(parts) < size:
        part = sock.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def problem(error: InnetError) -> dict[str, str]:
    """An error as a message."""
    return {"error": type(error).__name__, "message": str(error)}


def raised(message: Mapping[str, Any]) -> InnetError:
    """The error that a message tells of."""
    name, text = str(message.get("error")), str(message.get("message"))
    kind: type[InnetError] = getattr(errors, name) if name in _TELLABLE else ParameterServerError
    return kind(text)


@dataclass(frozen=True)
class Registration:
    """What a worker says of its job, once; all of it but `rank` and `token` all workers agree on.

    `sizes` are floats per key, `cores` those of every server, and `server` is which of them this one is
    to be. `optimizer` is what :meth:`Optimizer.settings` gives, or None: then results are sums.
    """

    job: str
    token: str
    rank: int
    workers: int
    quorum: int
    asynchronous: bool
    mean: bool
    names: tuple[str, ...]
    sizes: tuple[int, ...]
    chunk_bytes: int
    cores: tuple[int, ...]
    server: int
    patience_s: float
    optimizer: dict[str, Any] | None

    def message(self) -> dict[str, Any]:
        """As the wire has it."""
        return asdict(self)

    @classmethod
    def of(cls, values: object) -> "Registration":
        """The reverse, of what another process has sent. Raises UsageError."""
        if not isinstance(values, dict) or values.keys() != cls.__dataclass_fields__.keys():
            raise UsageError("a registration has " + ", ".join(cls.__dataclass_fields__))
        texts = [values["job"], values["token"]]
        numbers = [values[name] for name in ("rank", "workers", "quorum", "chunk_bytes", "server")]
        lists = [values[name] for name in ("names", "sizes", "cores")]
        fine = (
            all(isinstance(each, str) and len(each) <= MOST_TEXT for each in texts)
            and all(_is_number(each) for each in numbers)
            and all(isinstance(values[name], bool) for name in ("asynchronous", "mean"))
            and all(isinstance(each, list) and 0 < len(each) <= MOST_KEYS for each in lists)
            and all(isinstance(each, str) and len(each) <= MOST_TEXT for each in values["names"])
            and all(_is_number(each) for name in ("sizes", "cores") for each in values[name])
            and isinstance(values["patience_s"], (int, float))
        )
        if not fine:
            raise UsageError("a registration's fields are of wrong types or too long")
        found = cls(
            **{**values, **{name: tuple(values[name]) for name in ("names", "sizes", "cores")}}
        )
        found.check()
        return found

    def check(self) -> None:
        """Raise UsageError for numbers out of their range."""
        rules = {
            f"job {self.job!r}: a job has a name": bool(self.job),
            f"{self.workers} workers: 1 to {MOST_WORKERS}": 1 <= self.workers <= MOST_WORKERS,
            f"rank {self.rank}: 0 to {self.workers - 1}": 0 <= self.rank < self.workers,
            f"quorum {self.quorum}: 1 to {self.workers}": 1 <= self.quorum <= self.workers,
            "an asynchronous job needs an optimizer": self.optimizer is not None
            or not self.asynchronous,
            "an asynchronous job has no quorum": not self.asynchronous
            or self.quorum == self.workers,
            "every key has a name of its own": len(set(self.names)) == len(self.sizes),
            f"keys have 1 to {MOST_FLOATS} floats": all(
                1 <= each <= MOST_FLOATS for each in self.sizes
            ),
            f"all servers have 1 to {MOST_CORES} cores": min(self.cores) >= 1
            and sum(self.cores) <= MOST_CORES,
            f"server {self.server} of {len(self.cores)}": 0 <= self.server < len(self.cores),
            f"a timeout of {self.patience_s} s: up to a day": 0
            < self.patience_s
            <= LONGEST_PATIENCE_S,
        }
        for rule, holds in rules.items():
            if not holds:
                raise UsageError(rule)
        Optimizer.of(self.optimizer)

    def check_same_job(self, other: "Registration") -> None:
        """Raise UsageError if another worker describes the job in another way."""
        mine, others = (asdict(replace(each, rank=0, token="")) for each in (self, other))
        for name, value in mine.items():
            if value != others[name]:
                raise UsageError(
                    f"worker {other.rank} and worker {self.rank} describe the job {self.job!r} in "
                    f"different ways: {name} is {_short(others[name])} and {_short(value)}"
                )


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
