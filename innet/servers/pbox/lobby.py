"""The lobby: connections that have not shown yet what they are for, in bounded number."""

import socket
import threading
import time
from collections import Counter

from innet.servers.pbox.sockets import shut


class Lobby:
    """Connections that have yet to be admitted. Threads may share it.

    None of them keeps another one out: when it is full, the address with most connections loses its
    oldest one.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._pending: dict[socket.socket, float] = {}  # the deadlines, in the order of arrival
        self._addresses: dict[socket.socket, str] = {}

    def enter(self, sock: socket.socket, address: str, most: int, within: float) -> None:
        """Add a connection, for `within` seconds, to `most` at the same time."""
        with self._lock:
            while len(self._pending) >= most:
                [(crowd, _)] = Counter(self._addresses.values()).most_common(1)
                oldest = next(each for each in self._pending if self._addresses[each] == crowd)
                self._forget(oldest)
                shut(oldest)
            self._pending[sock] = time.monotonic() + within
            self._addresses[sock] = address

    def remove(self, sock: socket.socket) -> bool:
        """Forget a connection that is admitted or has ended. Return False if it had lost its place."""
        with self._lock:
            return self._forget(sock)

    def deadline(self, sock: socket.socket) -> float:
        """Return a connection's deadline, on the monotonic clock. Raises OSError if it lost its place."""
        with self._lock:
            if sock not in self._pending:
                raise ConnectionAbortedError("too many newer connections have come")
            return self._pending[sock]

    def _forget(self, sock: socket.socket) -> bool:
        self._addresses.pop(sock, None)
        return self._pending.pop(sock, None) is not None
