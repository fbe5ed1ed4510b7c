"""The bursts in which a worker communicates, reported to the controller of a job that lends slots.

A burst begins with a call, and is over when no call has come for `PAUSE_S`. So a burst costs two
messages, however many calls it has.
"""

import threading
from collections.abc import Callable
from time import monotonic
from typing import Self

PAUSE_S = 0.02
"""The most seconds between two calls of one burst. A backward pass computes a bucket in this time."""


class Activity:
    """The activity of a worker. Each of its calls is a block ``with activity``, one at a time.

    `report` is called with True when a burst begins, and with False when it is over. It may be called
    from any thread.
    """

    def __init__(self, report: Callable[[bool], None]) -> None:
        self._report = report
        self._lock = threading.Lock()
        self._calling = self._busy = False
        self._last = 0.0
        self._begun, self._closed = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._run, name="innet-activity", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        with self._lock:
            self._calling = True
            if not self._busy:
                self._busy = True
                self._report(True)
                self._begun.set()
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._calling, self._last = False, monotonic()

    def close(self) -> None:
        """Stop reporting."""
        self._closed.set()
        self._begun.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closed.is_set():
            self._begun.wait()
            while not self._closed.is_set() and not self._over():
                self._closed.wait(PAUSE_S / 2)

    def _over(self) -> bool:
        """Return whether the burst is over. If it is, report its end."""
        with self._lock:
            if self._calling or monotonic() - self._last < PAUSE_S:
                return False
            self._busy = False
            self._begun.clear()
            self._report(False)
            return True
