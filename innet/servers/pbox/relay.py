"""A relay between a TLS connection and a plain socket, for code in C that knows only plain sockets.

The other end of the plain socket stays in this process. So OpenSSL is that of Python, and the code of
cores and clients is the same with TLS and without.
"""

import contextlib
import select
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator

from innet.errors import NotAuthorized
from innet.machine.forks import close_in_children
from innet.machine.threads import start
from innet.servers.pbox.sockets import shut

_BUFFER_BYTES = 1 << 18
_LOOK_EVERY_S = 1.0
_WAITS = (ssl.SSLWantReadError, ssl.SSLWantWriteError, BlockingIOError)
_NOTHING = memoryview(b"")


def _no_check() -> None:
    """Allow everything."""


def _nothing(_: "Relay") -> None:
    """Do nothing."""


class Relay:
    """A thread that carries bytes both ways until both ways have ended, and then closes both sockets.

    Once a second it calls `check`, and ends the connection if that raises NotAuthorized. In the end it
    calls `ended` with itself. Raises NoCapacity if there are too many threads.
    """

    def __init__(
        self,
        secured: ssl.SSLSocket,
        plain: socket.socket,
        check: Callable[[], None] = _no_check,
        ended: Callable[["Relay"], None] = _nothing,
    ) -> None:
        self._secured, self._plain, self._check, self._ended = secured, plain, check, ended
        for each in (secured, plain):
            each.setblocking(False)
            close_in_children(each)
        self._flows = _Flow(secured, plain), _Flow(plain, secured)
        self._thread = threading.Thread(target=self._run, name="pbox tls", daemon=True)
        start(self._thread)

    @property
    def problem(self) -> str:
        """Return the error that TLS has reported for what came from the peer, or ""."""
        return self._flows[0].problem

    def close(self) -> None:
        """End the connection and the thread."""
        shut(self._secured)
        self._thread.join()

    def _run(self) -> None:
        with self._secured, self._plain, contextlib.suppress(NotAuthorized):
            self._carry()
        self._ended(self)

    def _carry(self) -> None:
        looked = time.monotonic()
        while not all(each.ended for each in self._flows):
            inward, outward = self._flows
            moved = inward.step()
            if not (outward.step() or moved):
                self._wait()
            if time.monotonic() - looked >= _LOOK_EVERY_S:
                self._check()
                looked = time.monotonic()

    def _wait(self) -> None:
        poll, wanted = select.poll(), {self._secured: 0, self._plain: 0}
        for flow in self._flows:
            for sock, events in flow.waits_for():
                wanted[sock] |= events
        for sock, events in wanted.items():
            if events:  # else poll would report a hang-up again and again
                poll.register(sock, events)
        poll.poll(_LOOK_EVERY_S * 1e3)


class _Flow:
    """One way through a relay. `problem` is the error of TLS that has ended it, or ""."""

    def __init__(self, source: socket.socket, sink: socket.socket) -> None:
        self._source, self._sink = source, sink
        self._buffer = memoryview(bytearray(_BUFFER_BYTES))
        self._pending = _NOTHING
        self._source_ended = False
        self.ended, self.problem = False, ""

    def step(self) -> bool:
        """Move what can be moved at once. Return whether there may be more."""
        if self.ended:
            return False
        try:
            self._move()
        except _WAITS:
            return False
        except OSError as problem:  # also any other error of TLS
            if isinstance(problem, ssl.SSLError) and not isinstance(problem, ssl.SSLEOFError):
                self.problem = str(problem)
            self._end()
        return True

    def waits_for(self) -> Iterator[tuple[socket.socket, int]]:
        """Yield the socket that the flow waits for, with poll's event."""
        if not self.ended:
            yield (self._sink, select.POLLOUT) if self._pending else (self._source, select.POLLIN)

    def _move(self) -> None:
        if not self._pending:
            self._pending = self._buffer[: self._filled()]
        while self._pending:
            self._pending = self._pending[self._sink.send(self._pending) :]
        if self._source_ended:
            self._end()

    def _filled(self) -> int:
        """Fill the buffer, which has room for many records of TLS. Return the bytes in it."""
        size = 0
        while size < _BUFFER_BYTES and not self._source_ended:
            try:
                received = self._source.recv_into(self._buffer[size:])
            except OSError:  # also if no more has arrived yet
                if size:
                    break
                raise
            size += received
            self._source_ended = not received
        return size

    def _end(self) -> None:
        self.ended = True
        if isinstance(self._sink, ssl.SSLSocket):
            # This tells the peer that no more bytes come. It is no error that the peer may still
            # send.
            with contextlib.suppress(OSError, ValueError):
                self._sink.unwrap()
        shut(self._sink, socket.SHUT_WR)
