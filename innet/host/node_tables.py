"""The tables in a node's memory: an array of each worker, and their combination."""

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from innet.host import fastpath
from innet.host.agreement import WORDS
from innet.host.fastpath import at
from innet.host.integers import Bytes, Flags, Integers
from innet.host.node import Node
from innet.host.quantizers.scaling import Scaling, put_integers
from innet.wire.layout import LANE_BYTES, Flag, Operation

_TABLES = 2
_CACHE_LINE = 64  # bytes
_FLAG_BYTES = 2
_CALL_BYTES = WORDS * LANE_BYTES
_NEAR_BYTES = 1 << 20
"""The bytes of a worker's rows if nothing leaves the node: few enough for the processor's caches."""
_FEW_BYTES = 1 << 18
"""The bytes of all workers' rows that each worker combines alone: this takes less time than to meet."""
_CARRIED = np.uint16(Flag.CARRIED)
_COMBINE = {Operation.SUM: np.add, Operation.MAX: np.maximum}


def tables(node: Node, lanes: int) -> "Sequence[Table]":
    """Return the tables that share a node's memory."""
    size = len(node.memory) // _TABLES // _CACHE_LINE * _CACHE_LINE
    return [Table(node, lanes, number * size) for number in range(_TABLES)]


class Table:
    """The arrays in a part of a node's memory: `rows` rows of each worker, and as many of the result.

    The part begins at byte `first`. Each row has `lanes` int32. If nothing leaves the node, each worker
    combines up to `few` rows alone. In place of its rows, a worker may put up to `bytes` bytes there,
    behind the words of its call, which begin the first row: `calls` is (workers, words).
    """

    def __init__(self, node: Node, lanes: int, first: int) -> None:
        workers, self._index = len(node.place.ranks), node.place.index
        row = lanes * LANE_BYTES
        size = len(node.memory) // (workers + 1) // _TABLES
        alone = node.place.has_all
        size = (min(size, _NEAR_BYTES) if alone else size) // _CACHE_LINE * _CACHE_LINE
        self.rows, self.lanes = size // (row + _FLAG_BYTES), lanes
        self.few = _FEW_BYTES // (workers * row) if alone else 0
        self._lanes: Integers = np.ndarray(
            (workers + 1, self.rows, lanes), np.int32, node.memory, first,
            strides=(size, row, LANE_BYTES),
        )  # fmt: skip
        self._flags: Flags = np.ndarray(
            (workers + 1, self.rows), np.uint16, node.memory, first + self.rows * row,
            strides=(size, _FLAG_BYTES),
        )  # fmt: skip
        self.bytes = max(self.rows * row - _CALL_BYTES, 0)
        self.calls: Integers = np.ndarray(
            (workers, WORDS), np.int32, node.memory, first, strides=(size, LANE_BYTES)
        )
        self._bytes: Bytes = np.ndarray(
            (workers, self.bytes), np.uint8, node.memory, first + _CALL_BYTES, strides=(size, 1)
        )

    def give(self, chunks: Integers | Scaling, flags: Flags, piece: range, sent: range) -> None:
        """Put a piece of a contribution on the table. `chunks` has a row for each chunk in `sent`."""
        here, there = common(piece, sent)
        put_integers(chunks, there, self._lanes[self._index, here])
        own = self._flags[self._index, : len(piece)]
        own[:] = flags[piece.start : piece.stop] & ~_CARRIED
        own[here] |= _CARRIED

    def give_bytes(self, call: Integers, content: Bytes) -> None:
        """Put bytes on the table, behind the words of a call."""
        self.calls[self._index] = call
        self._bytes[self._index, : len(content)] = content
        self._flags[self._index, 0] = _CARRIED

    def take_bytes(self, indices: range, into: Bytes) -> None:
        """Copy the bytes of some workers `into` (indices, size)."""
        into[:] = self._bytes[indices.start : indices.stop, : into.shape[1]]

    def part(self, rows: int) -> slice:
        """Return this worker's part of so many rows. It is empty if there are too few for all."""
        each = -(-rows // (len(self._lanes) - 1))
        first = min(self._index * each, rows)
        return slice(first, min(first + each, rows))

    def combined(self, rows: slice, operation: Operation) -> tuple[Integers, Flags]:
        """Return the combination of all workers' rows, (n, lanes), and their flags, (n,)."""
        lanes = np.empty((rows.stop - rows.start, self.lanes), np.int32)
        self._combine_given(rows, operation, lanes)
        return lanes, np.bitwise_or.reduce(self._flags[:-1, rows], axis=0)

    def combine_part(self, rows: slice, operation: Operation) -> tuple[Integers, Flags]:
        """Do the same as :meth:`combined`, and leave the result on the table."""
        lanes, flags = self._lanes[-1, rows], self._flags[-1, rows]
        self._combine_given(rows, operation, lanes)
        np.bitwise_or.reduce(self._flags[:-1, rows], axis=0, out=flags)
        return lanes, flags

    def put(self, rows: slice, lanes: Integers, flags: Flags) -> None:
        """Put the result of some rows on the table."""
        self._lanes[-1, rows], self._flags[-1, rows] = lanes, flags

    def result(self, rows: int) -> tuple[Integers, Flags]:
        """Return the result of the first rows, (rows, lanes), and their flags, (rows,)."""
        return self._lanes[-1, :rows], self._flags[-1, :rows]

    def _combine_given(self, rows: slice, operation: Operation, into: Integers) -> None:
        """Combine the rows that workers have given. A row that nobody has given becomes zeros."""
        if into.size:
            for some, givers in self._runs(rows):
                given = self._lanes[:-1, some]
                found = into[some.start - rows.start : some.stop - rows.start]
                if len(givers) == len(given):
                    _combine(given, operation, found)
                elif givers:
                    _combine(given[givers], operation, found)
                else:
                    found[:] = 0

    def _runs(self, rows: slice) -> Iterator[tuple[slice, Sequence[int]]]:
        """Yield runs of rows that the same workers have given, and the indices of these workers."""
        gives = self._flags[:-1, rows] & _CARRIED
        if gives.all():
            yield rows, range(len(gives))
            return
        changes = 1 + np.flatnonzero((gives[:, 1:] != gives[:, :-1]).any(axis=0))
        for start, stop in pairwise([0, *changes.tolist(), gives.shape[1]]):
            givers = np.flatnonzero(gives[:, start]).tolist()
            yield slice(rows.start + start, rows.start + stop), givers


def _combine(given: Integers, operation: Operation, into: Integers) -> None:
    """Combine (workers, rows, lanes) into (rows, lanes). Sums are those modulo 2^32, as in the switch."""
    library = fastpath.compiled() if operation == Operation.SUM else None
    if library and given[0].flags.c_contiguous:
        library.innet_add(
            at(given[0], np.int32), len(given), given.strides[0] // LANE_BYTES, into.size,
            at(into, np.int32),
        )  # fmt: skip
    else:
        _COMBINE[operation].reduce(given, axis=0, dtype=np.int32, out=into)


def common(piece: range, other: range) -> tuple[slice, slice]:
    """Return the common part of two ranges, counted from the start of each."""
    if piece == other:
        whole = slice(0, len(piece))
        return whole, whole
    start, stop = max(piece.start, other.start), min(piece.stop, other.stop)
    stop = max(start, stop)
    here = slice(min(start - piece.start, len(piece)), min(stop - piece.start, len(piece)))
    return here, slice(start - other.start, stop - other.start)
