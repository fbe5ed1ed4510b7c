"""Collectives that move bytes without adding them: all-gather, broadcast and barrier.

The bits of any dtype travel in int32 lanes. A worker sends the lanes of its own bytes only, so that the
switch's sum consists of these bytes. Where the bytes of two workers meet in a lane, each sends zeros in
place of the other's. Few bytes are gathered in one exchange instead (:mod:`innet.host.gathering`), which
is one round trip.
"""

from collections.abc import Sequence

import numpy as np

from innet.errors import UnsupportedTensor, WorkersMissing
from innet.host import memory
from innet.host.agreement import ALL_GATHER, BARRIER, Call, Collective
from innet.host.exchanges import Exchanges
from innet.host.gathering import Gathering, layout
from innet.host.integers import Bytes, Integers, Reduction
from innet.host.job import WorkerInfo
from innet.host.maxima import Maxima
from innet.host.portions import Portions
from innet.wire.layout import LANE_BYTES

MOST_BYTES = 2**31 - 1
"""The most bytes that a worker can gather or broadcast in one call."""

_BARRIER = Call(0, "bytes", collective=BARRIER)
_NOTHING = np.empty(0, np.uint8)


class Moves:
    """A worker's moves. Every worker of the job makes the same calls in the same order.

    All workers' bytes are needed. Raises WorkersMissing if a result lacks those of a worker, because
    it has left or came after the quorum.
    """

    def __init__(self, exchanges: Exchanges, info: WorkerInfo) -> None:
        self._exchanges, self._info = exchanges, info
        self._maxima = Maxima(exchanges, info)

    def all_gather(
        self, own: Bytes, into: Bytes | None = None, collective: Collective = ALL_GATHER
    ) -> Bytes:
        """Return the bytes of all workers, (workers, size), given this worker's own, (size,).

        They are written `into` an array, (workers * size,), if one is given.
        """
        _check_size(own)
        gathering = layout(self._info, own.size, collective=collective)
        workers = self._info.workers
        found = memory.empty((workers * own.size,), np.uint8) if into is None else into
        by_worker = found.reshape(workers, own.size)
        if self._exchanges.gather(gathering.call, own, range(workers), by_worker):
            return by_worker
        if gathering.fits:
            by_worker[:] = self._gathered(gathering, own)
        else:
            self._maxima.agree(gathering.call)
            done = self._move(own, self._info.rank * own.size, found, found.size)
            self._check(self._lacking(done, own.size))
        return by_worker

    def broadcast(self, own: Bytes, root: int, into: Bytes | None = None) -> Bytes:
        """Return the bytes of rank `root`, (size,). On other ranks, `own` only gives the size.

        On the other ranks they are written `into` an array, (size,), if one is given.
        """
        _check_size(own)
        gathering = layout(self._info, own.size, collective=Collective("broadcast", root))
        is_root = self._info.rank == root
        found = own if is_root else memory.empty((own.size,), np.uint8) if into is None else into
        others = range(0) if is_root else range(root, root + 1)
        wanted = found.reshape(1, -1)[: len(others)]
        if self._exchanges.gather(gathering.call, own if is_root else own[:0], others, wanted):
            return found
        if gathering.fits:
            gathered = self._gathered(gathering, own)[root]
            if not is_root:
                found[:] = gathered
            return found
        self._maxima.agree(gathering.call)
        if is_root:
            done = self._move(own, 0, found[:0], own.size)
        else:
            done = self._move(own[:0], 0, found, own.size)
        self._check([] if done.includes(root, self._info.workers).all() else [root])
        return found

    def barrier(self) -> None:
        """Return when all workers have called this method. This takes one packet each way."""
        if not self._exchanges.gather(_BARRIER, _NOTHING, range(0), _NOTHING.reshape(0, 0)):
            self._maxima.agree(_BARRIER)

    def _gathered(self, gathering: Gathering, own: Bytes) -> Bytes:
        found, present = self._maxima.gather(gathering, _padded(own, LANE_BYTES).view(np.int32))
        self._check(np.flatnonzero(~present.all(axis=1)).tolist())
        content: Bytes = np.ascontiguousarray(found).view(np.uint8)
        return content.reshape(self._info.workers, -1)[:, : own.size]

    def _move(self, content: Bytes, first: int, into: Bytes, size: int) -> Reduction:
        """Move `size` bytes, of which this worker has `content`, from byte `first` on.

        All of them are written `into` an array, unless that is empty. Returns the exchange's result.
        """
        lanes = self._info.lanes
        width = LANE_BYTES * lanes
        count = -(-size // width)
        sent = range(first // width, -(-(first + content.size) // width))
        sent = sent if content.size else range(0)
        own = np.zeros(len(sent) * width, np.uint8)
        start = first - sent.start * width
        own[start : start + content.size] = content
        before = into[: (count - 1) * width]
        rows, last = _as_rows(before, lanes), np.empty((1, lanes), np.int32)
        portions = Portions.of(count, sent, range(count if into.size else 0))
        none = np.zeros(count, np.uint16)
        done = self._exchanges.sum_portions(_as_rows(own, lanes), none, portions, (rows, last))
        if into.size:
            if not np.shares_memory(rows, before):
                before[:] = rows.reshape(-1).view(np.uint8)
            into[before.size :] = last.reshape(-1).view(np.uint8)[: into.size - before.size]
        return done

    def _lacking(self, done: Reduction, size: int) -> list[int]:
        """Return the ranks that a chunk lacks although it should have some of their `size` bytes."""
        width = LANE_BYTES * self._info.lanes
        workers = self._info.workers
        if (done.counts == workers).all():
            return []
        return [
            rank
            for rank in range(workers)
            if not done.includes(rank, workers)[
                rank * size // width : -(-(rank + 1) * size // width)
            ].all()
        ]

    def _check(self, lacking: Sequence[int]) -> None:
        """Raise WorkersMissing if any ranks are lacking."""
        if lacking:
            names = ", ".join(map(str, lacking))
            raise WorkersMissing(
                f"the bytes of worker {names} are missing: it has left the job, or came after the "
                "quorum, and nobody else has them; join the job again, or let its quorum be all workers"
            )


def _check_size(content: Bytes) -> None:
    """Raise UnsupportedTensor if the words of a call cannot hold the number of these bytes."""
    if content.size > MOST_BYTES:
        raise UnsupportedTensor(
            f"{content.size} bytes are more than {MOST_BYTES}: split the tensor"
        )


def _as_rows(content: Bytes, lanes: int) -> Integers:
    """Return a view of bytes as rows of lanes, or if they are not aligned, new rows without content."""
    if content.ctypes.data % LANE_BYTES:
        return memory.empty((content.size // (LANE_BYTES * lanes), lanes), np.int32)
    return content.view(np.int32).reshape(-1, lanes)


def _padded(content: Bytes, multiple: int) -> Bytes:
    """Return the bytes, followed by zeros up to a size that is a multiple of `multiple`."""
    padded = np.zeros(-(-content.size // multiple) * multiple, np.uint8)
    padded[: content.size] = content
    return padded
