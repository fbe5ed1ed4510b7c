"""Exact sums of integers over the workers.

A sum of a chunk that may overflow 32 bits is made again, in limbs.
"""

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from innet.errors import SumOverflow
from innet.host.exchanges import Exchanges
from innet.host.integers import Counts, Flags, Integers, Reduction, Wide
from innet.host.limbs import HALVES, Limbs
from innet.host.portions import Portions
from innet.host.quantizers.scaling import Scaling
from innet.wire.layout import Operation


class ChunkSums(NamedTuple):
    """The exact sums of the chunks in `rows`, (rows, lanes), and the raw result of their exchange.

    `counts` are the numbers of contributions; they broadcast against the sums.
    """

    sums: Integers | Wide
    counts: Counts
    rows: slice
    raw: Reduction


class Sums:
    """The exact sums of chunks of `lanes` int32 over the workers."""

    def __init__(self, exchanges: Exchanges, lanes: int) -> None:
        self._exchanges = exchanges
        self._lanes = lanes

    def of_chunks(
        self, chunks: Integers, flags: Flags, portions: Portions | None = None
    ) -> ChunkSums:
        """Return the exact sums of (n, lanes) int32. `flags`, (n,), go with the chunks.

        With `portions`, the sums are those of the chunks that this worker receives. They are the sums of
        all chunks, in int64, if one had to be made again.
        """
        done = self._exchange(chunks, flags, portions)
        overflowed = done.overflowed
        if not overflowed.size:
            return ChunkSums(done.lanes, done.counts[done.rows, None], done.rows, done)
        sums = np.zeros((len(flags), self._lanes), np.int64)
        sums[done.rows] = done.lanes
        counts = np.broadcast_to(done.counts[:, None], sums.shape).copy()
        sums[overflowed], counts[overflowed] = self.again(chunks, overflowed)
        return ChunkSums(sums, counts, slice(0, len(sums)), done)

    def on_the_way(self, scaling: Scaling, flags: Flags, portions: Portions | None) -> Reduction:
        """Sum chunks whose results a scaling makes. Return the raw result, which may lack the lanes.

        Chunks that have overflowed have to be summed :meth:`again`.
        """
        done = self._exchange(scaling, flags, portions)
        rows = np.arange(done.rows.start, done.rows.stop)
        scaling.take(rows, done.lanes, done.counts[rows])
        return done

    def again(
        self, chunks: Integers | Scaling, which: npt.NDArray[np.int64]
    ) -> tuple[Wide, Counts]:
        """Return the exact sums of some chunks, (k, lanes), and their counts, of the same shape."""
        sums, counts = self.in_limbs(chunks[which].reshape(-1), HALVES)
        return sums.reshape(-1, self._lanes), counts.reshape(-1, self._lanes)

    def in_limbs(self, values: npt.NDArray[Any], limbs: Limbs) -> tuple[Wide, Counts]:
        """Return the exact sums of a flat vector, and the number of contributions in each."""
        rows = limbs.split(values.astype(np.int64), self._lanes)
        none = np.zeros(len(rows), np.uint16)
        done = self._exchanges.all_reduce(rows, none, Operation.SUM)
        sums, lost = limbs.join(done.lanes, values.size)
        if lost.any():
            raise SumOverflow(
                f"{lost.sum()} sums do not fit int64, the first at element {lost.argmax()}: "
                "sum smaller numbers"
            )
        return sums, np.repeat(done.counts, self._lanes // limbs.count)[: values.size]

    def _exchange(
        self, chunks: Integers | Scaling, flags: Flags, portions: Portions | None
    ) -> Reduction:
        if portions is None or not len(flags):
            return self._exchanges.all_reduce(chunks, flags, Operation.SUM)
        return self._exchanges.sum_portions(chunks, flags, portions)


def checked(sums: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the sums. Raises SumOverflow if one does not fit `dtype`."""
    info = np.iinfo(dtype)
    beyond = (sums < info.min) | (sums > info.max)
    if beyond.any():
        at = beyond.argmax()
        remedy = "convert the tensors to int64" if dtype == np.int32 else "sum smaller numbers"
        raise SumOverflow(
            f"{beyond.sum()} sums do not fit {dtype}, the first {sums[at]} at element {at}: {remedy}"
        )
    return sums
