"""Integers through the switch: arrays of chunks, and the result of an exchange."""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from innet.host import memory
from innet.wire.layout import MOST_CONTRIBUTORS, Flag

Integers = npt.NDArray[np.int32]
Wide = npt.NDArray[np.int64]
Flags = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.uint16]
Bitmaps = npt.NDArray[np.uint64]
Bits = npt.NDArray[np.uint8]
Bytes = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Reduction:
    """The result of an exchange of n chunks.

    `lanes` is (n, lanes) int32, or has only the rows from chunk `first` on that this worker wants.
    The other arrays have an item for every chunk, (n,): `flags`, or-ed over the contributions;
    `counts`, the number of workers in its result; `members`, the bitmap of contributors at the switch
    that made the result. `bits`, (workers,), has the bit of `members` that stands for each rank, or
    MOST_CONTRIBUTORS if none does. It is None if every rank is its own bit.

    A worker keeps the result of its last exchange for workers that have lost it. The arrays of a
    finished exchange are therefore read-only, and nobody outside of the agent gets a view of them.
    """

    lanes: Integers
    flags: Flags
    counts: Counts
    members: Bitmaps
    first: int = 0
    bits: Bits | None = None

    @classmethod
    def empty(cls, chunks: int, lanes: int) -> "Reduction":
        """Return uninitialized arrays for a result to come."""
        return cls.into(memory.empty((chunks, lanes), np.int32), chunks)

    @classmethod
    def into(
        cls, rows: Integers, chunks: int, first: int = 0, bits: Bits | None = None
    ) -> "Reduction":
        """Return arrays for a result to come, with the lanes from chunk `first` on in `rows`."""
        return cls(
            rows,
            np.zeros(chunks, np.uint16),
            np.zeros(chunks, np.uint16),
            np.zeros(chunks, np.uint64),
            first,
            bits,
        )

    @property
    def rows(self) -> slice:
        """Return the chunks whose lanes are there."""
        return slice(self.first, self.first + len(self.lanes))

    @property
    def overflowed(self) -> npt.NDArray[np.int64]:
        """Return the chunks whose sums may have overflowed."""
        return np.flatnonzero(self.flags & Flag.OVERFLOW)

    def includes(self, ranks: int | npt.NDArray[np.int64], workers: int) -> npt.NDArray[np.bool_]:
        """Return whether the chunks include the contributions of `ranks`, which broadcast against them.

        A chunk with the contributions of all `workers` of the job includes every rank.
        """
        bits = np.asarray(ranks if self.bits is None else self.bits[ranks])
        within = np.minimum(bits, MOST_CONTRIBUTORS - 1).astype(np.uint64)
        is_member = (bits < MOST_CONTRIBUTORS) & (self.members >> within & 1 == 1)
        found: npt.NDArray[np.bool_] = (self.counts == workers) | is_member
        return found

    def freeze(self) -> None:
        """Make the arrays read-only."""
        for array in (self.lanes, self.flags, self.counts, self.members):
            array.setflags(write=False)
