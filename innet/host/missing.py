"""The workers whose contributions an exchange lacks, from the switch's answers and from departures."""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from innet.errors import WorkersMissing
from innet.host.contributors import Contributors
from innet.host.job import Term, Timeouts, WorkerInfo
from innet.host.window import Indices

DEPARTURE_SETTLES = 1.0
"""The seconds after which nothing is in flight that was sent before a departure was known."""


class MissingWorkers:
    """The missing workers of an exchange.

    `answers` has a bitmap for every slot: that of the last PENDING for its chunk, 0 without one.
    """

    def __init__(self, info: WorkerInfo) -> None:
        self._info = info
        self._left_at: dict[int, float] = {}
        self._gone: dict[int, str] = {}  # those without whom the exchange cannot finish

    def begin_term(self, term: Term) -> None:
        """Forget the slots of the term before."""
        self.answers = np.zeros(term.slots, np.uint64)
        self._contributors = Contributors(term, self._info.workers)

    @property
    def contributors(self) -> Contributors:
        """Return the contributors in the present term."""
        return self._contributors

    def begin_exchange(self) -> None:
        """Forget the missing workers of the exchange before."""
        self.answers[:] = 0
        self._gone = {}

    def note_departures(self, departed: Mapping[int, str], now: float) -> None:
        """Note the ranks that have left the job, with the reasons."""
        for rank in departed:
            self._left_at.setdefault(rank, now)

    def take(
        self, slots: Indices, arrived: npt.NDArray[Any], departed: Mapping[int, str], now: float
    ) -> None:
        """Take the switch's answers for `slots`: the bitmaps of those whose contributions it has."""
        self.answers[slots] = arrived
        # The answer may be older than a departure, and the worker may have contributed before it
        # left. If an answer comes long after the departure was known, and still lacks the
        # contribution, then this contribution will not come.
        self.note_departures(departed, now)
        gone = {rank for rank in departed if now - self._left_at[rank] > DEPARTURE_SETTLES}
        for missing in self._contributors.missing(slots, arrived) if gone else ():
            # A tree that a worker has left sums nothing more: its switches only give what they have.
            absent = gone if self._contributors.in_tree else gone & missing
            if self._info.workers - len(absent) < self._info.min_workers:
                self._gone |= {rank: departed[rank] for rank in absent}

    def of(self, slots: Indices, arrived: npt.NDArray[Any]) -> Iterator[frozenset[int]]:
        """Yield the ranks that each different answer for `slots` lacks."""
        return self._contributors.missing(slots, arrived)

    def check_departures(self) -> None:
        """Raise WorkersMissing if the exchange lacks workers that have left the job."""
        if self._gone:
            named = ((self._info.in_group(rank), why) for rank, why in self._gone.items())
            reasons = "; ".join(f"worker {rank}: {why}" for rank, why in named)
            raise WorkersMissing(f"the all-reduce cannot finish: {reasons}")

    def check_wait(self, seconds: float, timeouts: Timeouts) -> None:
        """Raise WorkersMissing if the exchange has waited too long for a contribution."""
        if seconds > timeouts.workers:
            ranks: Iterable[int] = self.known or range(self._info.workers)
            raise WorkersMissing(
                f"no contribution from workers {sorted(map(self._info.in_group, ranks))} for "
                f"{seconds:.0f} s, the "
                "timeout of this call: are they stuck, or do they call all-reduce less often?"
            )

    @property
    def known(self) -> frozenset[int]:
        """Return the ranks that some chunk lacks, as far as switches have named them.

        Safe from any thread. Meanwhile another term, with other slots, may begin.
        """
        answers, contributors = self.answers, self._contributors
        answered = np.flatnonzero(answers)
        return frozenset().union(*contributors.missing(answered, answers[answered]))
