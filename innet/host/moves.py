"""Collectives that move bytes without adding them: all-gather, broadcast and barrier.

The bits of any dtype travel in int32 lanes. Where a worker has nothing to send, it sends zeros, so
that the switch's sum has the bits of the one worker that has. Few bytes are gathered in one
exchange instead (:mod:`innet.host.gathering`), which is one round trip.
"""

import numpy as np
import numpy.typing as npt

from innet.errors import WorkersMissing
from innet.host.agreement import ALL_GATHER, BARRIER, Call, Collective
from innet.host.exchanges import Exchanges
from innet.host.gathering import Gathering
from innet.host.job import WorkerInfo
from innet.host.maxima import Maxima
from innet.wire.layout import LANE_BYTES, Operation

Bytes = npt.NDArray[np.uint8]

_WORD = np.dtype(np.int32)


class Moves:
    """A worker's moves. Every worker of the job makes the same calls in the same order.

    All workers' bytes are needed. Raises WorkersMissing if a result lacks those of a worker, because
    it has left or came after the quorum.
    """

    def __init__(self, exchanges: Exchanges, info: WorkerInfo) -> None:
        self._exchanges, self._info = exchanges, info
        self._maxima = Maxima(exchanges, info)

    def all_gather(self, own: Bytes) -> Bytes:
        """Return the bytes of all workers, (workers, size), given this worker's own, (size,)."""
        call = Call(own.size, "bytes", collective=ALL_GATHER)
        if (small := self._small(call)).fits:
            return self._gathered(small, own)
        self._maxima.agree(call)
        senders = np.repeat(np.arange(self._info.workers), self._chunks(own.size))
        found = self._moved(own, senders)
        return found.reshape(self._info.workers, -1)[:, : own.size]

    def broadcast(self, own: Bytes, root: int) -> Bytes:
        """Return the bytes of rank `root`, (size,). The others' count only for their size."""
        call = Call(own.size, "bytes", collective=Collective("broadcast", root))
        if (small := self._small(call)).fits:
            chosen: Bytes = self._gathered(small, own)[root]
            return chosen
        self._maxima.agree(call)
        senders = np.full(self._chunks(own.size), root)
        return self._moved(own, senders).reshape(-1)[: own.size]

    def barrier(self) -> None:
        """Return when all workers have called it: one packet each way."""
        self._maxima.agree(Call(0, "bytes", collective=BARRIER))

    def _small(self, call: Call) -> Gathering:
        return Gathering(call, self._info, _WORD)

    def _gathered(self, small: Gathering, own: Bytes) -> Bytes:
        found, present = self._maxima.gather(small, _padded(own, LANE_BYTES).view(np.int32))
        self._check(np.flatnonzero(~present.all(axis=1)))
        content: Bytes = np.ascontiguousarray(found).view(np.uint8)
        return content.reshape(self._info.workers, -1)[:, : own.size]

    def _chunks(self, size: int) -> int:
        return -(-size // (LANE_BYTES * self._info.lanes))

    def _moved(self, own: Bytes, senders: npt.NDArray[np.int64]) -> Bytes:
        """Return the bytes of chunks, (chunks, bytes of a chunk). `senders` has a rank for each."""
        chunks = np.zeros((len(senders), self._info.lanes), np.int32)
        mine = senders == self._info.rank
        if mine.any():
            rows = _padded(own, LANE_BYTES * self._info.lanes).view(np.int32)
            chunks[mine] = rows.reshape(-1, self._info.lanes)
        none = np.zeros(len(chunks), np.uint16)
        done = self._exchanges.all_reduce(chunks, Operation.SUM, none)
        lacking = ~done.includes(senders, self._info.workers)
        self._check(np.unique(senders[lacking]))
        return done.lanes.view(np.uint8)

    def _check(self, lacking: npt.NDArray[np.int64]) -> None:
        """Raise WorkersMissing if any ranks are lacking."""
        if lacking.size:
            names = ", ".join(map(str, lacking))
            raise WorkersMissing(
                f"the bytes of worker {names} are missing: it has left the job, or came after the "
                "quorum, and nobody else has them"
            )


def _padded(content: Bytes, multiple: int) -> Bytes:
    """Return the bytes in order, with zeros up to a multiple of so many."""
    padded = np.zeros(-(-content.size // multiple) * multiple, np.uint8)
    padded[: content.size] = content
    return padded
