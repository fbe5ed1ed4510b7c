"""The bell: any thread can wake the one thread that waits for it."""

import contextlib
import os
import select
import threading
import time


class Bell:
    """A wake-up signal. If it rings while no thread waits, the next wait ends at once.

    Change the shared state before ringing. Look at all of it after waiting.
    """

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        self._poll.register(self.descriptor, select.POLLIN)
        self._open = threading.Lock()
        self._closed = False

    def ring(self) -> None:
        """Wake the waiting thread."""
        with self._open:
            if not self._closed:
                os.eventfd_write(self.descriptor, 1)

    def wait(self, seconds: float | None = None) -> None:
        """Return when the bell rings, or after `seconds`."""
        self._poll.poll(None if seconds is None else max(0.0, seconds) * 1000)
        self.hush()

    def hush(self) -> None:
        """Reset the bell; for a thread that waits for its descriptor together with others."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def close(self) -> None:
        """Close the descriptor; ringing does nothing from now on."""
        with self._open:
            if not self._closed:
                self._closed = True
                os.close(self.descriptor)


def monotonic() -> float:
    """Return the time of the agent's clock, in seconds."""
    return time.monotonic()
