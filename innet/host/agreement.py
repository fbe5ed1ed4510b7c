"""The workers' agreement that they make the same call, by a maximum over the switch."""

from dataclasses import dataclass

import numpy as np

from innet.errors import WorkersDisagree
from innet.host.integers import Integers
from innet.host.quantizers.spec import QuantizerSpec
from innet.host.tensors import REDUCE_OPS, ReduceOp

WORDS = 4
"""The number of int32 that describe a call."""

_DTYPES = ("float32", "int32", "int64", "parameters")
_EXACT = QuantizerSpec()
_KIND_BITS = 4  # the low bits of the word that identifies a call; the quantizer is above them


@dataclass(frozen=True)
class Call:
    """A call that all workers of a job have to make alike.

    `dtype` is "parameters" where a server takes the sums (:mod:`innet.host.parameters`).
    """

    size: int
    dtype: str
    op: ReduceOp
    spec: QuantizerSpec = _EXACT

    @property
    def words(self) -> Integers:
        """Return the size and the kind of the call, and their negatives, (4,) int32.

        Their maxima over the workers are the largest and the smallest, so that each worker sees a
        disagreement.
        """
        return np.array([self.size, -self.size, self._kind, -self._kind], np.int32)

    def check(self, largest: Integers) -> None:
        """Raise WorkersDisagree unless all workers sent the same words, given their maxima."""
        most, fewest = largest[0], -largest[1]
        if most != fewest:
            raise WorkersDisagree(
                f"this worker reduces {self.size} elements, others between {fewest} and {most}"
            )
        if (largest[2] + largest[3]) % (1 << _KIND_BITS):
            raise WorkersDisagree(
                "the workers call all-reduce with different dtypes or operations: this one asks "
                f"for the {self.op} of {self.dtype}"
            )
        if largest[2] != -largest[3]:
            raise WorkersDisagree(
                f"the workers call all-reduce with different quantizers: this one's is {self.spec}"
            )

    @property
    def _kind(self) -> int:
        kind = len(REDUCE_OPS) * _DTYPES.index(self.dtype) + REDUCE_OPS.index(self.op)
        return kind | self.spec.identity << _KIND_BITS
