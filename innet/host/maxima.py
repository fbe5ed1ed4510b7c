"""Exchanges that take a maximum: the agreement on scales, and the gathering of small vectors."""

from typing import Any

import numpy as np
import numpy.typing as npt

from innet.host import agreement
from innet.host.agreement import Call
from innet.host.exchanges import Exchanges
from innet.host.gathering import Gathering
from innet.host.integers import Integers, Reduction
from innet.host.job import WorkerInfo
from innet.host.quantizers import fixed_point
from innet.wire.layout import Operation

NO_WORDS = np.empty(0, np.int32)


class Maxima:
    """A worker's maxima. Each begins with the words of a call, so that a disagreement shows first."""

    def __init__(self, exchanges: Exchanges, info: WorkerInfo) -> None:
        self._exchanges, self._info = exchanges, info

    def agree(self, call: Call, words: Integers = NO_WORDS) -> Integers:
        """Return the maximum of (n,) int32 over the workers.

        Raises WorkersDisagree if the workers' calls differ.
        """
        chunks = fixed_point.blocks(np.concatenate([call.words, words]), self._info.lanes)
        agreed = self._maximum(chunks, call).lanes
        return agreed.reshape(-1)[agreement.WORDS : agreement.WORDS + words.size]

    def gather(
        self, small: Gathering, values: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return all workers' small vectors, and a mask of those that are in the result."""
        return small.gathered(self._maximum(small.contribution(values), small.call))

    def _maximum(self, chunks: Integers, call: Call) -> Reduction:
        none = np.zeros(len(chunks), np.uint16)
        return self._exchanges.all_reduce(chunks, Operation.MAX, none, call.check)
