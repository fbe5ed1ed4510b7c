"""What a quantizer does between a float32 vector and the integers that an exchange carries."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from innet.host.integers import Counts, Flags, Integers, Wide
from innet.host.quantizers.packing import Packing

Floats = npt.NDArray[np.float32]


class Rounding(Protocol):
    """How numbers become whole."""

    def __call__(self, scaled: Floats, first: int) -> None:
        """Round in place. `first` is the place of the first number in the vector."""


class Quantizer(Protocol):
    """Float32 to integers and back, for one seat.

    The vector lies in *rows* of as many elements as a packet has lanes; `rows_per_chunk` of them, one
    or several, travel in one packet. Workers agree on words by a maximum, sum integers, and get floats:

    1. `scales` of the worker's own rows;
    2. `quantize`, with the maximum of all workers' scales;
    3. `dequantize` the integers' sum. The sum of one worker's integers alone is what that worker has
       contributed: error feedback needs it.
    """

    rows_per_chunk: int

    def rows(self, values: Floats, lanes: int) -> Floats:
        """A flat vector as (rows, lanes), padded with zeros to whole chunks; a view if none are."""

    def scales(self, rows: Floats) -> Integers:
        """Words whose maximum over the workers tells the scale of every row. May be none, (0,)."""

    def quantize(
        self, rows: Floats, own: Integers, agreed: Integers, rounding: Rounding
    ) -> tuple[Integers, Flags]:
        """(chunks, lanes) int32 and the chunks' flags; no sum of the workers' integers overflows.

        `rows` are not changed. `own` and `agreed` are words as from `scales`.
        """

    def dequantize(
        self, sums: Integers | Wide, counts: Counts, agreed: Integers, flags: Flags, *, mean: bool
    ) -> Floats:
        """The sums or the means, (rows, lanes), of sums of integers and what came with them.

        `counts` say how many contributions are in every element; they broadcast against the sums.
        """


class Scaled(Quantizer, Protocol):
    """A quantizer that divides a row by a step and rounds: all that a GPU has to do of its work.

    The integers are cut off at plus and minus `limit`, and put into words by `packing`.
    """

    packing: Packing
    limit: np.float32

    def scales_of(self, largest: Floats) -> Integers:
        """The scales of rows with these largest magnitudes, (rows,); NaN where a value is one."""

    def steps(self, agreed: Integers) -> Floats:
        """What one integer stands for in every row, (rows,); NaN where a row is not finite."""

    def flags(self, own: Integers, agreed: Integers) -> Flags:
        """The chunks' flags: what is not finite here, and is not told by the agreed scales."""
