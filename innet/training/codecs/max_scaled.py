"""Quantization Q of Pipe-SGD: signed bytes, scaled by the vector's largest magnitude.

Li et al., "Pipe-SGD", NeurIPS 2018, section 3.2: it "discretizes each gradient value into an
integer of limited bits, with a quantization range determined by the maximal element of a gradient
vector":

    s = max |x|,    code = round(127 x / s),    decoded = code * s / 127.

**Bytes per element**: 1, plus 4 for s.

**Error bound**: ``s / 254 + |x| * 2**-22 + 2**-149``; the last two terms are float32's rounding. An
s below ``2**-100`` counts as ``2**-100``. If a value is not finite, all decoded values are NaN.

The quantizers int8 and int16 do the same with a scale for every row, which all workers agree on.
"""

import numpy as np

from innet.training.codecs.interface import Encoded, Floats, largest_magnitude

_LEVELS = np.float32(127)
_SMALLEST = np.float32(2.0**-100)


class MaxScaled:
    """See :class:`interface.Codec`. Codes are int8 from -127 to 127."""

    def encode(self, values: Floats) -> Encoded:
        """Encode as int8."""
        scale = np.maximum(largest_magnitude(values), _SMALLEST)  # a NaN stays a NaN
        if np.isnan(scale):
            return Encoded(np.zeros(values.size, np.int8), scale, values.size)
        scaled = values / scale
        scaled *= _LEVELS
        np.rint(scaled, out=scaled)
        return Encoded(scaled.astype(np.int8), scale, values.size)

    def decode(self, encoded: Encoded) -> Floats:
        """See :class:`interface.Codec`."""
        values: Floats = encoded.codes.astype(np.float32)
        values /= _LEVELS
        values *= encoded.scale
        return values
