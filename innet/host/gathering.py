"""Small vectors in one exchange: every worker receives the values of all, and sums them itself.

A sum in the switch takes two exchanges, since the workers first agree on scales. Two round trips
cost a small vector more than a few more lanes. So each worker has lanes of its own in every chunk,
and sends the smallest integer in the others'. The maximum then has the bits of all values.

Integers are added exactly. Floats are added in float64, in order of size, and the sum is rounded to
float32. Let N be the number of workers, x the exact sum, and X the sum of the magnitudes. The error
is then at most ``N X 2**-53``, plus float32's rounding of x. Every worker gets the same bits, and
the order of the ranks does not change them. A NaN or an infinity concerns its own element only.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from innet.host import agreement
from innet.host.agreement import Call
from innet.host.integers import Integers, Reduction
from innet.host.job import WorkerInfo

_ABSENT = np.iinfo(np.int32).min
_MOST_CHUNKS = 4  # with more, the packets take longer than the round trip that they save


@dataclass(frozen=True)
class Gathering:
    """The layout of one call's chunks: the call's words, then lanes for each worker in turn."""

    call: Call
    info: WorkerInfo
    dtype: np.dtype[Any]

    @property
    def fits(self) -> bool:
        """Return whether the vector is small enough."""
        return self._size <= _MOST_CHUNKS * self._each

    def contribution(self, values: npt.NDArray[Any]) -> Integers:
        """Return this worker's (chunks, lanes) int32 for a flat vector of `dtype`."""
        chunks = self._empty.copy()
        count = len(chunks)
        own = np.zeros(count * self._each, self.dtype)
        own[: len(values)] = values
        self._values(chunks)[:, self.info.rank] = own.view(np.int32).reshape(count, -1)
        return chunks

    def gathered(self, result: Reduction) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return all workers' values, and a mask of those in the result, both (workers, size).

        The mask covers the elements: with a quorum, chunks may be of different workers.
        """
        lanes = self._values(result.lanes).copy().view(self.dtype)
        values = lanes.transpose(1, 0, 2).reshape(self.info.workers, -1)[:, : self._size]
        if (result.counts == self.info.workers).all():
            return values, self._all_present
        ranks = np.arange(self.info.workers)[:, None]
        present = np.repeat(result.includes(ranks, self.info.workers), self._each, axis=1)
        return values, present[:, : self._size]

    @cached_property
    def _all_present(self) -> npt.NDArray[np.bool_]:
        """The mask of a result with all workers."""
        present = np.ones((self.info.workers, self._size), bool)
        present.setflags(write=False)
        return present

    @cached_property
    def _empty(self) -> Integers:
        """The chunks of a worker that has no values."""
        count = max(1, -(-self._size // max(1, self._each)))
        chunks = np.full((count, self.info.lanes), _ABSENT, np.int32)
        chunks[:, : agreement.WORDS] = self.call.words
        return chunks

    @cached_property
    def _size(self) -> int:
        """The number of elements of `dtype` of each worker."""
        return -(-self.call.size // 4) if self.call.dtype == "bytes" else self.call.size

    @property
    def _words(self) -> int:
        return self.dtype.itemsize // 4

    @cached_property
    def _each(self) -> int:
        """The number of elements in a chunk."""
        return (self.info.lanes - agreement.WORDS) // (self.info.workers * self._words)

    def _values(self, chunks: Integers) -> Integers:
        """Return a view of the workers' lanes, (chunks, workers, lanes of one worker)."""
        width = self._each * self._words
        used = chunks[:, agreement.WORDS : agreement.WORDS + self.info.workers * width]
        return used.reshape(len(chunks), self.info.workers, width)


@lru_cache(maxsize=64)
def small_layout(call: Call, info: WorkerInfo, dtype: np.dtype[Any]) -> Gathering:
    """Return the layout of a call. It is kept, because most calls are made again and again."""
    return Gathering(call, info, dtype)


def float_sums(
    values: npt.NDArray[np.float32], present: npt.NDArray[np.bool_], *, mean: bool
) -> npt.NDArray[np.float32]:
    """Return the sum or mean of the present float32 of each column, rounded once."""
    with np.errstate(invalid="ignore", over="ignore"):
        sums = np.sort(np.where(present, values, np.float64(0)), axis=0).sum(axis=0)
        sums = sums / present.sum(axis=0) if mean else sums
        rounded: npt.NDArray[np.float32] = sums.astype(np.float32)
    return rounded


def integer_sums(
    values: npt.NDArray[Any], present: npt.NDArray[np.bool_]
) -> npt.NDArray[np.object_]:
    """Return the sum of the present integers of each column, as Python's unlimited integers."""
    sums: npt.NDArray[np.object_] = np.where(present, values, 0).astype(object).sum(axis=0)
    return sums
