"""The interface of a codec: a flat float32 vector to an array of codes and a scale, and back."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Encoded:
    """An encoded vector of `elements` elements. `codes` is contiguous and one-dimensional."""

    codes: npt.NDArray[Any]
    scale: np.float32
    elements: int

    @property
    def nbytes(self) -> int:
        """Return the bytes of codes and scale."""
        return self.codes.nbytes + self.scale.nbytes


class Codec(Protocol):
    """A way to encode vectors. Codecs have no state, so that threads may share them."""

    def encode(self, values: Floats) -> Encoded:
        """Encode a flat vector, without changing it."""

    def decode(self, encoded: Encoded) -> Floats:
        """Return a new flat vector; infinities and NaNs decode to infinities or NaNs."""


def largest_magnitude(values: Floats) -> np.float32:
    """Return the largest magnitude of a flat vector: 0 if it is empty, NaN if a value is not finite."""
    if not values.size:
        return np.float32(0)
    largest = np.float32(np.maximum(values.max(), -values.min()))
    return largest if np.isfinite(largest) else np.float32(np.nan)
