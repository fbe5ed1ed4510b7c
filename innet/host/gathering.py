"""Small vectors in one exchange: every worker receives the values of all, and sums them itself.

A sum in the switch takes two exchanges, since the workers first agree on scales. Two round trips
cost a small vector more than a few more lanes. So each worker has lanes of its own in every chunk,
and sends the smallest integer in all other lanes. The maximum then has the bits of all workers' values.

Integers are added exactly. The sum of floats is the exact one, rounded to float64 and then to float32.
So every worker gets the same bits, and the order of the ranks does not change them. A NaN or an infinity
concerns its own element only.
"""

import math
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from innet.host import agreement
from innet.host.agreement import ALL_REDUCE, EXACT, Call, Collective
from innet.host.integers import Integers, Reduction
from innet.host.job import WorkerInfo
from innet.host.quantizers.spec import QuantizerSpec
from innet.host.tensors import ReduceOp

_ABSENT = np.iinfo(np.int32).min
_WORD = np.dtype(np.int32)
_MOST_CHUNKS = 4  # with more, the packets take longer than the round trip that they save


@dataclass(frozen=True)
class Gathering:
    """The layout of one call's chunks: the call's words, then lanes for each worker in turn."""

    call: Call
    info: WorkerInfo
    dtype: np.dtype[Any]

    @cached_property
    def fits(self) -> bool:
        """True if the vector is small enough and its quantizer only rounds."""
        return self._size <= _MOST_CHUNKS * self._each and self.call.spec.rounds

    def words(self, values: npt.NDArray[Any]) -> Integers:
        """Return a flat vector of `dtype` as int32."""
        return np.ascontiguousarray(values, self.dtype).view(np.int32)

    def contribution(self, words: Integers) -> Integers:
        """Return this worker's (chunks, lanes) int32 for its `words`."""
        chunks = self._empty.copy()
        chunks.reshape(-1)[self._places[self.info.rank]] = words
        return chunks

    def complete(self, words: Integers) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return all workers' values, given their words, and a mask that includes all of them."""
        return words.view(self.dtype), self._all_present

    def gathered(self, result: Reduction) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return all workers' values, and a mask of those in the result, both (workers, size).

        The mask has a bit for each element: with a quorum, each chunk may have come from other workers.
        """
        values = result.lanes.reshape(-1)[self._places].view(self.dtype)
        if result.counts.tolist() == self._complete:
            return values, self._all_present
        ranks = np.arange(self.info.workers)[:, None]
        present = np.repeat(result.includes(ranks, self.info.workers), self._each, axis=1)
        return values, present[:, : self._size]

    @cached_property
    def _complete(self) -> Sequence[int]:
        """The counts of a result with all workers, for each chunk."""
        return [self.info.workers] * len(self._empty)

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
        """The number of elements of one worker in a chunk."""
        return (self.info.lanes - agreement.WORDS) // (self.info.workers * self._words)

    @cached_property
    def _places(self) -> npt.NDArray[np.int64]:
        """The lanes of each worker's values among those of all chunks, (workers, lanes of one)."""
        width = self._each * self._words
        chunks, lanes = np.divmod(np.arange(self._size * self._words), max(1, width))
        first = np.arange(self.info.workers)[:, None] * width + agreement.WORDS
        places: npt.NDArray[np.int64] = first + chunks * self.info.lanes + lanes
        return places


@lru_cache(maxsize=64)
def layout(
    info: WorkerInfo,
    size: int,
    dtype: np.dtype[Any] | None = None,
    op: ReduceOp = "sum",
    spec: QuantizerSpec = EXACT,
    collective: Collective = ALL_REDUCE,
) -> Gathering:
    """Return the layout of a call, which includes the call. `dtype` is None if it moves `size` bytes.

    Layouts are cached, because most calls are made again and again.
    """
    call = Call(size, "bytes" if dtype is None else dtype.name, op, spec, collective)
    return Gathering(call, info, _WORD if dtype is None else dtype)


def float_sums(
    values: npt.NDArray[np.float32], present: npt.NDArray[np.bool_], *, mean: bool
) -> npt.NDArray[np.float32]:
    """Return the sum or mean of the present float32 of each column, rounded to float64 and float32."""
    columns: list[list[float]] = values.T.tolist()
    if not present.all():
        there = np.broadcast_to(present, values.shape).T.tolist()
        columns = [list(compress(*each)) for each in zip(columns, there, strict=True)]
    sums = [_exact_sum(column) for column in columns]
    if mean:
        sums = [each / len(column) for each, column in zip(sums, columns, strict=True)]
    return np.array(array("f", sums))  # the array rounds, and makes what is too large infinite


def _exact_sum(column: list[float]) -> float:
    try:
        return math.fsum(column)
    except ValueError:  # infinities of both signs
        return math.nan


def integer_sums(
    values: npt.NDArray[Any], present: npt.NDArray[np.bool_]
) -> npt.NDArray[np.object_]:
    """Return the sum of the present integers of each column, as Python's unlimited integers."""
    sums: npt.NDArray[np.object_] = np.where(present, values, 0).astype(object).sum(axis=0)
    return sums
