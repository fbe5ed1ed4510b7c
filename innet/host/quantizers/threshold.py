"""Strom's threshold: a worker sends +tau, -tau or nothing of each element, and keeps the rest.

Nikko Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing", Interspeech
2015. With the residual r of the steps before, and the gradient g,

    r <- r + g;    if r > tau:  send +tau,  r <- r - tau;    if r < -tau:  send -tau,  r <- r + tau.

Strom's workers send a sparse list (:mod:`innet.training.codecs.threshold`). Here a worker contributes
-1, 0 or 1 for every element. The switch adds them exactly, and tau times that is the sum. All
workers have the same tau, so they need not agree on a scale. :mod:`innet.host.quantizers.residuals`
keeps the residual, and :mod:`innet.host.quantizers.spec` makes sure that it is used.

**Bytes per element**, without headers: 1/2 up to 7 workers, 1 up to 127, 2 with more. **Levels**: 3.

**Error bound.** None for one step: an element may be any number, and at most tau of it is sent.
Over all steps, a worker's sent values plus its residual equal its gradients, except for float32's
rounding of r + g and of r - tau. If no |g| is larger than tau, then no |r| is larger than tau after
any step.

A flag reports infinities and NaNs, and makes all elements of its packet NaN.
"""

import numpy as np

from innet.host.integers import Counts, Flags, Integers, Wide
from innet.host.quantizers.fixed_point import blocks
from innet.host.quantizers.interface import Floats, Rounding
from innet.host.quantizers.packing import Packing
from innet.wire.layout import Flag

_BITS = (4, 8, 16)  # of a field; the narrowest that holds the sum is used


class Threshold:
    """Strom's quantizer with a positive threshold `tau`; see :class:`interface.Quantizer`."""

    def __init__(self, tau: float, workers: int) -> None:
        self._tau = np.float32(tau)
        bits = next((each for each in _BITS if 2 * workers < 1 << each), _BITS[-1])
        self._packing = Packing(bits, 1, workers)
        self.rows_per_chunk = self._packing.per_lane

    def rows(self, values: Floats, lanes: int) -> Floats:
        """See :class:`interface.Quantizer`."""
        return blocks(values, self.rows_per_chunk * lanes).reshape(-1, lanes)

    def scales(self, rows: Floats) -> Integers:  # noqa: ARG002 - a Quantizer's
        """Return no scales, since tau is known."""
        return np.empty(0, np.int32)

    def quantize(
        self, rows: Floats, own: Integers, agreed: Integers, rounding: Rounding
    ) -> tuple[Integers, Flags]:
        """See :class:`interface.Quantizer`. The integers are -1, 0 and 1, without rounding."""
        del own, agreed, rounding
        by_chunk = rows.reshape(-1, self.rows_per_chunk, rows.shape[1])
        signs = (by_chunk > self._tau).astype(np.int32)
        signs -= by_chunk < -self._tau
        chunks = np.empty((len(signs), rows.shape[1]), np.int32)
        self._packing.pack(signs, chunks, np.empty_like(chunks))
        lost = ~np.isfinite(by_chunk).all(axis=(1, 2))
        return chunks, np.where(lost, Flag.NOT_FINITE, 0).astype(np.uint16)

    def dequantize(
        self, sums: Integers | Wide, counts: Counts, agreed: Integers, flags: Flags, *, mean: bool
    ) -> Floats:
        """See :class:`interface.Quantizer`."""
        del agreed
        per, lanes = self.rows_per_chunk, sums.shape[1]
        signs = np.empty((len(sums), per, lanes), sums.dtype)
        self._packing.unpack(sums, counts, signs)
        values = signs.astype(np.float32)
        if mean:
            values /= counts.astype(np.float32)[:, None]
        with np.errstate(over="ignore"):
            values *= self._tau
        values[flags & Flag.NOT_FINITE != 0] = np.nan
        return values.reshape(-1, lanes)
