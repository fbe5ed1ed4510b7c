"""int32: multiples of a power of two, one per lane.

:mod:`innet.host.quantizers.fixed_point` has the equations and the error bound.

**Bytes per element**, without headers: 4, plus 4 / lanes for a row's exponent.
"""

import numpy as np

from innet.host.integers import Counts, Flags, Integers, Wide
from innet.host.quantizers import fixed_point
from innet.host.quantizers.interface import Floats, Rounding
from innet.host.quantizers.packing import Packing
from innet.host.quantizers.rounding import nearest
from innet.host.quantizers.scaling import Scaling


class BlockScale:
    """The default quantizer; see :class:`interface.Quantizer`."""

    rows_per_chunk = 1

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self.packing = Packing(32, (2**31 - 1) // workers, workers)
        self.limit = fixed_point.largest_integer(workers)

    def rows(self, values: Floats, lanes: int) -> Floats:
        """See :class:`interface.Quantizer`."""
        return fixed_point.blocks(values, self.rows_per_chunk * lanes).reshape(-1, lanes)

    def scales(self, rows: Floats) -> Integers:
        """Return the exponents of the rows, (rows,)."""
        return fixed_point.block_exponents(rows)

    def scales_of(self, largest: Floats) -> Integers:
        """See :class:`interface.Scaled`."""
        return fixed_point.exponents_of(largest)

    def steps(self, agreed: Integers) -> Floats:
        """See :class:`interface.Scaled`."""
        finite = agreed < fixed_point.NOT_FINITE
        exponents = np.where(finite, fixed_point.step_exponents(agreed, self._workers), 0)
        return np.where(finite, np.ldexp(np.float32(1), exponents), np.float32(np.nan))

    def flags(self, own: Integers, agreed: Integers) -> Flags:
        """See :class:`interface.Scaled`."""
        return fixed_point.flags(own, agreed)

    def quantize(
        self, rows: Floats, own: Integers, agreed: Integers, rounding: Rounding
    ) -> tuple[Integers, Flags]:
        """See :class:`interface.Quantizer`."""
        integers = fixed_point.quantize(rows, own, agreed, self._workers, rounding)
        return integers, self.flags(own, agreed)

    def on_the_way(
        self,
        rows: Floats,
        own: Integers,
        agreed: Integers,
        rounding: Rounding,
        *,
        mean: bool,
        in_place: bool,
        wanted: range | None = None,
    ) -> Scaling | None:
        """Return a Scaling that converts rows during the exchange, or None if that is impossible.

        With `in_place` it may overwrite the rows. Otherwise it has results for the `wanted` rows only.
        """
        if rounding is not nearest:
            return None
        return fixed_point.on_the_way(
            rows, own, agreed, self._workers, mean=mean, in_place=in_place, wanted=wanted
        )

    def results(self, scaling: Scaling, agreed: Integers, flags: Flags) -> Floats:
        """Return the floats of :meth:`dequantize`, from an exchange that made them row by row.

        `agreed` and `flags` are those of the wanted rows.
        """
        values, finite = scaling.results, fixed_point.is_finite(agreed, flags)
        if not finite.all():
            values[~finite] = np.nan
        return values

    def dequantize(
        self, sums: Integers | Wide, counts: Counts, agreed: Integers, flags: Flags, *, mean: bool
    ) -> Floats:
        """See :class:`interface.Quantizer`."""
        return fixed_point.dequantize(sums, agreed, self._workers, counts if mean else None, flags)
