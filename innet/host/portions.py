"""Portions of a vector: the chunks whose lanes a worker sends, and those whose lanes it receives.

Every worker contributes to every chunk, and gets an answer for each. But a contribution without lanes
adds nothing, and a result may come without them. So a reduce-scatter's lanes come down for their owner
only, and an all-gather's go up from their owner only.
"""

from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from innet.host.integers import Flags, Integers, Reduction
from innet.wire.layout import Flag


@dataclass(frozen=True)
class Portions:
    """A worker's portions of an exchange of n chunks.

    `flags`, (n,) uint16, have CARRIED and WANTED. A contribution has a row for each chunk of `sent`, and
    a result has a row for each chunk of `received`. These ranges hold at least the flagged chunks. If all
    workers send and receive all chunks, the chunks go `in_order`.
    """

    flags: Flags
    sent: range
    received: range
    in_order: bool = False

    @classmethod
    def of(cls, chunks: int, sent: range, received: range) -> "Portions":
        """Return the portions with exactly these ranges of chunks."""
        flags = np.zeros(chunks, np.uint16)
        flags[sent.start : sent.stop] = Flag.CARRIED
        flags[received.start : received.stop] |= np.uint16(Flag.WANTED)
        return cls(flags, sent, received)

    @classmethod
    def receiving(cls, part: range, chunks: int, elements: int) -> "Portions":
        """Return the portions of a worker that sends all chunks and receives a part of the vector.

        `part` is a range of the vector's elements. A chunk has `elements` of them.
        """
        first = part.start // elements
        received = range(first, -(-part.stop // elements) if part else first)
        return cls.of(chunks, range(chunks), received)

    def part(self, start: int, stop: int) -> "Portions":
        """Return the portions of some chunks, counted from the first of them."""
        sent, received = (
            range(*(min(max(each, start), stop) - start for each in (which.start, which.stop)))
            for which in (self.sent, self.received)
        )
        return Portions(self.flags[start:stop], sent, received, self.in_order)

    def wanting_all(self) -> "Portions":
        """Return the portions of a worker that sends the same, and receives all lanes."""
        every = self.flags | np.uint16(Flag.WANTED)
        return Portions(every, self.sent, range(len(self.flags)), self.in_order)

    def carrying_all(self) -> "Portions":
        """Return the portions of a worker that sends all lanes, and receives the same."""
        every = self.flags | np.uint16(Flag.CARRIED)
        return Portions(every, range(len(self.flags)), self.received, self.in_order)

    def spread(self, sent: Integers) -> Integers:
        """Return the contribution with rows of zeros for the chunks that are not sent, (n, lanes)."""
        every = np.zeros((len(self.flags), sent.shape[1]), np.int32)
        every[self.sent.start : self.sent.stop] = sent[: len(self.sent)]
        return every

    def received_of(self, result: Reduction, into: Any) -> Reduction:
        """Return a result with only the received chunks' lanes, given one with all lanes.

        They are copied `into` an array, if this is one.
        """
        rows = result.lanes[self.received.start : self.received.stop]
        if isinstance(into, np.ndarray):
            into[:] = rows
            rows = into
        first = self.received.start
        return replace(result, lanes=rows, first=first)

    def order(self, workers: int) -> Integers | None:
        """Return the order in which the chunks go, the same on all workers; see :func:`interleaved`.

        It is None if they go in order.
        """
        return None if self.in_order else interleaved(len(self.flags), workers)

    @classmethod
    def whole(cls, chunks: int) -> "Portions":
        """Return the portions of an all-reduce. Those of few chunks are cached."""
        return _few(chunks) if chunks <= _FEW else _whole(chunks)


_FEW = 64
"""The most chunks of an all-reduce whose portions are cached."""


def _whole(chunks: int) -> Portions:
    return replace(Portions.of(chunks, range(chunks), range(chunks)), in_order=True)


@lru_cache(maxsize=_FEW)
def _few(chunks: int) -> Portions:
    """Return the portions of an all-reduce of few chunks, with read-only flags."""
    made = _whole(chunks)
    made.flags.setflags(write=False)
    return made


@lru_cache(maxsize=16)
def interleaved(chunks: int, workers: int) -> Integers:
    """Return all chunks, (n,) int32, in an order that takes one of each worker's part in turn.

    In a reduce-scatter or an all-gather, the link of a part's owner carries the part's lanes in both
    directions. Suppose that the parts went one after the other, and two collectives were under way at
    once. Then one link at a time would carry the lanes of both, and all other workers would wait for it.
    """
    each = -(-chunks // workers)
    order = np.arange(each * workers, dtype=np.int32).reshape(workers, each).T.ravel()
    order = order[order < chunks]
    order.setflags(write=False)
    return order


def portion(values: npt.NDArray[Any], part: range | None) -> npt.NDArray[Any]:
    """Return the part of a flat vector, or all of it."""
    return values if part is None else values[part.start : part.stop]


def cut(rows: Any, first: int, part: range) -> Any:
    """Return a part of a vector, given rows that begin with element `first`."""
    return rows.reshape(-1)[part.start - first : part.stop - first]
