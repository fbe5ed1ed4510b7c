"""Blocks of a vector, and bitmaps that tell which of them are not empty.

Fei, Ho, Sahu, Canini and Sapio, "Efficient Sparse Collective Communication and its application to
Accelerate Distributed Deep Learning" (OmniReduce), SIGCOMM 2021: cut a vector into blocks, and send
those that are not all zeros. In a switch that waits for every worker's packet, all workers send the
same blocks: the *union* of those that any of them has. :mod:`innet.host.unions` finds it.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from innet.host import memory
from innet.host.integers import Integers

Mask = npt.NDArray[np.bool_]
Positions = npt.NDArray[np.int64]
Values = npt.NDArray[Any]


@dataclass(frozen=True)
class Blocks:
    """A way to cut a flat vector of `size` elements into blocks of `width`. The last may be shorter."""

    size: int
    width: int

    @property
    def count(self) -> int:
        """Return the number of blocks."""
        return -(-self.size // self.width)

    def occupied(self, values: Values) -> Mask:
        """Return whether each block has an element that is not zero, (count,). A NaN is not zero."""
        return self._of_each(values, lambda rows: rows.any(axis=1)).astype(bool)

    def largest(self, values: Values) -> Values:
        """Return the largest magnitude in each block, (count,); NaN if the block has one."""
        return self._of_each(values, lambda rows: np.maximum(rows.max(axis=1), -rows.min(axis=1)))

    def packed(self, values: Values, chosen: Positions) -> Values:
        """Return the chosen blocks one after the other, (chosen * width,). Zeros fill up a short one."""
        made = memory.empty((len(chosen), self.width), values.dtype.type)
        whole = self._whole(chosen)
        np.take(self._rows(values), chosen[:whole], axis=0, out=made[:whole])
        if whole < len(chosen):
            made[-1] = 0
            made[-1, : self.size % self.width] = values[self.size - self.size % self.width :]
        return made.reshape(-1)

    def spread(self, packed: Values, chosen: Positions, rest: Any = 0) -> Values:
        """Return the vector that has these packed blocks in their places, and `rest` elsewhere."""
        made = memory.empty((self.size,), packed.dtype.type)
        made.fill(rest)
        rows, whole = packed.reshape(len(chosen), self.width), self._whole(chosen)
        self._rows(made)[chosen[:whole]] = rows[:whole]
        if whole < len(chosen):
            made[self.size - self.size % self.width :] = rows[-1, : self.size % self.width]
        return made

    def _rows(self, values: Values) -> Values:
        """Return a view of the blocks that are not short."""
        whole = self.size // self.width
        return values[: whole * self.width].reshape(whole, self.width)

    def _whole(self, chosen: Positions) -> int:
        """Return how many of the chosen blocks, in ascending order, are not short."""
        return int(np.searchsorted(chosen, self.size // self.width))

    def _of_each(self, values: Values, finding: Any) -> Values:
        found = [finding(self._rows(values))]
        if self.size % self.width:
            found.append(finding(values[self.size - self.size % self.width :].reshape(1, -1)))
        return np.concatenate(found)


@dataclass(frozen=True)
class Bitmap:
    """A layout of bits in int32 words that `workers` workers can add.

    Every bit has a field that is wide enough to count the workers. So a sum keeps the fields apart,
    and a field is zero only if all of its bits were. Words stay below 2**31 / workers.

    The switch has no bitwise or. A maximum would take a whole lane, 32 bits, for each bit. If each
    worker had lanes of its own, each bit would take as many bits as there are workers. A field takes
    only the logarithm of that number: 2 bits for 2 or 3 workers, 3 for 4 to 7, and 6 for 32.
    """

    workers: int

    @property
    def per_word(self) -> int:
        """Return the number of fields in a word. The sign stays free."""
        return 31 // self._bits

    def words(self, bits: Mask) -> Integers:
        """Return the words of a worker's bits: (ceil(bits / per_word),) int32."""
        count = -(-bits.size // self.per_word)
        padded = np.zeros((self.per_word, count), np.int32)
        padded.reshape(-1)[: bits.size] = bits
        padded <<= self._shifts
        words: Integers = np.bitwise_or.reduce(padded, axis=0)
        return words

    def any(self, sums: Integers, size: int) -> Mask:
        """Return the first `size` bits, or-ed over the workers, from the sums of their words."""
        fields = sums >> self._shifts & (1 << self._bits) - 1
        present: Mask = fields.reshape(-1)[:size] != 0
        return present

    @property
    def _bits(self) -> int:
        return self.workers.bit_length()

    @property
    def _shifts(self) -> Integers:
        return np.arange(self.per_word, dtype=np.int32)[:, None] * np.int32(self._bits)
