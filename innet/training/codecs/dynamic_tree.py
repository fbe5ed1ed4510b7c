"""Dettmers' dynamic tree: bytes with a decimal exponent whose length is not fixed.

Tim Dettmers, "8-Bit Approximations for Parallelism in Deep Learning", ICLR 2016 (arXiv 1511.04561).
After the sign bit come z zeros, which encode the exponent ``10**-z``, and then a one. The remaining
``b = 6 - z`` bits are a number f. It selects one of ``2**b`` cells between 0.1 and 1, and the middle
of the cell is the value:

    value = (-1)**sign * 10**-z * (0.1 + 0.9 * (f + 1/2) / 2**b).

Two bytes have seven zeros after the sign: 0 stands for zero here, and 128 for one. Values are
relative to the vector's largest magnitude s.

**Bytes per element**: 1, plus 4 for s.

**Error bound**: half a cell, ``0.45 * 10**-z / 2**(6 - z) * s``, where ``10**-(z + 1) <= |x| / s <=
10**-z`` and z is at most 6. Below that it is ``10**-7 * s``. The rounding of float32 adds ``s *
2**-22 + 2**-149`` to both. So small values keep some of their digits, and large ones have 6 bits.
An s below ``2**-100`` counts as ``2**-100``. If a value is not finite, all decoded values are NaN.

The codes are not evenly spaced. A sum of codes therefore means nothing, and a switch cannot add
them.
"""

import numpy as np
import numpy.typing as npt

from innet.training.codecs.interface import Encoded, Floats, largest_magnitude

_SMALLEST = np.float32(2.0**-100)
_BITS_BEHIND_SIGN = 7


def value_of(code: int) -> float:
    """Return the value that a byte encodes, -1 to 1."""
    sign, rest = code >> _BITS_BEHIND_SIGN, code & 0x7F
    if not rest:
        return float(sign)
    bits = rest.bit_length() - 1  # after the one that ends the exponent
    zeros = _BITS_BEHIND_SIGN - 1 - bits
    fraction = (rest - (1 << bits) + 0.5) / (1 << bits)
    value: float = (0.1 + 0.9 * fraction) * 10.0**-zeros
    return -value if sign else value


_VALUES: npt.NDArray[np.float32] = np.array([value_of(code) for code in range(256)], np.float32)
_IN_ORDER = np.argsort(_VALUES).astype(np.uint8)
_BETWEEN = ((_VALUES[_IN_ORDER][1:] + _VALUES[_IN_ORDER][:-1]) / 2).astype(np.float32)


class DynamicTree:
    """See :class:`interface.Codec`. Codes are uint8."""

    def encode(self, values: Floats) -> Encoded:
        """Encode as the nearest values that a byte can encode."""
        scale = np.maximum(largest_magnitude(values), _SMALLEST)  # a NaN stays a NaN
        if np.isnan(scale):
            return Encoded(np.zeros(values.size, np.uint8), scale, values.size)
        codes = _IN_ORDER[np.searchsorted(_BETWEEN, values / scale)]
        return Encoded(codes, scale, values.size)

    def decode(self, encoded: Encoded) -> Floats:
        """See :class:`interface.Codec`."""
        return np.asarray(_VALUES[encoded.codes] * encoded.scale, np.float32)
