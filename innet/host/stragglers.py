"""The stragglers: the workers for which this worker waits, in the log."""

from collections.abc import Iterable

from innet.host.job import WorkerInfo
from innet.host.worker_log import WorkerLog
from innet.rpc.words import LONG_WAIT_S, workers_text


class StragglerLog:
    """A log of the workers for which this worker has waited long."""

    def __init__(self, info: WorkerInfo) -> None:
        self._rank, self._log = info.in_group(info.rank), WorkerLog(info)
        self._named: frozenset[int] = frozenset()

    def note(self, seconds: float, ranks: Iterable[int]) -> None:
        """Note how long, and for which ranks of the group, this worker has waited."""
        if seconds < LONG_WAIT_S:
            return
        others = frozenset(ranks) - {self._rank}
        if not others <= self._named:
            self._named |= others
            self._log.warning("has waited %.0f s for %s", seconds, workers_text(others))

    def over(self) -> None:
        """Note that the wait is over."""
        if self._named:
            self._log.warning("goes on: %s came", workers_text(self._named))
            self._named = frozenset()
