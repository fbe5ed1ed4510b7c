"""The control connection between a worker and a server: JSON messages, each after its length.

The length is four bytes, most significant first. Messages of another process are not trusted before
:class:`Registration` and the other checks here have accepted them.
"""

import hashlib
import json
import operator
import socket
import struct
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from innet import errors
from innet.errors import InnetError, ParameterServerError, UsageError
from innet.servers.pbox.optimizers import Optimizer
from innet.servers.pbox.protocol import MOST_WORKERS

VERSION = 1
MOST_SMALL_BYTES = 1 << 10
"""The limit for a worker's messages, except for its registration."""
MOST_REGISTRATION_BYTES = 4 << 20
MOST_ANSWER_BYTES = 1 << 20
"""The limit for a server's messages, which have a key or a port for every core."""
MOST_CORES = 1024
MOST_KEYS = 1 << 18
MOST_TEXT = 200
MOST_FLOATS = 1 << 40
LONGEST_TIMEOUT_S = 86_400.0
RESTART = "start it again, and connect with initial= as the parameters of the last step"
"""The advice to a worker whose server has ended, and with it the parameters."""
_LENGTH = struct.Struct(">I")
_TELLABLE = (
    "UsageError",
    "NotAuthorized",
    "AlreadyExists",
    "NoCapacity",
    "WorkerLost",
    "ServerLost",
)


class Malformed(ParameterServerError):
    """Received bytes that are not a message."""


def send(sock: socket.socket, message: Mapping[str, Any]) -> None:
    """Send one message. Raises OSError."""
    sock.sendall(encoded(message))


def encoded(message: Mapping[str, Any]) -> bytes:
    """Return the bytes of a message."""
    body = json.dumps(message, default=operator.index).encode()  # numpy has integers of its own
    return _LENGTH.pack(len(body)) + body


def receive(sock: socket.socket, most: int, deadline: float | None = None) -> dict[str, Any] | None:
    """Receive a message of at most `most` bytes, or None if the peer has hung up.

    It must be complete before `deadline`, on the monotonic clock. Without a deadline the socket's
    timeout applies. Raises OSError and Malformed.
    """
    size = receive_size(sock, most, deadline)
    body = None if size is None else receive_body(sock, size, deadline)
    return None if body is None else parsed(body)


def receive_size(sock: socket.socket, most: int, deadline: float | None = None) -> int | None:
    """Receive the length of a message, as :func:`receive` does."""
    if (head := receive_body(sock, _LENGTH.size, deadline)) is None:
        return None
    size = int(_LENGTH.unpack(head)[0])
    if size > most:
        raise Malformed(f"a message of {size} bytes: at most {most} are allowed")
    return size


def receive_body(sock: socket.socket, size: int, deadline: float | None = None) -> bytes | None:
    """Receive `size` bytes, or None if the peer has hung up. Raises OSError.

    Memory is allocated for received bytes only, not for the announced size.
    """
    parts = bytearray()
    while len(parts) < size:
        if deadline is not None:
            if (left := deadline - time.monotonic()) <= 0:
                raise TimeoutError("it took too long")
            sock.settimeout(left)
        part = sock.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)


def parsed(body: bytes) -> dict[str, Any]:
    """Return the message in these bytes. Raises Malformed."""
    try:
        message = json.loads(body)
    except (ValueError, RecursionError):
        raise Malformed("what has arrived is not JSON") from None
    if not isinstance(message, dict):
        raise Malformed("what has arrived is not a JSON object")
    return message


def problem(error: InnetError) -> dict[str, str]:
    """Return an error as a message."""
    return {"error": type(error).__name__, "message": str(error)}


def raised(message: Mapping[str, Any]) -> InnetError:
    """Return the error in a message."""
    name, text = str(message.get("error")), str(message.get("message"))
    kind: type[InnetError] = getattr(errors, name) if name in _TELLABLE else ParameterServerError
    return kind(text)


@dataclass(frozen=True)
class Registration:
    """A worker's description of its job, sent once.

    All workers of a job must agree on it, except for `rank` and `token`. `sizes` are floats per
    key, `cores` the number of cores of every server, and `server` the index of the addressed
    server. `optimizer` is the result of :meth:`Optimizer.settings`. If it is None, results are
    sums, or means if `mean` is set.
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
    timeout_s: float
    optimizer: dict[str, Any] | None

    def message(self) -> dict[str, Any]:
        """Return the registration as the dictionary that is sent."""
        return asdict(self)

    @classmethod
    def of(cls, values: object) -> "Registration":
        """Return the registration in another process's message. Raises UsageError."""
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
            and isinstance(values["timeout_s"], (int, float))
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
            "the job has no name: give it one": bool(self.job),
            "names and tokens are text that can be written as UTF-8": _is_encodable(
                "".join((self.job, self.token, *self.names))
            ),
            f"{self.workers} workers: a job can have 1 to {MOST_WORKERS}": 1
            <= self.workers
            <= MOST_WORKERS,
            f"rank {self.rank}: it has to be 0 to {self.workers - 1}": 0
            <= self.rank
            < self.workers,
            f"quorum {self.quorum}: it has to be 1 to {self.workers}": 1
            <= self.quorum
            <= self.workers,
            "an asynchronous job needs an optimizer": self.optimizer is not None
            or not self.asynchronous,
            "an asynchronous job has no quorum": not self.asynchronous
            or self.quorum == self.workers,
            "every key has a name of its own": len(set(self.names))
            == len(self.names)
            == len(self.sizes),
            f"a key can have 1 to {MOST_FLOATS} floats": all(
                1 <= each <= MOST_FLOATS for each in self.sizes
            ),
            f"a server can have 1 to {MOST_CORES} cores": min(self.cores) >= 1
            and sum(self.cores) <= MOST_CORES,
            f"server {self.server} of {len(self.cores)}": 0 <= self.server < len(self.cores),
            f"a timeout of {self.timeout_s} s: it has to be positive, and at most a day": 0
            < self.timeout_s
            <= LONGEST_TIMEOUT_S,
        }
        for rule, holds in rules.items():
            if not holds:
                raise UsageError(rule)
        Optimizer.of(self.optimizer)

    def described(self) -> "Description":
        """Return what all workers of the job must agree on."""
        names = (each for each in self.__dataclass_fields__ if each not in ("rank", "token"))
        return Description(
            self.job, self.rank, {name: _exact(getattr(self, name)) for name in names}
        )


@dataclass(frozen=True)
class Description:
    """What the worker `rank` has told about its job, in little memory.

    `values` has each value, or if that is a list its digest, with a short text for errors.
    """

    job: str
    rank: int
    values: Mapping[str, tuple[object, str]]

    def check_same_job(self, other: "Description") -> None:
        """Raise UsageError if another worker describes the job in another way."""
        for name, (mine, text) in self.values.items():
            others, others_text = other.values[name]
            if mine != others:
                raise UsageError(
                    f"worker {other.rank} and worker {self.rank} describe the job {self.job!r} in "
                    f"different ways: {name} is {others_text} and {text}"
                )


def _exact(value: object) -> tuple[object, str]:
    text = repr(value)
    exact = hashlib.sha256(text.encode()).digest() if isinstance(value, tuple) else value
    return exact, text if len(text) <= 80 else text[:77] + "..."


def _is_encodable(text: str) -> bool:
    """Return whether UTF-8 can encode the text: JSON can have halves of surrogate pairs."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True


def _is_number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
