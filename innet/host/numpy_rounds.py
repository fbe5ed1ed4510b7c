"""I/O rounds in numpy.

Python handles batches, never single packets. One system call receives a batch, a few numpy
operations match it with the window, and one system call sends the next packets.
"""

import math
from collections.abc import Callable

import numpy as np

from innet.host.integers import Bitmaps, Flags, Integers, Reduction
from innet.host.job import Term, WorkerInfo
from innet.host.link import Link
from innet.host.packets import Packets
from innet.host.quantizers.scaling import Scaling
from innet.host.rounds import RoundLimits, RoundOutcome
from innet.host.window import Indices, Window
from innet.wire.batch import load_lanes, store_lanes
from innet.wire.layout import TRANSPORT_FLAGS, VERSION, Flag, Kind
from innet.wire.records import Records, get_field, marked

_NOTHING: Indices = np.empty(0, np.int64)


class NumpyRounds:
    """I/O rounds of one batch each. `packets` and the bitmaps `answers` have an item for each slot."""

    def __init__(
        self,
        link: Link,
        info: WorkerInfo,
        term: Term,
        window: Window,
        packets: Packets,
        answers: Bitmaps,
        clock: Callable[[], float],
    ) -> None:
        self._link, self._info, self._term, self._window = link, info, term, window
        self._packets, self._answers, self._clock = packets, answers, clock
        self._exchange: tuple[Integers | Scaling, Flags, Reduction, int] | None = None
        self._order: Integers | None = None

    def start(
        self,
        chunks: Integers | Scaling,
        own_flags: Flags,
        result: Reduction,
        first: int = 0,
        order: Integers | None = None,
    ) -> None:
        """Begin an exchange; see :meth:`innet.host.rounds.IoRounds.start`."""
        self._exchange = chunks, own_flags, result, first
        self._order = order

    def stop(self) -> None:
        """Release the vectors of an exchange that is over."""
        self._exchange = None

    def run(self, limits: RoundLimits) -> RoundOutcome:
        """Send due packets, and receive the next batch. Raises OSError."""
        window, now = self._window, self._clock()
        slots, positions = window.transmit(limits.most, now)
        outcome = RoundOutcome(now, limits.owed_since, limited=window.has_due)
        if slots.size:
            outcome.sent, outcome.repetitions = len(slots), window.repetitions(slots)
            outcome.sent_at, outcome.owed_since = now, min(limits.owed_since, now)
            outcome.bare_sent = self.send(slots, positions)
        batch = self._next(limits)
        outcome.now, outcome.received = self._clock(), len(batch)
        outcome.bare_received = len(batch.bare)
        others = Kind.PENDING, Kind.STALE
        if any(self.ours(each, kind).size for each in (batch.full, batch.bare) for kind in others):
            outcome.others = batch
        else:
            self.take(batch, limits, outcome)
        return outcome

    def send(self, slots: Indices, positions: Indices) -> int:
        """Send the chunks at some positions, due or not. Return how many went without lanes.

        Raises OSError.
        """
        own, own_flags, _, first = self._under_way
        chunks = self._chunks_at(positions)
        carried = own_flags[chunks] & Flag.CARRIED != 0
        for packets, which in ((self._packets.full, carried), (self._packets.bare, ~carried)):
            if not which.any():
                continue
            some = packets[: np.count_nonzero(which)]
            some["slot"] = self._term.first_slot + slots[which]
            some["sequence"] = self._window.sequence[slots[which]]
            some["flags"] = own_flags[chunks[which]]
            if packets is self._packets.full:
                rows = chunks[which] - first
                if isinstance(own, Scaling):
                    store_lanes(some, own[rows], np.arange(len(rows)))
                else:
                    store_lanes(some, own, rows)
            self._link.send(some)
        return int(np.count_nonzero(~carried))

    def take(self, batch: Packets, limits: RoundLimits, outcome: RoundOutcome) -> None:
        """Take the results of a batch, and note in `outcome` what follows from them."""
        full, bare = self._fitting(batch.full, lanes=True), self._fitting(batch.bare, lanes=False)
        once = ~np.isin(bare[1], full[1])
        found = [full, (bare[0][once], bare[1][once])]
        slots = np.concatenate([slots for _, slots in found])
        if not slots.size:
            return
        window, now = self._window, outcome.now
        if (round_trip := window.round_trip(slots, now)) is not None:
            outcome.round_trips = [round_trip]
        outcome.lost = window.deliver(slots, now, limits.too_soon)
        window.lose(limits.reordering)
        for (positions, each), records in zip(found, (batch.full, batch.bare), strict=True):
            if not each.size:
                continue
            finished = window.finish(each)
            self._take_rows(records, positions, self._chunks_at(finished))
            outcome.marked += int(np.count_nonzero(marked(records[positions])))
            outcome.first |= 0 in finished
        self._answers[slots] = 0
        outcome.finished = len(slots)
        outcome.result_at, outcome.owed_since = now, math.inf

    def _fitting(self, records: Records, *, lanes: bool) -> tuple[Indices, Indices]:
        """Return positions and slots of the accepted results; drop those of the wrong length."""
        positions, slots = self.accepted(records, self.ours(records, Kind.RESULT))
        _, own_flags, *_ = self._under_way
        wanted = own_flags[self._chunks_at(self._window.chunk_of(slots))] & Flag.WANTED != 0
        carried = records["flags"][positions] & Flag.CARRIED != 0
        # Unwanted lanes are in order: some switches send all workers the same copy of a result.
        fits = carried if lanes else ~(wanted & carried)
        if lanes or not self._info.has_quorum:  # a quorum may be complete before our contribution
            self._link.corrupted += int(np.count_nonzero(~fits))
        return positions[fits], slots[fits]

    def _take_rows(self, records: Records, positions: Indices, chunks: Indices) -> None:
        """Copy results to their places, or give them to the scaling that takes them.

        Where nobody carried lanes, they are zeros.
        """
        own, own_flags, result, _ = self._under_way
        result.flags[chunks] = records["flags"][positions] & ~np.uint16(TRANSPORT_FLAGS)
        result.counts[chunks] = records["count"][positions]
        result.members[chunks] = records["workers"][positions]
        wanted = own_flags[chunks] & Flag.WANTED != 0
        rows = chunks[wanted]
        lanes, places = result.lanes, rows - result.first
        scaling = own if isinstance(own, Scaling) and not len(lanes) else None
        if scaling:
            lanes, places = np.empty((len(rows), own.shape[1]), np.int32), np.arange(len(rows))
        if "lanes" in (records.dtype.names or ()):
            load_lanes(records, positions[wanted], lanes, places)
        else:
            lanes[places] = 0
        if scaling:
            scaling.take(rows, lanes, result.counts[rows])

    def ours(self, batch: Records, kind: Kind) -> Indices:
        """Return the positions of those packets in a batch that are of this kind, job and term."""
        if not len(batch):  # most batches have packets of one length only
            return _NOTHING
        return np.flatnonzero(
            (get_field(batch, "kind") == kind)
            & (batch["version"] == VERSION)
            & (batch["job"] == self._info.job)
            & (batch["term"] == self._term.number)
        )

    def accepted(self, batch: Records, among: Indices) -> tuple[Indices, Indices]:
        """Return the positions, from `among`, and the slots of packets that answer outstanding chunks."""
        if not among.size:
            return among, among
        slots = batch["slot"][among].astype(np.int64) - self._term.first_slot
        positions, slots = self._window.accept(slots, batch["sequence"][among].astype(np.int64))
        return among[positions], slots

    def _next(self, limits: RoundLimits) -> Packets:
        """Return the next batch, empty if none arrives before the round has to end."""
        if len(batch := self._link.receive()):
            return batch
        self._link.wait(limits.until - self._clock())
        return self._link.receive()

    def _chunks_at(self, positions: Indices) -> Indices:
        """Return the chunks at some positions in the order of the exchange."""
        return positions if self._order is None else self._order[positions].astype(np.int64)

    @property
    def _under_way(self) -> tuple[Integers | Scaling, Flags, Reduction, int]:
        if not self._exchange:
            raise AssertionError
        return self._exchange
