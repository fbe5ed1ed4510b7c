"""Workers that do not all compute equally fast."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from statistics import NormalDist

import numpy as np
import numpy.typing as npt

from innet.errors import UsageError

Seconds = npt.NDArray[np.float64]

_POINTS = 4000  # of an integral over the slowest worker's quantiles
_VARIATIONS = np.arange(0, 0.5, 0.0005)


@dataclass(frozen=True)
class Stragglers:
    """The distribution of compute times, each drawn anew for every worker and step.

    Times are lognormal around a mean, with `variation` as the standard deviation over the mean. In
    addition, a share `slow` of all times is `slowdown` times as long. So the mean grows with
    `slow`.
    """

    variation: float = 0.0
    slow: float = 0.0
    slowdown: float = 2.0

    def __post_init__(self) -> None:
        fits = 0 <= self.variation < math.inf and 0 <= self.slow <= 1 <= self.slowdown < math.inf
        if not fits:
            raise UsageError(
                f"a variation of {self.variation}, a share of {self.slow} slower by {self.slowdown}: "
                "give a variation from 0, a share from 0 to 1, and a factor from 1"
            )

    @property
    def mean(self) -> float:
        """Return the mean time, as a multiple of the mean without slow passes."""
        return 1 + self.slow * (self.slowdown - 1)

    def times(self, seconds: float, workers: int, random: np.random.Generator) -> Seconds:
        """Return compute times, (workers,). Without slow passes their mean is `seconds`."""
        sigma = _sigma(self.variation)
        drawn: Seconds = seconds * random.lognormal(-(sigma**2) / 2, sigma, workers)
        return np.where(random.random(workers) < self.slow, self.slowdown, 1.0) * drawn


def slowest(workers: int, variation: npt.ArrayLike) -> Seconds:
    """Return the expected time of the slowest of so many workers, as a multiple of the mean.

    The times are lognormal. With quantiles Q the expectation is the integral of Q(u ** (1/N)) over u
    from 0 to 1. `variation` may be an array; the result has its shape.
    """
    sigma = _sigma(np.asarray(variation, float))[..., None]
    found: Seconds = np.exp(sigma * _quantiles(workers) - sigma**2 / 2).mean(-1)
    return found


def fitted(efficiencies: Mapping[int, float]) -> float:
    """Return the variation that fits published efficiencies best, in the sense of least squares.

    `efficiencies` are by number of workers. The fit assumes that every step takes as long as its
    slowest worker, and that communication takes no time.
    """
    errors = sum(
        (1 / slowest(workers, _VARIATIONS) - efficiency) ** 2
        for workers, efficiency in efficiencies.items()
    )
    return float(_VARIATIONS[np.argmin(errors)])


def _sigma(variation: npt.ArrayLike) -> Seconds:
    found: Seconds = np.sqrt(np.log1p(np.square(variation)))
    return found


@cache
def _quantiles(workers: int) -> Seconds:
    """Return standard normal quantiles of the largest of `workers` values, at the midpoints of steps."""
    steps = (np.arange(_POINTS) + 0.5) / _POINTS
    # With thousands of workers u ** (1/N) is close to 1. The small difference 1 - u ** (1/N) is
    # more precise.
    tails = -np.expm1(np.log(steps) / workers)
    return np.array([-NormalDist().inv_cdf(tail) for tail in tails])
