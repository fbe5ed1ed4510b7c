"""The time in which this process ran. Only this time counts in the limits of an agent's waits."""

from collections.abc import Callable

_LONGEST_STEP = 2.0
"""The most seconds that count between two looks. If more have passed, the process was stopped."""

_LATE = 0.05  # seconds: a thread that runs so long after its deadline was stopped


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


class Lateness:
    """The delay of a thread that runs too late because its process was stopped."""

    def __init__(self) -> None:
        self._due = self._looked_at = 0.0

    def restart(self, now: float) -> None:
        """Note that the thread runs now."""
        self._due = self._looked_at = now

    def expect(self, due: float) -> None:
        """Note that the thread is to run again at `due`."""
        self._due = due

    def look(self, now: float) -> float:
        """Note that the thread runs again. Return the seconds that it lost, 0 if it is on time."""
        late = now - max(self._due, self._looked_at)
        self._looked_at = now
        return late if late > _LATE else 0.0
