"""Several narrow integers in one of the switch's 32-bit lanes, which it adds as if they were one.

A lane has ``32 / bits`` sub-lanes. Those below the top carry ``q + limit``, which is not negative; the
top one carries q as it is, in two's complement:

    word = q[top] * 2**(bits * top)  +  sum over j < top of (q[j] + limit) * 2**(bits * j)

With |q| <= limit, and ``2 * workers * limit < 2**bits``, **no carry leaves a sub-lane**: whatever some
of the workers add up, a lower sub-lane holds between 0 and ``2 * workers * limit <= 2**bits - 1``, so
that the word's lowest ``bits * top`` bits are the lower sub-lanes' sums side by side, and what is above
them is the top's sum. **The word never reaches a limit of int32**, where the switch would stop: the top's
sum is within ``workers * limit <= (2**bits - 1) // 2 = 2**(bits - 1) - 1`` of 0, so the word is at least
``-(2**(bits - 1) - 1) * 2**(bits * top) > -2**31``. And ``2 * workers * limit`` is even, so a lower
sub-lane never is all ones, and the word stays below ``2**31 - 1``.

The biases add up to `limit` for every contribution. How many there are comes with the sum, whether all
workers are in it or a quorum.
"""

from dataclasses import dataclass

import numpy as np

from innet.errors import UsageError
from innet.host.integers import Counts, Integers, Wide

_WORD_BITS = 32


@dataclass(frozen=True)
class Packing:
    """Integers of absolute value up to `limit`, in sub-lanes of so many `bits`, for `workers`."""

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
        """With the largest integers of which so many workers' sum fits."""
        return cls(bits, ((1 << bits) - 1) // (2 * workers), workers)

    @property
    def per_lane(self) -> int:
        """How many integers share a lane."""
        return _WORD_BITS // self.bits

    @property
    def levels(self) -> int:
        """How many different integers a worker has."""
        return 2 * self.limit + 1

    def pack(self, integers: Integers, words: Integers, scratch: Integers) -> None:
        """(chunks, per_lane, lanes) integers into (chunks, lanes) words; `scratch` is like those."""
        np.left_shift(integers[:, -1], self.bits * (self.per_lane - 1), out=words)
        words += sum(self.limit << self.bits * j for j in range(self.per_lane - 1))
        for j in range(self.per_lane - 1):
            np.left_shift(integers[:, j], self.bits * j, out=scratch)
            words += scratch

    def unpack(self, sums: Integers | Wide, counts: Counts, into: Integers | Wide) -> None:
        """The integers' sums, (chunks, per_lane, lanes), from the words' sums, (chunks, lanes).

        `counts` broadcast against the words and say how many contributions are in each.
        """
        np.right_shift(sums, self.bits * (self.per_lane - 1), out=into[:, -1])
        bias = self.limit * counts.astype(np.int32)
        for j in range(self.per_lane - 1):
            lower = into[:, j]
            np.right_shift(sums, self.bits * j, out=lower)
            lower &= (1 << self.bits) - 1
            np.subtract(lower, bias, out=lower)
