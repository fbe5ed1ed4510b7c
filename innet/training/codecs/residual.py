"""Error feedback around any codec; the equations are in :mod:`innet.host.quantizers.residuals`."""

from collections.abc import Hashable

import numpy as np

from innet.host.quantizers.residuals import Residuals
from innet.training.codecs.interface import Codec, Encoded, Floats


class WithResidual:
    """A codec with error feedback: it adds the error left from a key's last vector to the next one."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._residuals = Residuals()

    def encode(self, key: Hashable, values: Floats) -> Encoded:
        """Encode a flat vector, without changing it. `key` identifies the tensor."""
        given = self._residuals.added(key, values)
        encoded = self._codec.encode(given)
        counted = np.ones(values.size, np.bool_)
        self._residuals.keep(key, given, self._codec.decode(encoded), counted)
        return encoded

    def decode(self, encoded: Encoded) -> Floats:
        """Decode as the codec does."""
        return self._codec.decode(encoded)
