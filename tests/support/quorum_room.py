"""Workers in one process whose contributions numpy adds, without those that come too late.

A switch with a quorum does the same, but nobody can choose there who is late.
"""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np

from innet.host.integers import Flags, Integers, Reduction
from innet.host.job import WorkerInfo
from innet.host.quantizers.scaling import integers_of
from innet.host.reducer import Reducer
from innet.wire.layout import Operation


class QuorumRoom:
    """The reducers of some workers. `late[n]` are the ranks that are late for exchange n."""

    def __init__(self, workers: int, lanes: int, late: Sequence[Sequence[int]]) -> None:
        self._workers, self._late = workers, late
        self._barrier = threading.Barrier(workers)
        self._given: list[Any] = [None] * workers
        infos = [WorkerInfo(1, rank, workers, 1, lanes) for rank in range(workers)]
        self._reducers = [Reducer(_Seat(self, rank), info) for rank, info in enumerate(infos)]  # type: ignore[arg-type]

    def run(self, call: Callable[[Reducer, int], Any]) -> list[Any]:
        """Return what a call of all reducers, each with its rank, returns."""
        with ThreadPoolExecutor(self._workers) as pool:
            return list(pool.map(call, self._reducers, range(self._workers)))

    def meet(self, rank: int, number: int, chunks: Integers, operation: Operation, flags: Flags):
        late = self._late[number] if number < len(self._late) else ()
        self._given[rank] = chunks, flags
        self._barrier.wait()
        present = [mine for mine in range(self._workers) if mine not in late]
        lanes = np.stack([self._given[mine][0] for mine in present])
        flags = np.bitwise_or.reduce([self._given[mine][1] for mine in present])
        self._barrier.wait()
        combined = lanes.sum(axis=0) if operation == Operation.SUM else lanes.max(axis=0)
        counts = np.full(len(chunks), len(present), np.uint16)
        members = np.full(len(chunks), sum(1 << mine for mine in present), np.uint64)
        return Reduction(combined.astype(np.int32), flags, counts, members)


class _Seat:
    """The exchanges of one worker."""

    private = False

    def __init__(self, room: QuorumRoom, rank: int) -> None:
        self._room, self._rank, self._number = room, rank, 0

    def all_reduce(self, chunks, flags, operation, inspect=None) -> Reduction:
        if not len(chunks):
            return Reduction.empty(*chunks.shape)
        number, self._number = self._number, self._number + 1
        result = self._room.meet(self._rank, number, integers_of(chunks), operation, flags)
        if inspect:
            inspect(result.lanes[0])
        return result
