"""Error feedback: what rounding has taken from a gradient is added to the next one.

Seide, Fu, Droppo, Li and Yu, "1-Bit Stochastic Gradient Descent", Interspeech 2014; Karimireddy, Rebjock,
Stich and Jaggi, "Error Feedback Fixes SignSGD", ICML 2019, algorithm 2. For every tensor, known by its
key, a worker keeps a residual e in float32, zero at first:

    p = g + e;    contribute Q(p);    e <- p - Q(p).

Then the sum of all contributions differs from the sum of all gradients by the last residual only, which
is no larger than one step of rounding (and float32's rounding of g + e). Where a result was made without
this worker, for it takes a quorum only, nothing was contributed: e <- p. Where the scale that the workers
have agreed on is not finite, the result is NaN for everybody, and e <- 0: it begins anew.

**Bytes per element**: none on the wire; 4 of memory.
"""

from collections.abc import Hashable

import numpy as np
import numpy.typing as npt

from innet.host.quantizers.interface import Floats

_INFINITY = float("inf")


class Residuals:
    """The residuals of one worker's tensors, flat float32, by key; numpy arrays or torch tensors."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, Floats] = {}

    def added(self, key: Hashable, values: Floats) -> Floats:
        """The sum g + e, new. A tensor whose size has changed is another one."""
        rest = self._kept.get(key)
        if rest is None or rest.shape != values.shape or type(rest) is not type(values):
            return values + 0
        with np.errstate(over="ignore", invalid="ignore"):
            return values + rest

    def keep(
        self, key: Hashable, corrected: Floats, contributed: Floats, counted: npt.NDArray[np.bool_]
    ) -> None:
        """Let e be p - Q(p) where `counted`, else p; all flat."""
        with np.errstate(invalid="ignore"):
            rest = corrected - contributed
        if not counted.all():
            rest[~counted] = corrected[~counted]
        rest[~(abs(rest) < _INFINITY)] = 0
        self._kept[key] = rest
