"""A stopwatch that bounds an agent's waits."""

from collections.abc import Callable

_LONGEST_STEP = 2.0
"""Seconds between two looks at a stopwatch; if more have passed, the process was stopped meanwhile."""


class Stopwatch:
    """A counter of the seconds in which this process ran. Look at it once a second while you wait."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock, self._last, self._seconds = clock, clock(), 0.0

    def look(self) -> float:
        """Return the seconds so far."""
        now = self._clock()
        self._seconds += min(now - self._last, _LONGEST_STEP)
        self._last = now
        return self._seconds

    def restart(self) -> None:
        """Count from 0 again."""
        self._last, self._seconds = self._clock(), 0.0
