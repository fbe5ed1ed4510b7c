"""The stragglers: the workers for which this worker waits, in the log."""

import logging
from collections.abc import Iterable

from innet.rpc.words import LONG_WAIT_S

_log = logging.getLogger("innet")


class StragglerLog:
    """A log of the workers for which this worker has waited long."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._named: frozenset[int] = frozenset()

    def note(self, seconds: float, ranks: Iterable[int]) -> None:
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
