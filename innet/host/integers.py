"""Integers through the switch: arrays of chunks, and the result of an exchange."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from innet.host import memory
from innet.wire.layout import MOST_CONTRIBUTORS

Integers = npt.NDArray[np.int32]
Wide = npt.NDArray[np.int64]
Flags = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.uint16]
Bitmaps = npt.NDArray[np.uint64]


@dataclass(frozen=True)
class Reduction:
    """The result of an exchange of n chunks.

    `lanes` is (n, lanes) int32, or has only the rows from chunk `first` on that this worker wants.
    The other arrays have an item for every chunk, (n,): `flags`, or-ed over the contributions;
    `counts`, the number of workers in it; `members`, the bitmap of their ranks, which only
    :meth:`includes` reads: in a job of several switches it says nothing.

    A worker keeps the result of its last exchange for workers that have lost it. The arrays of a
    finished exchange are therefore read-only, and nobody outside of the agent gets a view of them.
    """

    lanes: Integers
    flags: Flags
    counts: Counts
    members: Bitmaps
    first: int = 0

    @classmethod
    def empty(cls, chunks: int, lanes: int) -> "Reduction":
        """Return uninitialized arrays for a result to come."""
        return cls.into(memory.empty((chunks, lanes), np.int32), chunks)

    @classmethod
    def into(cls, rows: Integers, chunks: int, first: int = 0) -> "Reduction":
        """Return arrays for a result to come, with the lanes from chunk `first` on in `rows`."""
        return cls(
            rows,
            np.zeros(chunks, np.uint16),
            np.zeros(chunks, np.uint16),
            np.zeros(chunks, np.uint64),
            first,
        )

    @property
    def rows(self) -> slice:
        """Return the chunks whose lanes are there."""
        return slice(self.first, self.first + len(self.lanes))

    def includes(self, ranks: int | npt.NDArray[np.int64], workers: int) -> npt.NDArray[np.bool_]:
        """Return whether each chunk includes the contribution of a rank, or of a rank of its own.

        `ranks` broadcasts against the chunks. If all `workers` of the job are in, so is every rank.
        Only a job of one switch sums without some, and there every rank has a bit.
        """
        bits = np.minimum(ranks, MOST_CONTRIBUTORS - 1).astype(np.uint64)
        found: npt.NDArray[np.bool_] = (self.counts == workers) | (self.members >> bits & 1 == 1)
        return found

    def freeze(self) -> None:
        """Make the arrays read-only."""
        for array in (self.lanes, self.flags, self.counts, self.members):
            array.setflags(write=False)
