"""Warnings that strangers can cause, logged seldom enough that nobody can flood the log."""

import threading
import time
from collections.abc import Callable
from typing import Any

_EVERY = 10.0


class SparseWarnings:
    """The warnings of one kind: at most one line in ten seconds, with the number of those left out."""

    def __init__(self, log: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self._log, self._clock = log, clock
        self._lock = threading.Lock()
        self._logged_at, self._left_out = clock() - _EVERY, 0

    def warn(self, event: str, **facts: object) -> None:
        """Log a warning, or count it for the next line."""
        with self._lock:
            due = self._clock() - self._logged_at >= _EVERY
            left_out = self._left_out
            self._left_out = 0 if due else left_out + 1
            self._logged_at = self._clock() if due else self._logged_at
        if due:
            self._log.warning(event, **facts, more_before=left_out)
