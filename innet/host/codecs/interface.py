"""What a codec does: a flat float32 vector to an array of codes and a scale, and back."""

from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Encoded:
    """What travels. `codes`: contiguous, one-dimensional. `elements`: of the vector."""

    codes: npt.NDArray[Any]
    scale: np.float32
    elements: int

    @property
    def nbytes(self) -> int:
        """Bytes of codes and scale."""
        return self.codes.nbytes + self.scale.nbytes


class Codec(Protocol):
    """One way to encode. Codecs have no state, and may be shared by threads."""

    def encode(self, values: Floats) -> Encoded:
        """`values` are flat; they are not changed."""

    def decode(self, encoded: Encoded) -> Floats:
        """A new flat vector. What was not finite is not finite again."""


def largest_magnitude(values: Floats) -> np.float32:
    """Of a flat vector; 0 of an empty one, NaN if a value is not finite."""
    if not values.size:
        return np.float32(0)
    largest = np.float32(np.maximum(values.max(), -values.min()))
    return largest if np.isfinite(largest) else np.float32(np.nan)
