"""The workers' agreement that they make the same call, by a maximum over the switch."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, get_args

import numpy as np

from innet.errors import WorkersDisagree
from innet.host.integers import Integers
from innet.host.quantizers.spec import QuantizerSpec
from innet.host.tensors import REDUCE_OPS, ReduceOp
from innet.machine.environment import PRIVATE_KEY_FILE

WORDS = 4
"""The number of int32 that describe a call."""

CollectiveName = Literal[
    "all-reduce", "reduce-scatter", "reduce", "all-gather", "broadcast", "barrier", "key agreement"
]

_SPARSE = ("sparse float32", "sparse int32", "sparse int64")
_DTYPES = ("float32", "int32", "int64", *_SPARSE, "parameters", "bytes")
_COLLECTIVES: tuple[CollectiveName, ...] = get_args(CollectiveName)
EXACT = QuantizerSpec()
_KIND_BITS = (
    8  # the low bits of the word that identifies a call; the quantizer or root is above them
)


@dataclass(frozen=True)
class Collective:
    """A collective operation. `root` is the rank that a reduce or broadcast names."""

    name: CollectiveName = "all-reduce"
    root: int = 0


ALL_REDUCE = Collective()
REDUCE_SCATTER = Collective("reduce-scatter")
ALL_GATHER = Collective("all-gather")
BARRIER = Collective("barrier")
KEY_AGREEMENT = Collective("key agreement")
"""The first collective of workers that have a key of private sums."""


def largest_words(own: Integers) -> Integers:
    """Return the maxima of the `words` of n calls, (4,) int32, given their `own_words`, (n, 2)."""
    (size, kind), (least_size, least_kind) = own.max(axis=0), own.min(axis=0)
    return np.array([size, -least_size, kind, -least_kind], np.int32)


@dataclass(frozen=True)
class Call:
    """A call that all workers of a job have to make alike.

    `size` is the number of elements, or of rows for a sparse tensor, or of bytes. `dtype` is "bytes" if
    nothing is added, and "parameters" if a server takes the sums (:mod:`innet.host.parameters`).
    """

    size: int
    dtype: str
    op: ReduceOp = "sum"
    spec: QuantizerSpec = EXACT
    collective: Collective = ALL_REDUCE

    @property
    def own_words(self) -> Integers:
        """Return the size and the kind of the call, (2,) int32."""
        return np.array([self.size, self.kind], np.int32)

    @cached_property
    def words(self) -> Integers:
        """The size and the kind of the call, and their negatives, (4,) int32.

        The maxima of these words over the workers give the largest and the smallest size and kind. So
        each worker sees a disagreement.
        """
        return np.array(self._listed, np.int32)

    def check(self, largest: Integers) -> None:
        """Raise WorkersDisagree unless all workers sent the same words, given their maxima."""
        if largest[:WORDS].tolist() == self._listed:
            return
        most_kind, least_kind = (
            int(kind) % (1 << _KIND_BITS) for kind in (largest[2], -largest[3])
        )
        if most_kind != least_kind:
            if Call(0, "bytes", collective=KEY_AGREEMENT).kind in (most_kind, least_kind):
                raise WorkersDisagree(
                    "some workers have a key of private sums, and others none: set "
                    f"{PRIVATE_KEY_FILE} on all workers, or on none"
                )
            raise WorkersDisagree(
                "the workers call different collectives, or the same one with different dtypes or "
                f"operations: this one calls {self._text}"
            )
        most, fewest = largest[0], -largest[1]
        if most != fewest:
            raise WorkersDisagree(
                f"this worker's {self.collective.name} has {self.size} {self._unit}, others have "
                f"between {fewest} and {most}"
            )
        if largest[2] != -largest[3]:
            raise WorkersDisagree(
                f"the workers call {self.collective.name} with different quantizers or roots: this "
                f"one's quantizer is {self.spec}, and its root {self.collective.root}"
            )

    @cached_property
    def _listed(self) -> Sequence[int]:
        """The words as a list."""
        return [self.size, -self.size, self.kind, -self.kind]

    @property
    def _unit(self) -> str:
        if self.dtype in _SPARSE:
            return "rows"
        return "bytes" if self.dtype == "bytes" else "elements"

    @property
    def _text(self) -> str:
        if self.dtype == "bytes":
            return self.collective.name
        return f"{self.collective.name} for the {self.op} of {self.dtype}"

    @cached_property
    def kind(self) -> int:
        """The number of the kind of call, which has to be the same on all workers."""
        kind = _COLLECTIVES.index(self.collective.name)
        kind = kind * len(_DTYPES) + _DTYPES.index(self.dtype)
        kind = kind * len(REDUCE_OPS) + REDUCE_OPS.index(self.op)
        return kind | (self.spec.identity + self.collective.root) << _KIND_BITS
