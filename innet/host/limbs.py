"""Sums of more than 32 bits, which the switch adds in parts.

The switch adds 32-bit integers and saturates. A worker therefore flags a chunk if one of its lanes
is so large that the sum might overflow if the lanes of all workers were as large. The result has the
flag if any contribution had it. A flagged sum is discarded and made again in **limbs**. Every value is
cut into pieces of so few bits that no sum of them overflows. The pieces of one value travel in the same
packet, so that all of them come from the same workers. Their sums are put together again with
carries.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from innet.host.integers import Flags, Integers, Wide
from innet.wire.layout import Flag


@dataclass(frozen=True)
class Limbs:
    """A way to cut values: into `count` limbs of `bits` bits, all unsigned but the highest."""

    count: int
    bits: int

    def split(self, values: Wide, lanes: int) -> Integers:
        """Cut an int64 vector into (chunks, lanes) int32.

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

        Returns the first `size` values, int64, and a mask of those that are wrong because int64 is
        too small.
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
"""Limbs for int32: the sums of up to 32,768 workers' halves fit int32."""

THIRDS = Limbs(3, 22)
"""Limbs for int64: the sums of up to 512 workers' thirds fit int32."""


def overflow_flags(chunks: Integers, workers: int) -> Flags:
    """Return (n,) flags: OVERFLOW for rows of (n, lanes) whose sum over `workers` might overflow."""
    bound = -(-(2**31) // workers)
    large = (chunks.max(axis=1, initial=0) >= bound) | (chunks.min(axis=1, initial=0) <= -bound)
    return np.where(large, Flag.OVERFLOW, 0).astype(np.uint16)
