"""Strom's sparse message: one word for every element beyond the threshold.

Nikko Strom, "Scalable Distributed DNN Training Using Commodity GPU Cloud Computing", Interspeech 2015:
a word has 31 bits of index and one bit that tells plus tau from minus tau,

    word = 2 * index + (x < 0)    for every x with |x| > tau;    decoded = +-tau there, 0 elsewhere.

What is not sent belongs into the residual: :class:`innet.host.codecs.residual.WithResidual` keeps it.

**Bytes per element**: 4 times the share of elements beyond tau, and 4 for tau. **Error bound**: none;
``decoded`` is off by ``|x|``, or by ``||x| - tau|`` where a word was sent. If a value is not finite all
decoded ones are NaN.

For the switch there is the quantizer ``strom:TAU``, dense, since slots are places in the vector.
"""

import numpy as np

from innet.host.codecs.interface import Encoded, Floats, largest_magnitude


class Threshold:
    """See :class:`interface.Codec`. Codes are uint32, as many as there are elements beyond `tau`."""

    def __init__(self, tau: float) -> None:
        self._tau = np.float32(tau)

    def encode(self, values: Floats) -> Encoded:
        """At most 2**31 elements."""
        if np.isnan(largest_magnitude(values)):
            return Encoded(np.empty(0, np.uint32), np.float32(np.nan), values.size)
        places = np.flatnonzero(np.abs(values) > self._tau)
        words = (places << 1 | (values[places] < 0)).astype(np.uint32)
        return Encoded(words, self._tau, values.size)

    def decode(self, encoded: Encoded) -> Floats:
        """See :class:`interface.Codec`."""
        background = np.float32(np.nan if np.isnan(encoded.scale) else 0)
        values = np.full(encoded.elements, background, np.float32)
        negative = encoded.codes & np.uint32(1) == 1
        values[encoded.codes >> np.uint32(1)] = np.where(negative, -encoded.scale, encoded.scale)
        return values
