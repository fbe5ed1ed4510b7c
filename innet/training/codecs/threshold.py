"""Strom's sparse message: one word for every element beyond the threshold.

Nikko Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing", Interspeech
2015. A word has 31 bits of index and one bit that distinguishes plus tau from minus tau:

    word = 2 * index + (x < 0)    for every x with |x| > tau;    decoded = +-tau there, 0 elsewhere.

The rest belongs in the residual, which :class:`innet.training.codecs.residual.WithResidual` keeps.

**Bytes per element**: 4 times the share of elements beyond tau, plus 4 for tau.

**Error bound**: none. ``decoded`` is off by ``||x| - tau|`` where a word was sent, and by ``|x|``
elsewhere. If a value is not finite, all decoded values are NaN.

The quantizer ``strom:TAU`` is the version for the switch. It is dense, since a slot's lanes are
fixed positions in the vector.
"""

import numpy as np

from innet.training.codecs.interface import Encoded, Floats, largest_magnitude


class Threshold:
    """See :class:`interface.Codec`. Codes are uint32, as many as there are elements beyond `tau`."""

    def __init__(self, tau: float) -> None:
        self._tau = np.float32(tau)

    def encode(self, values: Floats) -> Encoded:
        """Encode a vector of at most 2**31 elements."""
        if np.isnan(largest_magnitude(values)):
            return Encoded(np.empty(0, np.uint32), np.float32(np.nan), values.size)
        indices = np.flatnonzero(np.abs(values) > self._tau)
        words = (indices << 1 | (values[indices] < 0)).astype(np.uint32)
        return Encoded(words, self._tau, values.size)

    def decode(self, encoded: Encoded) -> Floats:
        """See :class:`interface.Codec`."""
        background = np.float32(np.nan if np.isnan(encoded.scale) else 0)
        values = np.full(encoded.elements, background, np.float32)
        negative = encoded.codes & np.uint32(1) == 1
        values[encoded.codes >> np.uint32(1)] = np.where(negative, -encoded.scale, encoded.scale)
        return values
