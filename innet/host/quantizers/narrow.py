"""int16 and int8: integers scaled by the largest magnitude, two or four to a lane.

This is the scalar quantization of Pipe-SGD (Li et al., NeurIPS 2018, section 3.2), in which a
maximum sets the range. Here every row of elements has its own maximum, not the whole vector, and
all workers agree on it, so that their integers can be added. Let N be the number of workers, M the
largest magnitude in a row over all workers, b the bits, and

    L = floor((2**b - 1) / (2 N)),    step = max(M / L rounded down to float32, 2**-126),
    q = round(x / step), at most L in absolute value,    mean = sum of q / contributions * step.

**Bytes per element**, without headers: b / 8, plus 4 / lanes for M. **Levels**: 2 L + 1.

**Error bound.** Every element of the mean differs from the exact one by at most

    E + (|mean| + E) * 2**-22 + 2**-149    where    E = r * step + X * 2**-24

and r = 1/2 rounding to nearest and 1 stochastically, and X is the mean of the workers' |x|. All
terms but ``r * step`` are float32's own rounding: of x / step, of the division by the
contributions, of the product.

A row in which any worker has a NaN or an infinity comes back as NaN throughout. With a quorum the
workers may have agreed on M without this worker. Its values beyond M are then clamped to M, and
error feedback keeps the rest. A flag reports its infinities and NaNs, for all rows of the packet.
"""

import numpy as np

from innet.host import fastpath, memory
from innet.host.integers import Counts, Flags, Integers, Wide
from innet.host.quantizers import scaling
from innet.host.quantizers.fixed_point import blocks
from innet.host.quantizers.interface import Floats, Rounding
from innet.host.quantizers.packing import Packing
from innet.host.quantizers.rounding import nearest
from innet.wire.layout import Flag

INFINITY = 0x7F800000
"""The bits of float32's infinity, an integer above those of every finite magnitude."""

_SMALLEST_STEP = np.float32(2.0**-126)
_TILE = (
    1 << 16
)  # elements that are worked on at a time: few enough to stay in the processor's cache


class Narrow:
    """A quantizer for narrow integers in `packing`'s sub-lanes; see :class:`interface.Quantizer`."""

    def __init__(self, packing: Packing) -> None:
        self.packing = packing
        self.limit = np.float32(packing.limit)
        self.rows_per_chunk = packing.per_lane

    def rows(self, values: Floats, lanes: int) -> Floats:
        """See :class:`interface.Quantizer`."""
        return blocks(values, self.rows_per_chunk * lanes).reshape(-1, lanes)

    def scales(self, rows: Floats) -> Integers:
        """Return the bits of every row's largest magnitude, (rows,), which sort as the numbers do."""
        if library := fastpath.compiled():
            return self.scales_of(scaling.largest(library, rows))
        return self.scales_of(np.maximum(rows.max(axis=1), -rows.min(axis=1)))

    def scales_of(self, largest: Floats) -> Integers:
        """See :class:`interface.Scaled`."""
        words: Integers = np.where(np.isfinite(largest), np.abs(largest), np.inf).view(np.int32)
        return words

    def steps(self, agreed: Integers) -> Floats:
        """See :class:`interface.Scaled`."""
        limit = self.packing.limit
        exact = np.where(agreed < INFINITY, agreed, 0).view(np.float32) / np.float64(limit)
        steps = exact.astype(np.float32)
        above = steps > exact  # then L steps may be beyond float32
        steps[above] = np.nextafter(steps[above], np.float32(0))
        steps = np.maximum(steps, _SMALLEST_STEP)
        return np.where(agreed < INFINITY, steps, np.float32(np.nan))

    def flags(self, own: Integers, agreed: Integers) -> Flags:
        """See :class:`interface.Scaled`."""
        hidden = (own == INFINITY) & (agreed < INFINITY)
        told = hidden.reshape(-1, self.rows_per_chunk).any(axis=1)
        return np.where(told, Flag.NOT_FINITE, 0).astype(np.uint16)

    def quantize(
        self, rows: Floats, own: Integers, agreed: Integers, rounding: Rounding
    ) -> tuple[Integers, Flags]:
        """See :class:`interface.Quantizer`. Rows that are not finite become zeros."""
        per, lanes, limit = self.rows_per_chunk, rows.shape[1], self.packing.limit
        every = self.steps(agreed)
        finite = (own < INFINITY) & (agreed < INFINITY)
        if rounding is nearest and (library := fastpath.compiled()):
            packed = scaling.pack(library, rows, every, finite, self.packing)
            return packed, self.flags(own, agreed)
        steps = every[:, None]
        chunks = memory.empty((len(rows) // per, lanes), np.int32)
        tile = max(1, _TILE // (per * lanes)) * per
        scaled, whole = np.empty((tile, lanes), np.float32), np.empty((tile, lanes), np.int32)
        scratch = np.empty((tile // per, lanes), np.int32)
        for start in range(0, len(rows), tile):
            part = slice(start, min(start + tile, len(rows)))
            size = part.stop - start
            some, integers = scaled[:size], whole[:size]
            with np.errstate(invalid="ignore", over="ignore"):
                np.divide(rows[part], steps[part], out=some)
            if not finite[part].all():
                some[~finite[part]] = 0
            np.clip(some, -limit, limit, out=some)
            rounding(some, start * lanes)
            np.copyto(integers, some, casting="unsafe")
            self.packing.pack(
                integers.reshape(-1, per, lanes),
                chunks[start // per : part.stop // per],
                scratch[: size // per],
            )
        return chunks, self.flags(own, agreed)

    def dequantize(
        self, sums: Integers | Wide, counts: Counts, agreed: Integers, flags: Flags, *, mean: bool
    ) -> Floats:
        """See :class:`interface.Quantizer`."""
        per = self.rows_per_chunk
        counts = np.broadcast_to(counts, (len(sums), counts.shape[1]))
        every = self.steps(agreed)
        if sums.dtype == np.int32 and counts.shape[1] == 1 and (library := fastpath.compiled()):
            own = np.ascontiguousarray(counts[:, 0], np.uint16)
            values = scaling.unpack(
                library, np.asarray(sums, np.int32), every, own, self.packing, mean=mean
            )
        else:
            values = self._unpacked(sums, counts, every[:, None], mean=mean)
        values[np.repeat(flags & Flag.NOT_FINITE != 0, per)] = np.nan
        return values

    def _unpacked(
        self, sums: Integers | Wide, counts: Counts, steps: Floats, *, mean: bool
    ) -> Floats:
        per, lanes = self.rows_per_chunk, sums.shape[1]
        values = memory.empty((len(sums) * per, lanes), np.float32)
        tile = max(1, _TILE // (per * lanes))
        whole = np.empty((tile, per, lanes), sums.dtype)
        for start in range(0, len(sums), tile):
            part = slice(start, min(start + tile, len(sums)))
            rows = slice(start * per, part.stop * per)
            integers, some = whole[: part.stop - start], values[rows]
            self.packing.unpack(sums[part], counts[part], integers)
            np.copyto(some, integers.reshape(-1, lanes), casting="same_kind")
            if mean:  # before scaling: the sum may exceed float32 although the mean does not
                by_chunk = some.reshape(-1, per, lanes)
                by_chunk /= counts[part, None].astype(np.float32)
            with np.errstate(over="ignore"):
                some *= steps[rows]
        return values
