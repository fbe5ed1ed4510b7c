"""A bell that wakes the one thread that waits, from any other."""

import contextlib
import os
import select
import threading
import time


class Bell:
    """Rung while nobody waits, it ends the next wait at once.

    Whoever rings has changed something before; whoever waits looks at everything afterwards.
    """

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self.descriptor, select.POLLIN)
        self._open = threading.Lock()
        self._closed = False

    def ring(self) -> None:
        """Wake whoever waits."""
        with self._open:
            if not self._closed:
                os.eventfd_write(self.descriptor, 1)

    def wait(self, seconds: float | None = None) -> None:
        """Return when the bell rings, or after `seconds`."""
        self._poll.poll(None if seconds is None else max(0.0, seconds) * 1000)
        self.hush()

    def hush(self) -> None:
        """Take note of what rang; for those who wait for the descriptor together with others."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def close(self) -> None:
        """Give the descriptor back; ringing does nothing from now on."""
        with self._open:
            if not self._closed:
                self._closed = True
                os.close(self.descriptor)


def monotonic() -> float:
    """The agent's clock, in seconds."""
    return time.monotonic()
