"""Error feedback: the error of rounding a gradient is added to the next gradient.

Seide, Fu, Droppo, Li and Yu, "1-Bit Stochastic Gradient Descent", Interspeech 2014; Karimireddy,
Rebjock, Stich and Jaggi, "Error Feedback Fixes SignSGD", ICML 2019, algorithm 2. A key identifies a
tensor. It may be a tuple of weak references: after an object that they refer to has ended, the
residual goes when a new tensor comes. For every tensor a worker keeps a residual e in float32, zero at
first:

    p = g + e;    contribute Q(p);    e <- p - Q(p).

Then the sum of all contributions differs from the sum of all gradients by the last residual only.
That is at most one step of rounding (and float32's rounding of g + e).

With a quorum a result may be made without this worker. It has then contributed nothing, so e <- p.
If the scale that the workers agreed on is not finite, the result is NaN for all of them, and e <-
0.

**Bytes per element**: none on the wire; 4 of memory.
"""

from collections.abc import Hashable
from weakref import ref

import numpy as np
import numpy.typing as npt

from innet.host.quantizers.interface import Floats

_INFINITY = float("inf")


class Residuals:
    """The residuals of one worker's tensors by key, flat float32 numpy arrays or torch tensors."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Floats] = {}

    def added(self, key: Hashable, values: Floats) -> Floats:
        """Return g + e as a new array. A tensor whose size has changed counts as a new tensor."""
        rest = self._kept.get(key)
        if rest is None or rest.shape != values.shape or type(rest) is not type(values):
            return values + 0
        with np.errstate(over="ignore", invalid="ignore"):
            return values + rest

    def keep(
        self, key: Hashable, corrected: Floats, contributed: Floats, counted: npt.NDArray[np.bool_]
    ) -> None:
        """Set e to p - Q(p) where `counted`, else to p; all arrays are flat."""
        with np.errstate(invalid="ignore"):
            rest = corrected - contributed
        if not counted.all():
            rest[~counted] = corrected[~counted]
        rest[~(abs(rest) < _INFINITY)] = 0
        if key not in self._kept:  # a new tensor: a known one need not look through all keys
            for ended in filter(_has_ended, list(self._kept)):
                del self._kept[ended]
        self._kept[key] = rest


def _has_ended(key: Hashable) -> bool:
    return isinstance(key, tuple) and any(isinstance(of, ref) and of() is None for of in key)
