"""The thread that sends idle notifications and digests when they are due, or at a wake-up."""

import contextlib
import os
import select
import threading
from collections.abc import Callable

_MAX_WAIT = 3600.0  # seconds; poll(2) counts milliseconds in an int


class Notifier:
    """A thread that calls `notify` again and again, with `lock` held.

    `notify` returns the seconds until its next call, or None to wait for a wake-up. `wakeup` is the
    file descriptor of an eventfd. Writing to it, as engines do, wakes the thread at once.
    """

    def __init__(self, notify: Callable[[], float | None], lock: threading.RLock) -> None:
        self._notify, self._lock = notify, lock
        self.wakeup = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="innet-notifier", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread at once."""
        os.eventfd_write(self.wakeup, 1)

    def close(self) -> None:
        """Stop the thread. The caller does not hold the lock, and no engine uses `wakeup` any more."""
        self._closed = True
        self.wake()
        self._thread.join()
        os.close(self.wakeup)

    def _run(self) -> None:
        wait: float | None = None
        poller = select.poll()
        poller.register(self.wakeup, select.POLLIN)
        while not self._closed:
            poller.poll(None if wait is None else min(wait, _MAX_WAIT) * 1000 + 1)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.wakeup)
            with self._lock:
                wait = self._notify()
