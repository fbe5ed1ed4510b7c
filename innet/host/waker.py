"""The waker: with it any thread can wake the one thread that waits for it."""

import contextlib
import os
import select
import threading


class Waker:
    """A wake-up signal. If it comes while no thread waits, the next wait ends at once.

    Change the shared state before you wake. Look at all of it after waiting. `count` is the number of
    wake-ups so far.
    """

    def __init__(self) -> None:
        self.descriptor = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._open = threading.Lock()
        self._closed = False
        self.count = 0

    def wake(self) -> None:
        """Wake the waiting thread."""
        with self._open:
            if not self._closed:
                self.count += 1
                os.eventfd_write(self.descriptor, 1)

    def wait(self, seconds: float | None = None, *, reset: bool = True) -> None:
        """Return when another thread wakes this one, or after `seconds`. Then `reset` the waker."""
        poll = select.poll()  # of its own: several threads may wait at once
        poll.register(self.descriptor, select.POLLIN)
        poll.poll(None if seconds is None else max(0.0, seconds) * 1000)
        if reset:
            self.reset()

    def reset(self) -> None:
        """Reset the waker; for a thread that waits for its descriptor together with others."""
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self.descriptor)

    def close(self) -> None:
        """Close the descriptor; waking does nothing from now on."""
        with self._open:
            if not self._closed:
                self._closed = True
                os.close(self.descriptor)
