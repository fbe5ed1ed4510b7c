"""Handshakes: connections at a server's control side that are in no job yet, and their limits."""

import contextlib
import socket
import threading
import time
from collections.abc import Callable
from typing import Any, TypeVar

from innet.errors import InnetError
from innet.servers.pbox import messages
from innet.servers.pbox.lobby import Lobby
from innet.servers.pbox.messages import Registration

_T = TypeVar("_T")

MOST_HANDSHAKES = 512
"""Handshakes under way at the same time. When another one comes, an older one is closed."""

HANDSHAKE_WITHIN_S = 10.0
LARGE_BYTES = 1 << 16
MOST_LARGE = 8
"""Registrations of more than `LARGE_BYTES` that are received at the same time; others wait.

Parsing JSON takes some 40 times its size in memory. So one large registration at a time is parsed, and
the next one when this worker has joined its job. Small registrations do not wait for large ones.
"""

LARGE_WITHIN_S = 5.0
_LOOK_S = 0.1


class Handshakes(Lobby):
    """The handshakes of one server: its connections in no job yet. Threads may share it."""

    def __init__(self) -> None:
        super().__init__()
        self._small, self._large = threading.Lock(), threading.BoundedSemaphore(1)
        self._receiving = threading.BoundedSemaphore(MOST_LARGE)

    def add(self, sock: socket.socket, address: str = "") -> None:
        """Add a connection. Its first message must be complete within `HANDSHAKE_WITHIN_S` seconds."""
        self.enter(sock, address, MOST_HANDSHAKES, HANDSHAKE_WITHIN_S)

    def hello(self, sock: socket.socket) -> dict[str, Any] | None:
        """Receive the first message, or None if the peer has hung up. Raises OSError and Malformed."""
        return messages.receive(sock, messages.MOST_SMALL_BYTES, self.deadline(sock))

    def join(self, sock: socket.socket, join: Callable[[Registration], _T]) -> _T | None:
        """Receive a registration, and return the result of `join`, or None if the peer has hung up.

        Raises OSError, Malformed, UsageError, and the errors of `join`.
        """
        most = messages.MOST_REGISTRATION_BYTES
        size = messages.receive_size(sock, most, self.deadline(sock))
        if size is None:
            return None
        is_large = size > LARGE_BYTES
        with contextlib.ExitStack() as stack:
            if is_large:
                self._take(self._receiving, sock, stack)
            deadline = time.monotonic() + LARGE_WITHIN_S if is_large else self.deadline(sock)
            if (body := messages.receive_body(sock, size, deadline)) is None:
                return None
            if is_large:
                self._take(self._large, sock, stack)
                return join(self._parsed(body))
            with self._small:
                registration = self._parsed(body)
            return join(registration)

    def _parsed(self, body: bytes) -> Registration:
        try:
            return Registration.of(messages.parsed(body))
        except InnetError as problem:
            why = problem.with_traceback(None)  # the traceback holds all that was parsed
        raise why

    def _take(
        self,
        places: threading.Semaphore,
        sock: socket.socket,
        stack: contextlib.ExitStack,
    ) -> None:
        """Take a place until the end of `stack`. Raises OSError if the connection is closed meanwhile."""
        while not places.acquire(timeout=_LOOK_S):
            self.deadline(sock)
        stack.callback(places.release)
