"""I/O rounds in C, which do the same as :mod:`innet.host.numpy_rounds` for many batches of packets.

:mod:`innet.host.fastpath` tells how the two share the work.
"""

import ctypes
from collections.abc import Sequence
from typing import Protocol, cast

import numpy as np

from innet.host import structs
from innet.host.connections import Connection, Formats
from innet.host.fastpath import at, raise_errno
from innet.host.integers import Bitmaps, Flags, Integers, Reduction
from innet.host.packets import Packets
from innet.host.rounds import RoundLimits, RoundOutcome
from innet.host.structs import POINTER, NativeScaling
from innet.host.window import Window
from innet.wire.layout import Flag


class NativeLink(Protocol):
    """The attributes of a link that C needs; see :class:`innet.host.link.Link`."""

    leaving: Formats
    native: Connection | None
    corrupted: int


class _Outcome(structs.IoRound):
    """A struct that C has filled in, with all fields of a :class:`innet.host.rounds.RoundOutcome`.

    It is used as the outcome, because copying the fields would take longer than a small exchange's
    packets.
    """

    others: Packets | None = None

    @property
    def round_trips(self) -> Sequence[float]:
        """Return the measured round trips."""
        found: Sequence[float] = self.times[: self.samples]
        return found


class CompiledRounds:
    """A worker's I/O rounds in one term; see :class:`innet.host.rounds.IoRounds`."""

    def __init__(
        self,
        library: ctypes.CDLL,
        link: NativeLink,
        window: Window,
        identity: tuple[int, int, int],
        packets: Packets,
        answers: Bitmaps,
        *,
        has_quorum: bool = False,
    ) -> None:
        """Lay out the C structs. `identity` is job, term and first slot.

        `packets` and `answers` have an item for each slot. A job that `has_quorum` may have results
        without some workers.
        """
        job, term, first_slot = identity
        slots = window.slots
        if not link.native:
            raise AssertionError
        if not 0 <= first_slot <= (1 << 16) - slots:
            raise AssertionError
        self._library, self._link, self._state = library, link, window
        self._native = link.native
        self._scratch, finished = np.empty((2, slots), np.int64)
        arrays = window.arrays
        self._kept = [packets, answers, finished, *arrays.values()]
        self._window = structs.Window(
            slots, first_slot, *(at(each, each.dtype, slots) for each in arrays.values()),
            at(self._scratch, np.int64, slots), job, term, has_quorum,
        )  # fmt: skip
        self._vectors = structs.Vectors()
        self._vectors_at = ctypes.addressof(self._vectors)
        self._outbox = structs.Outbox(
            (POINTER * 2)(*(ctypes.addressof(each.native) for each in link.leaving)),
            (POINTER * 2)(
                at(packets.bare, link.leaving.bare.dtype, slots),
                at(packets.full, link.leaving.full.dtype, slots),
            ),
        )
        self._worker = structs.Worker(
            *map(ctypes.addressof, (
                self._window, self._native.buffers.inbox, self._outbox, self._vectors)),
            at(answers, np.uint64, slots), at(finished, np.int64, slots),
        )  # fmt: skip
        self._results: list[object] = []
        self._begins = False

    def start(
        self,
        chunks: "Integers | NativeScaling",
        own_flags: Flags,
        result: Reduction,
        first: int = 0,
        order: Integers | None = None,
    ) -> None:
        """Begin an exchange; see :meth:`innet.host.rounds.IoRounds.start`.

        A scaling makes the integers of a chunk when it is sent, and the floats when its result arrives.
        """
        count, lanes = len(own_flags), self._link.leaving.full.native.lanes
        own, scaling = None, None
        if isinstance(chunks, NativeScaling):
            scaling = ctypes.addressof(chunks)
            if lanes != chunks.lanes or first:
                raise AssertionError
            _check_rows(own_flags, Flag.WANTED, chunks.first, chunks.count)
        else:
            own = at(chunks, np.int32, len(chunks) * lanes)
            _check_rows(own_flags, Flag.CARRIED, first, len(chunks))
        sums = None
        if not scaling or len(result.lanes):
            sums = at(result.lanes, np.int32, len(result.lanes) * lanes)
            _check_rows(own_flags, Flag.WANTED, result.first, len(result.lanes))
        if count != self._state.chunks:
            raise AssertionError
        fields = (
            count, first, result.first, lanes, own, at(own_flags, np.uint16, count),
            sums, at(result.flags, np.uint16, count),
            at(result.counts, np.uint16, count), at(result.members, np.uint64, count),
            scaling, None if order is None else at(order, np.int32, count),
        )  # fmt: skip
        self._results = [chunks, own_flags, result, order]
        self._begins = True
        structs.Vectors.__init__(self._vectors, *fields)  # in place: C has the struct's address

    def stop(self) -> None:
        """Release the vectors of an exchange that is over."""
        ctypes.memset(self._vectors_at, 0, ctypes.sizeof(self._vectors))
        self._results = []

    def run(self, limits: RoundLimits) -> RoundOutcome:
        """Send and receive until there is something to decide. Raises OSError."""
        window = self._state
        done = _Outcome(
            limits.most, limits.batches, limits.until, limits.idle,
            limits.round_trip_began, limits.steady, limits.too_soon, limits.reordering,
            window.quiet_until, window.remaining, limits.most_queued, window.newest,
            limits.owed_since, self._begins,
        )  # fmt: skip
        self._begins = False
        self._library.innet_io_round(self._native.network, self._worker, done)
        self._link.corrupted += done.corrupted
        if done.error:
            raise_errno(done.error)
        window.finish_in_c(done.finished, done.newest)
        if done.unread:
            done.others = self._native.buffers.packets
        return cast("RoundOutcome", done)

    @property
    def worker(self) -> int:
        """Return the address of the C struct of this worker, for other C code that drives it."""
        return ctypes.addressof(self._worker)


def _check_rows(flags: Flags, flag: Flag, first: int, rows: int) -> None:
    """Raise AssertionError unless the `rows` rows from chunk `first` on have all chunks with a flag."""
    if first <= 0 and first + rows >= len(flags):
        return
    chunks = np.flatnonzero(flags & flag)
    if chunks.size and not first <= chunks[0] <= chunks[-1] < first + rows:
        raise AssertionError(f"chunks {chunks[0]} to {chunks[-1]}: {rows} rows from {first} on")
