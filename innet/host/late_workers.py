"""The late workers of a job, on which all its workers agree, and the share of chunks that these send.

After a step every worker knows how often each worker was late (:mod:`innet.host.inquiries`). A worker is
named if it was late in most answers of **every** worker that had some. So a worker is not named because a
single other one is fast, or because its processor was busy for a moment. A maximum over the switch
carries the opinions. All workers see the same maximum, and draw the same conclusions:

* A worker that is named in two steps in a row becomes late. One in eight workers may be late,
  and at least one: the gradients of many late workers would add up to steps that are too long. Those that
  were missing in most answers come first.
* A late worker sends the lanes of every s-th chunk. The stride s begins with 8, and doubles in each step
  in which a late worker is named.
* After a time without that, s halves. At s = 1 nobody is late any more. If that was too early, the next
  time is twice as long.

This is pure logic.
"""

import numpy as np

from innet.host.inquiries import Inquiries
from innet.host.integers import Integers

MOST = 64
"""The largest stride: a late worker sends at least one of so many chunks."""

_FIRST = 8
_MOSTLY = 75  # percent of the answers
_NO_OPINION = 101
_WORKERS_PER_LATE = 8
_FIRST_CALM, _LONGEST_CALM = 16, 256  # steps
_TOO_EARLY = 4  # steps after the stride was halved


def opinion(inquiries: Inquiries, workers: int) -> Integers:
    """Return a worker's opinion of all ranks, (workers,) int32, whose maximum :meth:`learn` takes."""
    percentages = [inquiries.lateness(rank) for rank in range(workers)]
    return np.array([-_NO_OPINION if each is None else -each for each in percentages], np.int32)


class LateWorkers:
    """The late workers of a job of `workers`, and the stride of their chunks."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.ranks: frozenset[int] = frozenset()
        self.stride = 1
        self._suspects: frozenset[int] = frozenset()
        self._calm = 0  # steps in which no late worker was named
        self._needed = _FIRST_CALM
        self._tries = False  # the stride was halved and not doubled since

    @property
    def root(self) -> int:
        """Return the lowest rank that is not late. It has the state that the late ones lack."""
        return min(set(range(self.workers)) - self.ranks)

    def learn(self, largest: Integers) -> None:
        """Take the maximum of all workers' opinions of the last step, (workers,) int32."""
        named = frozenset(np.flatnonzero((-largest >= _MOSTLY) & (-largest < _NO_OPINION)).tolist())
        places = max(1, self.workers // _WORKERS_PER_LATE) - len(self.ranks)
        again = sorted(named & self._suspects - self.ranks, key=lambda rank: (largest[rank], rank))
        found = self.ranks | frozenset(again[: max(0, places)])
        self._suspects = named
        if found & named:
            self._slow_down(found)
            return
        self._calm += 1
        if self.ranks and self._calm >= self._needed:
            self._speed_up()
        elif self._calm >= _LONGEST_CALM:
            self._needed = _FIRST_CALM

    def settle(self) -> None:
        """Note that nobody is late any more."""
        self.ranks, self.stride = frozenset(), 1

    def sends(self, chunks: int, step: int) -> slice:
        """Return which of so many chunks a late worker sends in a step."""
        return slice(step % self.stride, chunks, self.stride)

    def _slow_down(self, found: frozenset[int]) -> None:
        if self._tries and self._calm < _TOO_EARLY:
            self._needed = min(2 * self._needed, _LONGEST_CALM)
        self.stride = min(2 * self.stride, MOST) if self.ranks else _FIRST
        self.ranks = found
        self._calm, self._tries = 0, False

    def _speed_up(self) -> None:
        self.stride //= 2
        self._calm, self._tries = 0, True
        if self.stride == 1:
            self.settle()
