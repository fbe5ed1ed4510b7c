"""A thread that looks after what is due."""

import contextlib
import os
import select
import threading
from collections.abc import Callable

_LONGEST = 3600.0  # seconds; poll(2) counts milliseconds in an int


class Watch:
    """Calls `scan` with `lock` held: after the seconds that it returned, or None, and at the bell.

    `bell` is a file descriptor for engines to ring.
    """

    def __init__(self, scan: Callable[[], float | None], lock: threading.RLock) -> None:
        self._scan, self._lock = scan, lock
        self.bell = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._closed = False
        self._thread = threading.Thread(target=self._run, name="innet-watch", daemon=True)
        self._thread.start()

    def wake(self) -> None:
        """Something has changed."""
        os.eventfd_write(self.bell, 1)

    def close(self) -> None:
        """Scan no more. The lock is not held, and no engine rings any more."""
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
