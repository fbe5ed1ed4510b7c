"""The signals that stop a command: Ctrl-C and SIGTERM."""

import contextlib
import signal
import socket
from collections.abc import Iterator
from time import monotonic
from typing import NoReturn

from innet.machine import systemd

STOP_SIGNALS = (signal.SIGINT, signal.SIGTERM)
_AT_ONCE = 0.5


class Stopped(SystemExit):
    """The end of a process that a signal has stopped; its exit code is 128 plus the signal's number."""

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)


class StopRequest:
    """A request to stop, by Ctrl-C or SIGTERM; signals count from the construction on."""

    def __init__(self) -> None:
        self._receiver, self._sender = socket.socketpair()
        self._sender.setblocking(False)
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: None)
        # The byte stays in the socket, so a signal just before `wait` is not missed.
        signal.set_wakeup_fd(self._sender.fileno(), warn_on_full_buffer=False)

    def pause(self, seconds: float) -> None:
        """Wait for so long, or raise Stopped if a signal comes."""
        self._receiver.settimeout(seconds)
        with contextlib.suppress(TimeoutError):
            self._stop()
        self._receiver.settimeout(None)

    def wait(self) -> NoReturn:
        """Tell systemd that this process serves, wait for a signal, then raise Stopped.

        Later signals are ignored.
        """
        systemd.notify(systemd.READY)
        self._stop()

    def _stop(self) -> NoReturn:
        [number] = self._receiver.recv(1)
        systemd.notify(systemd.STOPPING)
        # The handlers stay: replacing one for which a signal has just come makes Python complain.
        signal.set_wakeup_fd(-1)
        raise Stopped(number)


class Interrupts:
    """A handler of Ctrl-C (KeyboardInterrupt) and SIGTERM (Stopped), except around a fork.

    During a fork Python runs hooks that swallow exceptions. An exception raised there would be printed
    and lost.

    Signals in the half second after one that counts belong to the same request. ``timeout``, for example,
    sends SIGTERM to the command, and at once to the command's group. A second request would kill what
    the first one has asked to end.
    """

    def __init__(self) -> None:
        self._pending: BaseException | None = None
        self._at = -_AT_ONCE
        self._held = False

    def catch(self) -> None:
        """Handle both signals from now on."""
        for number in STOP_SIGNALS:
            signal.signal(number, self._handle)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep a signal that arrives within the block for :meth:`check`."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def check(self) -> None:
        """Raise KeyboardInterrupt or Stopped if a signal was kept."""
        if self._pending:
            raise self._pending

    def _handle(self, number: int, _: object) -> None:
        if (now := monotonic()) - self._at < _AT_ONCE:
            return
        self._at = now
        self._pending = KeyboardInterrupt() if number == signal.SIGINT else Stopped(number)
        if not self._held:
            raise self._pending


INTERRUPTS = Interrupts()
"""The instance of this process: a process has one handler for each signal."""
