"""Several narrow integers in one of the switch's 32-bit lanes, which it adds as a single integer.

A lane has ``32 / bits`` sub-lanes. Those below the top carry ``q + limit``, which is not negative.
The top one carries q as it is, in two's complement:

    word = q[top] * 2**(bits * top)  +  sum over j < top of (q[j] + limit) * 2**(bits * j)

Let |q| <= limit, and ``2 * workers * limit < 2**bits``.

**No carry leaves a sub-lane.** Whichever workers' words are added, a lower sub-lane holds between 0
and ``2 * workers * limit <= 2**bits - 1``. So the word's lowest ``bits * top`` bits are the lower
sub-lanes' sums side by side, and the bits above them are the top's sum.

**The word never reaches a limit of int32**, where the switch would saturate. The top's sum is
within ``workers * limit <= (2**bits - 1) // 2 = 2**(bits - 1) - 1`` of 0, so the word is at least
``-(2**(bits - 1) - 1) * 2**(bits * top) > -2**31``. And ``2 * workers * limit`` is even, so a lower
sub-lane never is all ones, and the word stays below ``2**31 - 1``.

The biases add up to `limit` for every contribution. The sum comes with the number of contributions, so
:meth:`Packing.unpack` can subtract them, also after a quorum.
"""

from dataclasses import dataclass

import numpy as np

from innet.errors import UsageError
from innet.host.integers import Counts, Integers, Wide

_WORD_BITS = 32


@dataclass(frozen=True)
class Packing:
    """A layout of integers up to `limit` in absolute value, in sub-lanes of `bits`, for `workers`."""

    bits: int
    limit: int
    workers: int

    def __post_init__(self) -> None:
        if 2 * self.workers * self.limit >= 1 << self.bits or self.limit < 1:
            raise UsageError(
                f"the sum of {self.workers} integers up to {self.limit} does not fit {self.bits} bits"
            )

    @classmethod
    def widest(cls, bits: int, workers: int) -> "Packing":
        """Return a packing with the largest `limit` for which the sum of `workers` integers fits."""
        return cls(bits, ((1 << bits) - 1) // (2 * workers), workers)

    @property
    def per_lane(self) -> int:
        """Return the number of integers that share a lane."""
        return _WORD_BITS // self.bits

    @property
    def levels(self) -> int:
        """Return the number of different integers that a worker can send."""
        return 2 * self.limit + 1

    def pack(self, integers: Integers, words: Integers, scratch: Integers) -> None:
        """Pack (chunks, per_lane, lanes) integers into (chunks, lanes) words, using `scratch`."""
        np.left_shift(integers[:, -1], self.bits * (self.per_lane - 1), out=words)
        words += sum(self.limit << self.bits * j for j in range(self.per_lane - 1))
        for j in range(self.per_lane - 1):
            np.left_shift(integers[:, j], self.bits * j, out=scratch)
            words += scratch

    def unpack(self, sums: Integers | Wide, counts: Counts, into: Integers | Wide) -> None:
        """Write sums of integers, (chunks, per_lane, lanes), `into` an array, given sums of words.

        `sums` are the sums of words, (chunks, lanes). `counts` is the number of contributions in each
        word, and broadcasts against the words.
        """
        np.right_shift(sums, self.bits * (self.per_lane - 1), out=into[:, -1])
        bias = self.limit * counts.astype(np.int32)
        for j in range(self.per_lane - 1):
            lower = into[:, j]
            np.right_shift(sums, self.bits * j, out=lower)
            lower &= (1 << self.bits) - 1
            np.subtract(lower, bias, out=lower)
