"""Integers on their way through the switch: what an exchange gives, and sums that need more bits.

The switch adds with 32 bits and saturates. A worker therefore flags a chunk with a lane so large that,
if all workers' were, the sum might overflow; the result carries the flag if any contribution did. A
flagged sum is not used. It is made again in **limbs**: every value is cut into pieces of so few bits
that no sum of them overflows, the pieces of one value travel in the same packet, so that the same
workers are in all of them, and what comes back is put together with carries.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from innet.host import memory
from innet.wire.layout import Flag

Integers = npt.NDArray[np.int32]
Wide = npt.NDArray[np.int64]
Flags = npt.NDArray[np.uint16]
Counts = npt.NDArray[np.uint8]
Bitmaps = npt.NDArray[np.uint32]


@dataclass(frozen=True)
class Reduction:
    """The result of an exchange of n chunks.

    `lanes`: (n, lanes) int32. For every chunk, (n,): `flags`, or-ed over the contributions; `counts`,
    how many contributions are in it; `members`, the bitmap of the workers that made them.
    """

    lanes: Integers
    flags: Flags
    counts: Counts
    members: Bitmaps

    @classmethod
    def empty(cls, chunks: int, lanes: int) -> "Reduction":
        """Room for a result that is still to come."""
        return cls(
            memory.empty((chunks, lanes), np.int32),
            np.zeros(chunks, np.uint16),
            np.zeros(chunks, np.uint8),
            np.zeros(chunks, np.uint32),
        )


@dataclass(frozen=True)
class Limbs:
    """How values are cut: into `count` limbs of `bits` bits, all unsigned but the highest."""

    count: int
    bits: int

    def split(self, values: Wide, lanes: int) -> Integers:
        """Cut a vector of int64, as (chunks, lanes) int32 that no sum of 32 workers' overflows.

        Raises OverflowError if a value has more bits than all limbs together.
        """
        each = lanes // self.count  # values in a chunk
        chunks = np.zeros((-(-values.size // each), lanes), np.int32)
        padded = np.zeros((len(chunks), each), np.int64)
        padded.reshape(-1)[: values.size] = values
        for limb in range(self.count):
            piece = padded >> self.bits * limb
            if limb < self.count - 1:
                piece &= (1 << self.bits) - 1
            chunks[:, limb * each : (limb + 1) * each] = piece
        return chunks

    def join(self, sums: Integers, size: int) -> tuple[Wide, npt.NDArray[np.bool_]]:
        """Put sums of :meth:`split`'s limbs together again.

        Returns the first `size` values, int64, and where they are not right because int64 is too
        small.
        """
        each = sums.shape[1] // self.count
        total = np.zeros((len(sums), each), np.int64)
        carry = np.zeros_like(total)
        for limb in range(self.count - 1):
            piece = sums[:, limb * each : (limb + 1) * each] + carry
            carry = piece >> self.bits
            total |= (piece & ((1 << self.bits) - 1)) << self.bits * limb
        below = self.bits * (self.count - 1)
        highest = sums[:, (self.count - 1) * each : self.count * each] + carry
        lost = (highest >= 1 << 63 - below) | (highest < -(1 << 63 - below))
        total |= highest << below
        return total.reshape(-1)[:size], lost.reshape(-1)[:size]


HALVES = Limbs(2, 16)
"""For int32: sums of 32 workers' halves have 21 bits."""

THIRDS = Limbs(3, 22)
"""For int64: sums of 32 workers' thirds have 27 bits."""


def overflow_flags(chunks: Integers, workers: int) -> Flags:
    """Flag.OVERFLOW for every row of (n, lanes) that might make a sum of `workers` rows overflow."""
    bound = -(-(2**31) // workers)
    large = (chunks.max(axis=1, initial=0) >= bound) | (chunks.min(axis=1, initial=0) <= -bound)
    return np.where(large, Flag.OVERFLOW, 0).astype(np.uint16)
