"""Handshakes: connections at a server's control side that are in no job yet, and their limits."""

import contextlib
import socket
import threading
import time
from typing import Any

from innet.errors import InnetError
from innet.servers.pbox import messages
from innet.servers.pbox.messages import Registration
from innet.servers.pbox.sockets import shut

MOST_HANDSHAKES = 512
"""Handshakes under way at the same time. When another one comes, the oldest of them is closed."""

HANDSHAKE_WITHIN_S = 10.0
LARGE_BYTES = 1 << 16
MOST_LARGE = 8
"""Registrations of more than `LARGE_BYTES` that are received at the same time; others wait.

Parsing JSON takes some 40 times its size in memory, so only one registration is parsed at a time.
"""

LARGE_WITHIN_S = 5.0
_LOOK_S = 0.1


class Handshakes:
    """The handshakes of one server: its connections in no job yet. Threads may share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[socket.socket, float] = {}  # in the order of arrival
        self._parsing = threading.Lock()
        self._large = threading.BoundedSemaphore(MOST_LARGE)

    def add(self, sock: socket.socket) -> None:
        """Add a connection. Its first message must be complete within `HANDSHAKE_WITHIN_S` seconds."""
        with self._lock:
            if len(self._pending) >= MOST_HANDSHAKES:
                oldest = next(iter(self._pending))
                del self._pending[oldest]
                shut(oldest)
            self._pending[sock] = time.monotonic() + HANDSHAKE_WITHIN_S

    def remove(self, sock: socket.socket) -> None:
        """Forget a connection that has joined a job or has ended."""
        with self._lock:
            self._pending.pop(sock, None)

    def hello(self, sock: socket.socket) -> dict[str, Any] | None:
        """Receive the first message, or None if the peer has hung up. Raises OSError and Malformed."""
        return messages.receive(sock, messages.MOST_SMALL_BYTES, self._deadline(sock))

    def registration(self, sock: socket.socket) -> Registration | None:
        """Receive a registration, or None if the peer has hung up.

        Raises OSError, Malformed and UsageError.
        """
        most = messages.MOST_REGISTRATION_BYTES
        size = messages.receive_size(sock, most, self._deadline(sock))
        if size is None:
            return None
        with self._large_slot(sock, size):
            within = time.monotonic() + LARGE_WITHIN_S
            deadline = within if size > LARGE_BYTES else self._deadline(sock)
            if (body := messages.receive_body(sock, size, deadline)) is None:
                return None
            with self._parsing:
                try:
                    return Registration.of(messages.parsed(body))
                except InnetError as problem:
                    why = problem.with_traceback(None)  # the traceback holds all that was parsed
            raise why

    def _deadline(self, sock: socket.socket) -> float:
        with self._lock:
            if sock not in self._pending:
                raise ConnectionAbortedError("too many newer connections have come")
            return self._pending[sock]

    @contextlib.contextmanager
    def _large_slot(self, sock: socket.socket, size: int) -> Any:
        if size <= LARGE_BYTES:
            yield
            return
        while not self._large.acquire(timeout=_LOOK_S):
            self._deadline(sock)  # raises if the connection was closed meanwhile
        try:
            yield
        finally:
            self._large.release()
