"""Exchanges of a node's workers: they sum in shared memory first, and each carries a slice.

Every worker copies its integers into the node's memory. Worker i of the node then combines slice i
of all of them. If there are other nodes, it carries out an exchange of that slice with their i-th
workers, in a job of their own. It writes the result into the memory. So a node contributes each chunk
once. Sums and maxima of integers do not depend on their order, and neither does any bit of a result.

A long array goes in pieces, so that the memory has a constant size. Two tables take turns: a worker
fills one of them while others still read the other. So the workers meet once for each piece, and once
more at the end. If there are no other nodes, each worker combines all of a short array, and they meet
only once.

Bytes that are not summed need no slices. Each worker puts its own on a table, and copies the others' from
there, if there are no other nodes.

The first slice begins with the first row, so the nodes' first workers see whether the workers disagree.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from time import monotonic
from typing import TYPE_CHECKING, NamedTuple, NoReturn, TypeVar

import numpy as np

from innet.errors import JobEnded, UnsupportedTensor, WorkersDisagree
from innet.host import memory
from innet.host.agreement import Call
from innet.host.exchanges import Exchanges
from innet.host.fallback import Fallback
from innet.host.integers import Bytes, Flags, Integers, Reduction
from innet.host.job import ControllerMessages, Timeouts, WorkerInfo
from innet.host.link import Link
from innet.host.node import Node
from innet.host.node_tables import Table, common, tables
from innet.host.paths import Inspect
from innet.host.portions import Portions
from innet.host.quantizers.scaling import Scaling
from innet.host.stopwatch import Stopwatch
from innet.host.stragglers import StragglerLog
from innet.host.waker import Waker
from innet.rpc import innet_pb2 as pb
from innet.wire.layout import Flag, Operation

if TYPE_CHECKING:
    import torch


_WAYS = np.uint16(Flag.CARRIED | Flag.WANTED)
_GATHERING = -1  # no operation has this number
_DIFFERENT = (
    "the workers of a node make different exchanges at once: let all of them make the same calls, in "
    "the same order"
)
Result = TypeVar("Result")


@dataclass(frozen=True)
class _Exchange:
    """One exchange: what this worker sends, and where it wants the result.

    `chunks` has a row for each chunk in `sent`. The chunks in `received` go to the scaling, or to the
    lanes of `result`. The last chunk of all also goes to `last`, (1, lanes), if there is one. If the
    exchange is `portioned`, the flags tell which lanes are sent and wanted.
    """

    chunks: Integers | Scaling
    flags: Flags
    sent: range
    received: range
    operation: Operation
    result: Reduction
    inspect: Inspect | None = None
    last: Integers | None = None
    portioned: bool = False

    def take(self, piece: range, lanes: Integers, flags: Flags) -> None:
        """Take the result of a piece, (n, lanes), and its flags, (n,)."""
        self.result.flags[piece.start : piece.stop] = flags & ~_WAYS
        here, there = common(piece, self.received)
        if isinstance(self.chunks, Scaling):
            first = self.received.start
            rows = range(first + there.start, first + there.stop)
            self.chunks.finish(rows, lanes[here], self.result)
        else:
            self.result.lanes[there] = lanes[here]
        if self.last is not None and piece.stop == len(self.flags):
            self.last[0] = lanes[-1]


class _Unread(NamedTuple):
    """A piece whose result will be on a table."""

    piece: range
    table: Table

    def take(self, exchange: _Exchange) -> None:
        """Take the result."""
        exchange.take(self.piece, *self.table.result(len(self.piece)))


class NodeExchanges(Exchanges):
    """The exchanges of a worker that sums in its node first, in the job of `info`.

    The worker carries a slice for its node. If the node has all workers of the group, nothing leaves it.
    The results are those of all workers of the group. The node's workers make the same calls in the same
    order. If one fails, the others fail with its error, or with NeighbourLost. The node is closed with
    the exchanges.
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
        self._tables = tables(node, info.lanes)
        self._next_table = cycle(self._tables)
        self._alone = node.place.has_all  # whether the node has all workers of the group
        self._stragglers = StragglerLog(self._group)
        self._stopped_by: BaseException | None = None
        self._done_alone = 0  # exchanges within the node, which no term counts

    def all_reduce(
        self,
        chunks: Integers | Scaling,
        flags: Flags,
        operation: Operation,
        inspect: Inspect | None = None,
    ) -> Reduction:
        """Do the same as :meth:`Exchanges.all_reduce`, over all workers of the group.

        If the chunks are a scaling, it takes the lanes of the result.
        """
        every = range(len(chunks))
        result = _empty(chunks, len(every), every)
        return self._reduce(_Exchange(chunks, flags, every, every, operation, result, inspect))

    def gather(self, call: Call, content: Bytes, ranks: range, into: Bytes) -> bool:
        """Do the same as :meth:`Exchanges.gather`, if the node has all workers of the group."""
        if not self._alone:
            return False
        self._carry_out_in_node(1, partial(self._gather, call, content, ranks, into))
        return True

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
        count, received, last = len(flags), portions.received, None
        wanted = flags | portions.flags
        wanted[-1:] |= np.uint16(Flag.WANTED)
        if into:
            lanes, last = into
            result = Reduction.into(lanes, count, received.start)
            received = range(received.start, received.start + len(lanes))
        else:
            result = _empty(chunks, count, received)
        operation = Operation.SUM
        return self._reduce(
            _Exchange(
                chunks,
                wanted,
                portions.sent,
                received,
                operation,
                result,
                last=last,
                portioned=True,
            )
        )

    def fill(self, progress: pb.Progress) -> None:
        """Do the same as :meth:`Exchanges.fill`, also for exchanges that stay in the node."""
        super().fill(progress)
        progress.exchange += self._done_alone

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

    def stop(self, problem: BaseException | None = None) -> None:
        """Do the same as :meth:`Exchanges.stop`. The node's other workers learn of the `problem`."""
        self._stopped_by = problem
        super().stop()

    def give_up(self, problem: BaseException) -> None:
        """Do the same as :meth:`Exchanges.give_up`, and tell the node's other workers."""
        super().give_up(problem)
        self._node.fail(problem)

    def _reduce(self, exchange: _Exchange) -> Reduction:
        """Reduce an array piece by piece."""
        exchange.result.counts[:] = self._group.workers
        self._carry_out_in_node(len(exchange.flags), partial(self._reduce_pieces, exchange))
        exchange.result.freeze()
        return exchange.result

    def _carry_out_in_node(self, chunks: int, work: Callable[[], Result]) -> Result:
        """Return the result of an exchange's work. If it fails, tell the node's other workers."""
        self._first_error.check()
        if self._alone:  # otherwise, progress is that of the exchanges with the other nodes
            self._begun, self._chunks = monotonic(), chunks
        try:
            with self._first_error:
                result = work()
        except BaseException as problem:
            self._node.fail(self._stopped_by or problem)
            raise
        finally:
            if self._alone:
                self._chunks = 0
        if self._alone and chunks:
            self._done_alone += 1
        return result

    def _gather(self, call: Call, content: Bytes, ranks: range, into: Bytes) -> None:
        """Gather bytes piece by piece. The words of the call are before them, as in other exchanges."""
        each = self._tables[0].bytes
        for first in range(0, into.shape[1], each) or (0,):
            piece = slice(first, first + each)
            table = next(self._next_table)
            table.give_bytes(call.words, content[piece])
            if not self._meet(call.size, call.kind, _GATHERING):
                call.check(table.calls.max(axis=0))
                raise WorkersDisagree(_DIFFERENT)
            table.take_bytes(ranks, into[:, piece])

    def _reduce_pieces(self, exchange: _Exchange) -> None:
        count, each, unread = len(exchange.flags), self._tables[0].rows, None
        for first in range(0, count, each):
            piece = range(first, min(first + each, count))
            unread = self._reduce_piece(exchange, piece, next(self._next_table), unread)
        if unread:
            self._meet(0, self._info.lanes, exchange.operation)
            unread.take(exchange)

    def _reduce_piece(
        self, exchange: _Exchange, piece: range, table: Table, unread: _Unread | None
    ) -> _Unread | None:
        """Reduce a piece over all workers of the group.

        Its result is on the table when the node's workers have met again. Until then it is `unread`, as
        the piece before is when this method is called. A piece that this worker combines alone is read at
        once, and the method returns None.
        """
        table.give(exchange.chunks, exchange.flags, piece, exchange.sent)
        brought = len(piece), table.lanes, exchange.operation
        alike = self._meet(*brought)
        if unread:
            unread.take(exchange)
        # If they are not alike, the first row shows all workers of the group how their calls differ.
        rows = len(piece) if alike else 1
        inspect = exchange.inspect if not piece.start else None
        if rows <= table.few:
            lanes, flags = table.combined(slice(0, rows), exchange.operation)
            if inspect:
                inspect(lanes[0])
            if alike:
                exchange.take(piece, lanes, flags)
                return None
        else:
            portioned = exchange.portioned and alike
            self._combine_part(table, rows, exchange.operation, inspect, portioned=portioned)
            if alike:
                return _Unread(piece, table)
            self._meet(*brought)
        raise WorkersDisagree(_DIFFERENT)

    def _combine_part(
        self,
        table: Table,
        rows: int,
        operation: Operation,
        inspect: Inspect | None,
        *,
        portioned: bool,
    ) -> None:
        """Put this worker's part of the result on a table: the combination over all nodes.

        If it is `portioned`, the flags tell which lanes the node sends and receives. Only the worker of
        the first row inspects it.
        """
        own = table.part(rows)
        lanes, flags = table.combine_part(own, operation)
        inspect = inspect if not own.start else None
        if self._alone:
            if inspect:
                inspect(lanes[0])
            return
        ways, others = flags & _WAYS, flags & ~_WAYS
        with self._limits.watching(self._node.check_all):
            if portioned and len(lanes):
                every = range(len(lanes))
                done = super().sum_portions(lanes, others, Portions(ways, every, every))
            else:
                done = super().all_reduce(lanes, others, operation, inspect)
        table.put(own, done.lanes, done.flags)

    def _meet(self, *brought: int) -> bool:
        """Wait for the node's other workers. Return whether all have brought the same three numbers."""
        self._follow()  # other nodes may lack the last result
        self._limits.check_membership()
        meetings = self._node.meetings
        meetings.arrive(*brought)
        if not meetings.complete:
            self._await_others()
        if self._alone:
            self._begun = monotonic()  # the exchange goes on
        return meetings.alike

    def _await_others(self) -> None:
        waited = Stopwatch(monotonic)
        while not self._node.wait(self._waker, 1.0):
            self._follow()
            self._limits.check_membership()
            seconds, late = waited.look(), self._node.late
            self._stragglers.note(seconds, late)
            self._limits.check_node(seconds, late)
        self._stragglers.over()


def _empty(chunks: Integers | Scaling, count: int, received: range) -> Reduction:
    """Return arrays for the result of `count` chunks. It has lanes if `chunks` are no scaling."""
    rows = 0 if isinstance(chunks, Scaling) else len(received)
    lanes = memory.empty((rows, chunks.shape[1]), np.int32)
    return Reduction.into(lanes, count, received.start)
