"""Quantizers by name, as a user chooses them: ``int8+stochastic+feedback``, ``strom:0.001``.

A name consists of a quantizer, which for ``strom`` includes a colon and the threshold.
``+stochastic`` may follow for stochastic rounding, and ``+feedback`` for error feedback. All
workers of a job have to choose the same.
"""

import re
import zlib
from dataclasses import dataclass

import numpy as np

from innet.errors import UsageError
from innet.host.quantizers.block_scale import BlockScale
from innet.host.quantizers.interface import Quantizer
from innet.host.quantizers.narrow import Narrow
from innet.host.quantizers.packing import Packing
from innet.host.quantizers.threshold import Threshold

NAMES = ("int32", "int16", "int8", "strom")
FEWEST_LEVELS = 15
"""The fewest levels that a narrow quantizer may have; with fewer it is refused."""

_IDENTITY_BITS = 22
_NARROW_BITS = {"int16": 16, "int8": 8}


@dataclass(frozen=True)
class QuantizerSpec:
    """A quantizer and its options, as a user names them. `tau` is strom's threshold."""

    name: str = "int32"
    tau: float = 0.0
    stochastic: bool = False
    feedback: bool = False

    @classmethod
    def read(cls, text: str) -> "QuantizerSpec":
        """Parse a name. Raises UsageError if it names no quantizer."""
        base, *options = re.split(r"\+(?=[a-z])", text)  # do not split 1e+20
        name, colon, parameter = base.partition(":")
        if name not in NAMES or not set(options) <= {"stochastic", "feedback"}:
            raise UsageError(
                f"quantizer {text!r}: it has to be one of {', '.join(NAMES[:-1])} or strom:TAU, "
                "and may have +stochastic and +feedback behind it"
            )
        if name != "strom":
            if colon:
                raise UsageError(f"quantizer {text!r}: {name} has no parameter")
            return cls(name, 0.0, "stochastic" in options, "feedback" in options)
        if "stochastic" in options:
            raise UsageError(f"quantizer {text!r}: strom does not round")
        return cls(name, _threshold(text, parameter), feedback=True)

    def __str__(self) -> str:
        text = f"{self.name}:{np.float32(self.tau)!s}" if self.name == "strom" else self.name
        text += "+stochastic" if self.stochastic else ""
        return text + ("+feedback" if self.feedback and self.name != "strom" else "")

    @property
    def identity(self) -> int:
        """Return a number that identifies the quantizer and its options, 0 for the default."""
        return (
            0
            if self == QuantizerSpec()
            else zlib.crc32(repr(self).encode()) % (1 << _IDENTITY_BITS)
        )

    @property
    def rounds(self) -> bool:
        """Return whether it rounds values, so that an exact sum may take the place of its own."""
        return self.name != "strom"

    def bind(self, workers: int) -> Quantizer:
        """Return the quantizer for `workers` workers. Raises UsageError if it cannot serve so many."""
        if self.name == "int32":
            return BlockScale(workers)
        if self.name == "strom":
            return Threshold(self.tau, workers)
        bits = _NARROW_BITS[self.name]
        if (levels := 2 * (((1 << bits) - 1) // (2 * workers)) + 1) < FEWEST_LEVELS:
            raise UsageError(
                f"quantizer {self}: the sum of {workers} workers' integers has to fit {bits} bits, "
                f"which leaves each of them {levels} levels, too few to train with (fewest: "
                f"{FEWEST_LEVELS}, at most {most_workers(bits)} workers): use int16"
            )
        return Narrow(Packing.widest(bits, workers))


def most_workers(bits: int) -> int:
    """Return the largest number of workers for which so many bits leave enough levels."""
    return ((1 << bits) - 1) // (FEWEST_LEVELS - 1)


def _threshold(text: str, parameter: str) -> float:
    try:
        tau = float(np.float32(parameter))
    except ValueError:
        tau = 0.0
    if not 0 < tau < float("inf"):
        raise UsageError(f"quantizer {text!r}: strom needs a positive threshold, as in strom:0.001")
    return tau
