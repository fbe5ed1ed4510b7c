"""A thread that calls a function at due times and on request."""

import contextlib
import os
import select
import threading
from collections.abc import Callable

_LONGEST = 3600.0  # seconds; poll(2) counts milliseconds in an int


class Watch:
    """A thread that calls `scan` with `lock` held, each time after the seconds that it returned.

    If `scan` returned None, the thread waits for a wake-up. `bell` is the file descriptor of an
    eventfd. Writing to it, as engines do, wakes the thread at once.
    """

    def __init__(self, scan: Callable[[], float | None], lock: threading.RLock) -> None:
        self._scan, self._lock = scan, lock
        self.bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="innet-watch", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Wake the thread at once."""
        os.eventfd_write(self.bell, 1)

    def close(self) -> None:
        """Stop scanning. The caller does not hold the lock, and no engine uses `bell` any more."""
        self._closed = True
        self.wake()
        self._thread.join()
        os.close(self.bell)

    def _run(self) -> None:
        wait: float | None = None
        poller = select.poll()
        poller.register(self.bell, select.POLLIN)
        while not self._closed:
            poller.poll(None if wait is None else min(wait, _LONGEST) * 1000 + 1)
            with contextlib.suppress(BlockingIOError):
                os.eventfd_read(self.bell)
            with self._lock:
                wait = self._scan()
