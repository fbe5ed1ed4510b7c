"""Exchanges that take a maximum: the agreement on scales, and the gathering of small vectors.

In a private job both are sums that gather all workers' words. The switch cannot compare padded lanes.
"""

from typing import Any

import numpy as np
import numpy.typing as npt

from innet.host import agreement, memory
from innet.host.agreement import Call
from innet.host.exchanges import Exchanges
from innet.host.gathering import Gathering
from innet.host.integers import Integers, Reduction
from innet.host.job import WorkerInfo
from innet.host.quantizers import fixed_point
from innet.wire.layout import Operation

NO_WORDS = np.empty(0, np.int32)


class Maxima:
    """A worker's maxima. Each begins with the words of its call, so that a disagreement shows first."""

    def __init__(self, exchanges: Exchanges, info: WorkerInfo) -> None:
        self._exchanges, self._info = exchanges, info

    def agree(self, call: Call, words: Integers = NO_WORDS) -> Integers:
        """Return the maximum of (n,) int32 over the workers.

        Raises WorkersDisagree if the workers' calls differ.
        """
        if self._exchanges.private:
            largest: Integers = self._collect(call, words).max(axis=0)
            return largest
        lanes, size = self._info.lanes, agreement.WORDS + words.size
        chunks = memory.empty((-(-size // lanes), lanes), np.int32)
        flat = chunks.reshape(-1)
        flat[: agreement.WORDS], flat[agreement.WORDS : size] = call.words, words
        flat[size:] = 0
        agreed = self._maximum(chunks, call).lanes
        return agreed.reshape(-1)[agreement.WORDS : size]

    def gather(
        self, gathering: Gathering, values: npt.NDArray[Any]
    ) -> tuple[npt.NDArray[Any], npt.NDArray[np.bool_]]:
        """Return all workers' small vectors, and a mask of those that are in the result."""
        call, words = gathering.call, gathering.words(values)
        workers = self._info.workers
        found = np.empty((workers, words.size), np.int32)
        if self._exchanges.gather(call, words.view(np.uint8), range(workers), found.view(np.uint8)):
            return gathering.complete(found)
        if self._exchanges.private:
            return gathering.complete(self._collect(call, words))
        return gathering.gathered(self._maximum(gathering.contribution(words), call))

    def _collect(self, call: Call, words: Integers) -> Integers:
        """Return the words of all workers, (workers, n) int32, given this worker's words, (n,).

        A maximum of padded lanes would be noise. So this is a sum, in which each worker has lanes of
        its own in every chunk, and sends zeros in the others. Raises WorkersDisagree if the workers'
        calls differ.
        """
        workers, each = self._info.workers, self._info.lanes // self._info.workers
        own = fixed_point.blocks(np.concatenate([call.own_words, words]), each)
        chunks = np.zeros((len(own), self._info.lanes), np.int32)
        chunks[:, self._info.rank * each : (self._info.rank + 1) * each] = own

        def inspect(first: Integers) -> None:
            said = first[: workers * each].reshape(workers, each)[:, :2]
            call.check(agreement.largest_words(said))

        none = np.zeros(len(chunks), np.uint16)
        sums = self._exchanges.all_reduce(chunks, none, Operation.SUM, inspect).lanes
        by_worker = sums[:, : workers * each].reshape(len(sums), workers, each).transpose(1, 0, 2)
        return by_worker.reshape(workers, -1)[:, 2 : 2 + words.size]

    def _maximum(self, chunks: Integers, call: Call) -> Reduction:
        none = np.zeros(len(chunks), np.uint16)
        return self._exchanges.all_reduce(chunks, none, Operation.MAX, call.check)
