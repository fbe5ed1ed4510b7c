"""The workers whose contributions an exchange lacks, from the switch's answers and from departures."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from innet.errors import WorkersMissing
from innet.host.job import Timeouts, WorkerInfo
from innet.host.window import Indices

_DEPARTURE_SETTLES = 1.0  # seconds: older answers are no longer in flight


class MissingWorkers:
    """The missing workers of an exchange. `absent` has a bitmap for every slot, 0 while unknown."""

    def __init__(self, info: WorkerInfo) -> None:
        self._info = info
        self._everybody = (1 << info.workers) - 1
        self._left_at: dict[int, float] = {}
        self._gone: dict[int, str] = {}  # those without whom the exchange cannot finish
        self.begin_term(0)

    def begin_term(self, slots: int) -> None:
        """Forget the slots of the term before."""
        self.absent = np.zeros(slots, np.uint32)

    def begin_exchange(self) -> None:
        """Forget the missing workers of the exchange before."""
        self.absent[:] = 0
        self._gone = {}

    def note_departures(self, departed: Mapping[int, str], now: float) -> None:
        """Note the ranks that have left the job, with the reasons."""
        for rank in departed:
            self._left_at.setdefault(rank, now)

    def take(
        self, slots: Indices, arrived: npt.NDArray[Any], departed: Mapping[int, str], now: float
    ) -> None:
        """Take the switch's answers for `slots`: the bitmaps of those whose contributions it has."""
        self.absent[slots] = self._everybody & ~arrived
        # The answer may be older than a departure, and the worker may have contributed before it
        # left. If an answer comes long after the departure was known, and still lacks the
        # contribution, it is missing.
        self.note_departures(departed, now)
        gone = {rank for rank in departed if now - self._left_at[rank] > _DEPARTURE_SETTLES}
        for bitmap in np.unique(arrived).tolist():
            absent = {rank for rank in gone if not bitmap >> rank & 1}
            if self._info.workers - len(absent) < self._info.min_workers:
                self._gone |= {rank: departed[rank] for rank in absent}

    def check_departures(self) -> None:
        """Raise WorkersMissing if the exchange lacks workers that have left the job."""
        if self._gone:
            reasons = "; ".join(f"worker {rank}: {why}" for rank, why in self._gone.items())
            raise WorkersMissing(f"the all-reduce cannot finish: {reasons}")

    def check_wait(self, seconds: float, timeouts: Timeouts) -> None:
        """Raise WorkersMissing if the exchange has waited too long for a contribution."""
        if seconds > timeouts.workers:
            raise WorkersMissing(
                f"no contribution from workers {_ranks(self.bitmap)} for {seconds:.0f} s: "
                "are they stuck, or do they call all-reduce less often?"
            )

    @property
    def known(self) -> list[int]:
        """Return the ranks that some chunk lacks, as far as the switch has named them."""
        return _ranks(int(np.bitwise_or.reduce(self.absent)))

    @property
    def bitmap(self) -> int:
        """Return the workers that some chunk lacks; all while no answer names them."""
        return int(np.bitwise_or.reduce(self.absent)) or self._everybody


def _ranks(bitmap: int) -> list[int]:
    return [rank for rank in range(bitmap.bit_length()) if bitmap >> rank & 1]
