"""The late workers of a job, on which all its workers agree, and the share of chunks that these send.

After a step every worker knows how often each worker was late (:mod:`innet.host.inquiries`), and how
long the exchange took. A worker is named if it was late in most answers of **every** worker that had
some. So a worker is not named because a single other one is fast, or because its processor was busy for a
moment. A maximum over the switch carries these reports. All workers see the same maximum, and draw the
same conclusions:

* A worker that is named in two steps in a row becomes late. At most one in eight workers may be late, but
  one always may: the gradients of many late workers would add up to steps that are too long. The workers
  that were missing in most answers come first.
* A late worker sends the lanes of every s-th chunk. The stride s begins with 8, and doubles in each step
  in which a late worker is named.
* After a few steps in which no late worker is named, s becomes the next smaller one of `STRIDES`. At
  s = 1 nobody is late any more. This last change comes only after many such steps: if it comes too early,
  all workers wait again. If a late worker is named soon after any of these changes, the stride is again
  what it was, and the next try comes after twice as many steps.
* An exchange with late workers has to take less time than those that waited for them. Otherwise nobody
  is late for a while, and for twice as long the next time.

This is pure logic.
"""

from collections import deque
from collections.abc import Sequence

import numpy as np

from innet.host.inquiries import Inquiries
from innet.host.integers import Integers

STRIDES = (1, 2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 64)
"""The strides. With the largest, a late worker sends one of 64 chunks."""

_FIRST = STRIDES.index(8)
_MOSTLY = 75  # percent of the answers
_NO_OPINION = 101
_WORKERS_PER_LATE = 8
_FIRST_CALM, _LONGEST_CALM = 4, 256  # steps
_LAST_CALM = 64  # the fewest calm steps before nobody is late any more
_TOO_EARLY = 4  # steps after the stride became smaller
_TIMED = 16  # exchanges whose median tells how long one takes
_WORTH = 0.9  # of the time that waiting took
_FIRST_REFUSAL, _LONGEST_REFUSAL = 64, 1024  # steps


def report(inquiries: Inquiries, workers: int) -> Integers:
    """Return a worker's report of an exchange, whose maximum over all workers :meth:`learn` takes.

    It is (workers + 1,) int32. For each rank it has the percentage of answers that lack the rank, as a
    negative number, or -101 if there were too few answers. The last item is the time in microseconds.
    """
    percentages = [inquiries.lateness(rank) for rank in range(workers)]
    opinions = [-_NO_OPINION if each is None else -each for each in percentages]
    return np.array([*opinions, min(int(1e6 * inquiries.seconds), 2**31 - 1)], np.int32)


class LateWorkers:
    """The late workers of a job of `workers`, and the stride of their chunks."""

    def __init__(self, workers: int) -> None:
        self.workers = workers
        self.ranks: frozenset[int] = frozenset()
        self.stride = 1
        self._suspects: frozenset[int] = frozenset()
        self._calm = 0  # steps in which no late worker was named
        self._needed = _FIRST_CALM
        self._tried = 1  # the stride that was given up for a smaller one, not taken up since; or 1
        # The times of exchanges that waited for named workers, and of those since the stride last grew.
        self._waiting: deque[int] = deque(maxlen=_TIMED)
        self._present: deque[int] = deque(maxlen=_TIMED)
        self._refused, self._refusal = 0, _FIRST_REFUSAL  # steps in which nobody becomes late

    @property
    def in_time(self) -> list[int]:
        """Return the ranks that are not late. They have the state that the late ones lack."""
        return sorted(set(range(self.workers)) - self.ranks)

    def learn(self, largest: Integers) -> None:
        """Take the maximum of all workers' reports of the last step, (workers + 1,) int32."""
        opinions = largest[:-1]
        named = frozenset(
            np.flatnonzero((-opinions >= _MOSTLY) & (-opinions < _NO_OPINION)).tolist()
        )
        self._note_time(int(largest[-1]), waited=bool(named))
        again = named & self._suspects - self.ranks
        self._suspects = named
        if self._refused:
            self._refused -= 1
        elif not self._pays():
            self._refuse()
        else:
            self._adapt(named, sorted(again, key=lambda rank: (largest[rank], rank)))

    def settle(self) -> None:
        """Note that nobody is late any more."""
        self.ranks, self.stride = frozenset(), 1
        self._calm, self._tried = 0, 1
        self._waiting.clear()
        self._present.clear()

    def sends(self, chunks: int, step: int) -> slice:
        """Return the slice of `chunks` chunks whose lanes a late worker sends in a step."""
        return slice(step % self.stride, chunks, self.stride)

    def _adapt(self, named: frozenset[int], again: Sequence[int]) -> None:
        """Make workers late that were named again, and adapt the stride."""
        places = max(1, self.workers // _WORKERS_PER_LATE) - len(self.ranks)
        found = self.ranks | frozenset(again[: max(0, places)])
        if found & named:
            self._slow_down(found)
            return
        self._calm += 1
        if self.ranks and self._calm >= self._steps_at(self.stride):
            self._speed_up()
        elif self._calm >= _LONGEST_CALM:
            self._needed = _FIRST_CALM

    def _slow_down(self, found: frozenset[int]) -> None:
        rung = STRIDES.index(self.stride) + 2 if self.ranks else _FIRST
        stride = STRIDES[min(rung, len(STRIDES) - 1)]
        if self._tried > 1 and self._calm < _TOO_EARLY:
            stride = self._tried
            self._needed = min(2 * self._steps_at(stride), _LONGEST_CALM)
        if stride > self.stride:  # its times are those of a smaller stride
            self._present.clear()
        self.ranks, self.stride = found, stride
        self._calm, self._tried = 0, 1

    def _speed_up(self) -> None:
        tried = self.stride
        self.stride, self._calm = STRIDES[STRIDES.index(tried) - 1], 0
        if self.stride == 1:
            self.settle()
        self._tried = tried

    def _steps_at(self, stride: int) -> int:
        """Return after how many calm steps a stride becomes smaller."""
        return max(self._needed, _LAST_CALM) if stride == STRIDES[1] else self._needed

    def _note_time(self, microseconds: int, *, waited: bool) -> None:
        """Note the time of the last exchange, which is 0 if it has used no switch."""
        if self.ranks:
            self._present.append(microseconds)
        elif waited:
            self._waiting.append(microseconds)
        else:
            self._waiting.clear()

    def _pays(self) -> bool:
        """Return whether exchanges take less time than those that waited, or this is not known yet."""
        if len(self._present) < _TIMED or not self._waiting:
            return True
        before = _median(self._waiting)
        return not before or _median(self._present) <= _WORTH * before

    def _refuse(self) -> None:
        self.settle()
        self._refused = self._refusal
        self._refusal = min(2 * self._refusal, _LONGEST_REFUSAL)


def _median(times: Sequence[int]) -> int:
    return sorted(times)[(len(times) - 1) // 2]
