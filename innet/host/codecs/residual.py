"""Error feedback around any codec; the equations are in :mod:`innet.host.quantizers.residuals`."""

from collections.abc import Hashable

import numpy as np

from innet.host.codecs.interface import Codec, Encoded, Floats
from innet.host.quantizers.residuals import Residuals


class WithResidual:
    """Encodes a vector and what the codec has taken from the vectors of the same key before it."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._residuals = Residuals()

    def encode(self, key: Hashable, values: Floats) -> Encoded:
        """`key` tells tensors apart; `values` are flat and not changed."""
        given = self._residuals.added(key, values)
        encoded = self._codec.encode(given)
        counted = np.ones(values.size, np.bool_)
        self._residuals.keep(key, given, self._codec.decode(encoded), counted)
        return encoded

    def decode(self, encoded: Encoded) -> Floats:
        """As the codec does."""
        return self._codec.decode(encoded)
