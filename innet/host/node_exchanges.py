"""Exchanges of a node's workers: they sum in shared memory first, and each carries a slice.

Every worker copies its integers into the node's memory. Worker i of the node then combines slice i
of all of them. It carries out an exchange of that slice with the i-th workers of the other nodes,
in a job of their own, and writes the result into the memory. So a node contributes each chunk once.
Sums and maxima of integers do not depend on their order, and neither does any bit of a result.

A long array goes in pieces, so that the memory has a constant size. The first slice begins with the
first row, so the nodes' first workers see whether the workers disagree.
"""

from collections.abc import Callable
from time import monotonic
from typing import TYPE_CHECKING, NoReturn

import numpy as np

from innet.errors import JobEnded, UnsupportedTensor, WorkersDisagree
from innet.host import memory
from innet.host.exchanges import Exchanges
from innet.host.fallback import Fallback
from innet.host.integers import Flags, Integers, Reduction
from innet.host.job import ControllerMessages, Timeouts, WorkerInfo
from innet.host.link import Link
from innet.host.node import Arrival, Node
from innet.host.paths import Inspect
from innet.host.portions import Portions
from innet.host.quantizers.scaling import Scaling, put_integers
from innet.host.stopwatch import Stopwatch
from innet.host.stragglers import StragglerLog
from innet.host.waker import Waker
from innet.wire.layout import LANE_BYTES, Flag, Operation

if TYPE_CHECKING:
    import torch

_FLAG_BYTES = 2
_COMBINE = {Operation.SUM: np.add, Operation.MAX: np.maximum}


class NodeExchanges(Exchanges):
    """The exchanges of a worker that carries a slice for its node, in the job of `info`.

    The results are those of all workers of the group. The node's workers make the same calls in the
    same order. If one fails, the others fail with its error, or with NeighbourLost. The node is
    closed with the exchanges.
    """

    def __init__(
        self,
        node: Node,
        link: Link,
        info: WorkerInfo,
        controller: ControllerMessages,
        waker: Waker,
        timeouts: Timeouts,
        fallback: Fallback | None = None,
    ) -> None:
        super().__init__(link, info, controller, waker, timeouts, fallback)
        self._node, self._group = node, node.place.info(info)
        self._table = _Table(node, info.lanes)
        self._stragglers = StragglerLog(self._group)

    def all_reduce(
        self,
        chunks: Integers | Scaling,
        flags: Flags,
        operation: Operation,
        inspect: Inspect | None = None,
    ) -> Reduction:
        """Do the same as :meth:`Exchanges.all_reduce`, over all workers of the group."""
        self._first_error.check()
        result = Reduction.empty(*chunks.shape)

        def reduce_piece(rows: range) -> None:
            self._table.give(chunks, flags, rows, range(len(chunks)))
            self._reduce_piece(len(rows), operation, None if rows.start else inspect)
            self._table.take(result, rows)

        self._in_pieces(reduce_piece, result)
        result.freeze()
        return result

    def sum_portions(
        self,
        chunks: Integers | Scaling,
        flags: Flags,
        portions: Portions,
        into: tuple[Integers, Integers] | None = None,
    ) -> Reduction:
        """Do the same as :meth:`Exchanges.sum_portions`, over all workers of the group.

        The flags of a node's ranks are or-ed, so that the node sends and receives what any of them
        does.
        """
        self._first_error.check()
        count, received = len(flags), portions.received
        lanes = into[0] if into else memory.empty((len(received), chunks.shape[1]), np.int32)
        result = Reduction.into(lanes, count, received.start)
        wanted = flags | portions.flags
        wanted[-1:] |= np.uint16(Flag.WANTED)

        def sum_piece(piece: range) -> None:
            self._table.give(chunks, wanted, piece, portions.sent)
            self._reduce_piece(len(piece), Operation.SUM, portioned=True)
            self._table.take(result, piece)
            if into and piece.stop == count:
                into[1][0] = self._table.row(len(piece) - 1)

        self._in_pieces(sum_piece, result)
        if isinstance(chunks, Scaling):
            rows = np.arange(received.start, received.stop)
            chunks.take(rows, result.lanes, result.counts[rows])
        return result

    def combine(self, tensor: "torch.Tensor", *, mean: bool) -> NoReturn:
        """Refuse: the fallback connects the workers of the slice only. Raises UnsupportedTensor."""
        del mean
        raise UnsupportedTensor(f"the ranks of a node do not sum {tensor.dtype}: convert it first")

    def attend(self) -> None:
        """Do the same as :meth:`Exchanges.attend`, and tell the node if the membership has ended."""
        super().attend()
        if ended := self._controller.ended:
            self._node.fail(self.failure or JobEnded(ended))

    def close(self) -> None:
        """Leave the node. Its other workers notice that."""
        self._node.close()

    def give_up(self, problem: BaseException) -> None:
        """Do the same as :meth:`Exchanges.give_up`, and tell the node's other workers."""
        super().give_up(problem)
        self._node.fail(problem)

    def _in_pieces(self, reduce_piece: Callable[[range], None], result: Reduction) -> None:
        """Fill a result piece by piece. If this fails, tell the node's other workers."""
        result.counts[:] = self._group.workers
        count = len(result.flags)
        try:
            with self._first_error:
                for first in range(0, count, self._table.rows):
                    reduce_piece(range(first, min(first + self._table.rows, count)))
        except BaseException as problem:
            self._node.fail(problem)
            raise

    def _reduce_piece(
        self,
        rows: int,
        operation: Operation,
        inspect: Inspect | None = None,
        *,
        portioned: bool = False,
    ) -> None:
        """Reduce the piece on the table over all workers of the group.

        If it is `portioned`, the flags tell which lanes the node sends and receives.
        """
        brought = Arrival(rows, self._table.lanes, operation)
        alike = self._meet(brought)
        # If they are not alike, the first row shows all workers of the group how their calls differ.
        own = self._table.part(rows if alike else 1)
        lanes, flags = self._table.combined(own, operation)
        with self._limits.watching(self._node.check_all):
            if portioned and alike and len(lanes):
                done = self._sum_slice(lanes, flags)
            else:
                done = super().all_reduce(lanes, flags, operation, None if own.start else inspect)
        self._table.put(own, done)
        self._meet(brought)
        if not alike:
            raise WorkersDisagree(
                "the workers of a node make different exchanges at once: let all of them make the same "
                "calls, in the same order"
            )

    def _sum_slice(self, lanes: Integers, flags: Flags) -> Reduction:
        ways = flags & np.uint16(Flag.CARRIED | Flag.WANTED)
        every = range(len(lanes))
        return super().sum_portions(lanes, flags & ~ways, Portions(ways, every, every))

    def _meet(self, brought: Arrival) -> bool:
        """Wait for the node's other workers. Return whether all have brought arrays of one shape."""
        self._node.arrive(brought)
        waited = Stopwatch(monotonic)
        while True:
            self._follow()  # other nodes may lack the last result
            self._limits.check_membership()
            self._node.check()
            if not (late := self._node.late):
                break
            seconds = waited.look()
            self._stragglers.note(seconds, late)
            self._limits.check_node(seconds, late)
            self._node.wait(self._waker, 1.0)
        self._stragglers.over()
        return all(each == brought for each in self._node.leave().values())


class _Table:
    """The arrays in a node's memory: `rows` rows of each worker, and as many of the result."""

    def __init__(self, node: Node, lanes: int) -> None:
        workers, self._index = len(node.place.ranks), node.place.index
        piece = len(node.memory) // (workers + 1)
        self.rows, self.lanes = piece // (lanes * LANE_BYTES + _FLAG_BYTES), lanes
        self._lanes: Integers = np.ndarray(
            (workers + 1, self.rows, lanes), np.int32, node.memory,
            strides=(piece, lanes * LANE_BYTES, LANE_BYTES),
        )  # fmt: skip
        self._flags: Flags = np.ndarray(
            (workers + 1, self.rows), np.uint16, node.memory, self.rows * lanes * LANE_BYTES,
            strides=(piece, _FLAG_BYTES),
        )  # fmt: skip

    def give(self, chunks: Integers | Scaling, flags: Flags, piece: range, sent: range) -> None:
        """Copy a piece of a contribution onto the table.

        `chunks` has a row for each chunk in `sent`. The others become zeros on the table.
        """
        own = self._lanes[self._index, : len(piece)]
        here, there = _common(piece, sent)
        put_integers(chunks, there, own[here])
        own[: here.start] = own[here.stop :] = 0
        self._flags[self._index, : len(piece)] = flags[piece.start : piece.stop]

    def take(self, result: Reduction, piece: range) -> None:
        """Copy the result on the table to its place in the whole result."""
        received = range(result.first, result.first + len(result.lanes))
        here, there = _common(piece, received)
        result.lanes[there] = self._lanes[-1, here]
        result.flags[piece.start : piece.stop] = self._flags[-1, : len(piece)]

    def row(self, index: int) -> Integers:
        """Return a row of the result, (lanes,)."""
        row: Integers = self._lanes[-1, index]
        return row

    def part(self, rows: int) -> slice:
        """Return this worker's part of so many rows. It is empty if there are too few for all."""
        each = -(-rows // (len(self._lanes) - 1))
        first = min(self._index * each, rows)
        return slice(first, min(first + each, rows))

    def combined(self, rows: slice, operation: Operation) -> tuple[Integers, Flags]:
        """Return the combination of all workers' rows, (n, lanes), and their flags, (n,)."""
        given = self._lanes[:-1, rows]
        combined = memory.empty(given.shape[1:], np.int32)
        _COMBINE[operation].reduce(given, axis=0, dtype=np.int32, out=combined)
        flags: Flags = np.bitwise_or.reduce(self._flags[:-1, rows], axis=0)
        return combined, flags

    def put(self, rows: slice, done: Reduction) -> None:
        """Copy the result of some rows onto the table."""
        self._lanes[-1, rows], self._flags[-1, rows] = done.lanes, done.flags


def _common(piece: range, other: range) -> tuple[slice, slice]:
    """Return the common part of two ranges, counted from the start of each."""
    start, stop = max(piece.start, other.start), min(piece.stop, other.stop)
    stop = max(start, stop)
    here = slice(min(start - piece.start, len(piece)), min(stop - piece.start, len(piece)))
    return here, slice(start - other.start, stop - other.start)
