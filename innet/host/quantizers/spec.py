"""Quantizers by name, as a user chooses them: ``int8+stochastic+feedback``, ``strom:0.001``.

A name consists of a quantizer, which for ``strom`` includes a colon and the threshold.
``+stochastic`` may follow for stochastic rounding, and ``+feedback`` for error feedback.

Two options send a part of the vector only, block by block (:mod:`innet.host.unions`). ``+blocks``
leaves out what is zero on all workers, and ``+blocks:64`` sets the number of elements in a block. The
default is as many as a packet carries. ``+topk:0.01`` sends one block in a hundred, the largest, and
keeps the others by error feedback.

All workers of a job have to choose the same.
"""

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from innet.errors import UsageError
from innet.host.quantizers.block_scale import BlockScale
from innet.host.quantizers.interface import Quantizer
from innet.host.quantizers.narrow import Narrow
from innet.host.quantizers.packing import Packing
from innet.host.quantizers.threshold import Threshold
from innet.machine.numbers import is_number

NAMES = ("int32", "int16", "int8", "strom")
FEWEST_LEVELS = 15
"""The fewest levels that a narrow quantizer may have; with fewer it is refused."""

_IDENTITY_BITS = 22
_NARROW_BITS = {"int16": 16, "int8": 8}
_MOST_ELEMENTS = 2**31
_OPTIONS = {"stochastic", "feedback", "blocks", "topk"}


@dataclass(frozen=True)
class QuantizerSpec:
    """A quantizer and its options, as a user names them.

    `tau` is strom's threshold. `blocks` is the number of elements in a block, 0 for those of a packet;
    None sends everything. `share` is the share of the blocks that are sent, 0 for all but empty ones.
    """

    name: str = "int32"
    tau: float = 0.0
    stochastic: bool = False
    feedback: bool = False
    blocks: int | None = None
    share: float = 0.0

    @classmethod
    def read(cls, text: str) -> "QuantizerSpec":
        """Parse a name. Raises UsageError if it names no quantizer."""
        base, *listed = re.split(r"\+(?=[a-z])", text)  # do not split 1e+20
        name, colon, parameter = base.partition(":")
        options = dict(option.partition(":")[::2] for option in listed)
        if name not in NAMES or not set(options) <= _OPTIONS or len(options) < len(listed):
            raise UsageError(
                f"quantizer {text!r}: it has to be one of {', '.join(NAMES[:-1])} or strom:TAU, and "
                "may have +stochastic, +feedback, +blocks, +blocks:ELEMENTS and +topk:SHARE behind it"
            )
        if options.get("stochastic") or options.get("feedback"):
            raise UsageError(f"quantizer {text!r}: stochastic and feedback have no parameter")
        if name != "strom":
            if colon:
                raise UsageError(f"quantizer {text!r}: {name} has no parameter")
            feedback = "feedback" in options or "topk" in options
            sparsity = _blocks(text, options), _share(text, options)
            return cls(name, 0.0, "stochastic" in options, feedback, *sparsity)
        if "stochastic" in options:
            raise UsageError(f"quantizer {text!r}: strom does not round")
        if "blocks" in options or "topk" in options:
            raise UsageError(f"quantizer {text!r}: strom sends all blocks, use int8+topk:0.01")
        return cls(name, _threshold(text, parameter), feedback=True)

    def __str__(self) -> str:
        text = f"{self.name}:{np.float32(self.tau)!s}" if self.name == "strom" else self.name
        text += "+stochastic" if self.stochastic else ""
        text += "+feedback" if self.feedback and self.name != "strom" and not self.share else ""
        if self.blocks is not None and (self.blocks or not self.share):
            text += f"+blocks:{self.blocks}" if self.blocks else "+blocks"
        return text + (f"+topk:{self.share!r}" if self.share else "")

    @property
    def dense(self) -> "QuantizerSpec":
        """Return the quantizer that sends all blocks."""
        return replace(self, blocks=None, share=0.0)

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
        """Return whether the quantizer only rounds values. An exact sum may then replace its sum."""
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


def _blocks(text: str, options: Mapping[str, str]) -> int | None:
    """Return the elements of a block, 0 for those of a packet, None if all blocks are sent."""
    given = options.get("blocks", "" if "topk" in options else None)
    if not given:
        return None if given is None else 0
    if not is_number(given) or not 0 < int(given) < _MOST_ELEMENTS:
        raise UsageError(f"quantizer {text!r}: blocks have a positive number of elements")
    return int(given)


def _share(text: str, options: Mapping[str, str]) -> float:
    if "topk" not in options:
        return 0.0
    try:
        share = float(options["topk"])
    except ValueError:
        share = 0.0
    if not 0 < share <= 1:
        raise UsageError(
            f"quantizer {text!r}: topk needs a share of the blocks between 0 and 1, as in topk:0.01"
        )
    return share
