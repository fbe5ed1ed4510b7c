"""The interface of a quantizer: a float32 vector to the integers of an exchange, and back."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

from innet.host.integers import Counts, Flags, Integers, Wide
from innet.host.quantizers.packing import Packing

Floats = npt.NDArray[np.float32]


class Rounding(Protocol):
    """A way to round numbers to integers."""

    def __call__(self, scaled: Floats, first: int) -> None:
        """Round in place. `first` is the position of the first number in the vector."""


class Quantizer(Protocol):
    """A conversion of float32 to integers and back, for one worker.

    The vector lies in *rows* with as many elements as a packet has lanes. A packet carries
    `rows_per_chunk` rows. To sum, a worker takes these steps:

    1. Compute the `scales` of its own rows. The workers agree on the maxima of all scales.
    2. `quantize` with the agreed scales.
    3. `dequantize` the sum of all workers' integers.

    Dequantizing a worker's own integers gives its contribution, which error feedback needs.
    """

    rows_per_chunk: int

    def rows(self, values: Floats, lanes: int) -> Floats:
        """Return a flat vector as (rows, lanes), zero-padded to whole chunks; a view if possible."""

    def scales(self, rows: Floats) -> Integers:
        """Return words whose maximum over the workers gives each row's scale. May be empty, (0,)."""

    def quantize(
        self, rows: Floats, own: Integers, agreed: Integers, rounding: Rounding
    ) -> tuple[Integers, Flags]:
        """Return (chunks, lanes) int32 that all workers can add without overflow, and the flags.

        `rows` are not changed. `own` and `agreed` are words as from `scales`.
        """

    def dequantize(
        self, sums: Integers | Wide, counts: Counts, agreed: Integers, flags: Flags, *, mean: bool
    ) -> Floats:
        """Return the sums or means, (rows, lanes), from summed integers and their counts and flags.

        `counts` is the number of contributions in every element; it broadcasts against the sums.
        """


class Scaled(Quantizer, Protocol):
    """A quantizer that divides each row by a step and rounds it. A GPU does only this part.

    The integers are clamped to plus and minus `limit`, and put into words by `packing`.
    """

    packing: Packing
    limit: np.float32

    def scales_of(self, largest: Floats) -> Integers:
        """Return the scales of rows with these largest magnitudes, (rows,); a magnitude may be NaN."""

    def steps(self, agreed: Integers) -> Floats:
        """Return the value of one integer step in every row, (rows,); NaN where a row is not finite."""

    def flags(self, own: Integers, agreed: Integers) -> Flags:
        """Return the chunks' flags for rows that are not finite here although the agreed scale is."""
