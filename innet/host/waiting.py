"""An agent's waits: the stopwatch that bounds them, and their lines in the log."""

import logging
from collections.abc import Callable, Iterable

from innet.rpc.words import LONG_WAIT_S

_LONGEST_STEP = 2.0
"""Seconds between two looks at a stopwatch; if more have passed, the process was stopped meanwhile."""

_log = logging.getLogger("innet")


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


class Notice:
    """A log of the workers for which this worker has waited long."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._named: frozenset[int] = frozenset()

    def look(self, seconds: float, ranks: Iterable[int]) -> None:
        """Note how long, and for which ranks, this worker has waited."""
        if seconds < LONG_WAIT_S:
            return
        others = frozenset(ranks) - {self._rank}
        if not others <= self._named:
            self._named |= others
            _log.warning("worker %d has waited %.0f s for %s", self._rank, seconds, named(others))

    def over(self) -> None:
        """Note that the wait is over."""
        if self._named:
            _log.warning("worker %d goes on: %s came", self._rank, named(self._named))
            self._named = frozenset()


def named(ranks: Iterable[int]) -> str:
    """Return ``worker 1`` or ``workers 0, 2``."""
    numbers = [str(rank) for rank in sorted(ranks)]
    return f"worker{'s' if len(numbers) != 1 else ''} {', '.join(numbers)}"
