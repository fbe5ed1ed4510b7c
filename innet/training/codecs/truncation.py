"""Truncation T of Pipe-SGD: the upper half of every float32.

Li et al., "Pipe-SGD", NeurIPS 2018, section 3.2: "Truncation drops the less significant mantissa
bits of floating-point values for each gradient", to 16 bits. With the 32 bits of x as an unsigned
number B(x):

    code = floor(B(x) / 2**16),    B(decoded) = code * 2**16.

**Bytes per element**: 2.

**Error bound**: ``|decoded| <= |x|`` and ``|x - decoded| < 2**-7 |x|``, or below ``2**-133`` where
x is denormal. Seven mantissa bits remain, and the value is rounded towards zero. Infinities and
NaNs stay. A NaN whose upper half would be an infinity gets its quiet bit set.

A switch that adds integers cannot add these codes. Its quantizer of the same width is int16.
"""

import numpy as np

from innet.training.codecs.interface import Encoded, Floats

_QUIET = np.uint16(0x40)


class Truncation:
    """See :class:`interface.Codec`. The scale is not used."""

    def encode(self, values: Floats) -> Encoded:
        """Encode as uint16."""
        codes = (values.view(np.uint32) >> np.uint32(16)).astype(np.uint16)
        codes[np.isnan(values)] |= _QUIET
        return Encoded(codes, np.float32(1), values.size)

    def decode(self, encoded: Encoded) -> Floats:
        """See :class:`interface.Codec`."""
        values: Floats = (encoded.codes.astype(np.uint32) << np.uint32(16)).view(np.float32)
        return values
