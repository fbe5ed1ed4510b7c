"""I/O rounds in numpy (the code calls a round a *turn*).

Python handles batches, never single packets. One system call receives a batch, a few numpy
operations match it with the window, and one system call sends the answers.
"""

import math
from collections.abc import Callable

import numpy as np

from innet.host.integers import Bitmaps, Flags, Integers, Reduction
from innet.host.job import Term, WorkerInfo
from innet.host.link import Link
from innet.host.turns import Terms, Turn
from innet.host.window import Indices, Window
from innet.wire.batch import load_lanes, store_lanes
from innet.wire.layout import VERSION, Kind
from innet.wire.records import Records


class NumpyTurns:
    """I/O rounds of one batch. `packets` and the bitmaps `absent` have an item for each slot."""

    def __init__(
        self,
        link: Link,
        info: WorkerInfo,
        term: Term,
        window: Window,
        packets: Records,
        absent: Bitmaps,
        clock: Callable[[], float],
    ) -> None:
        self._link, self._info, self._term, self._window = link, info, term, window
        self._packets, self._absent, self._clock = packets, absent, clock
        self._exchange: tuple[Integers, Flags, Reduction] | None = None

    def start(self, chunks: Integers, own_flags: Flags, result: Reduction) -> None:
        """Begin an exchange that sends `chunks`, (n, lanes), and fills `result`, of the same shape."""
        self._exchange = chunks, own_flags, result

    def stop(self) -> None:
        """Release the vectors of an exchange that is over."""
        self._exchange = None

    def turn(self, terms: Terms) -> Turn:
        """Send due packets, and receive the next batch. Raises OSError."""
        window, now = self._window, self._clock()
        slots, chunks = window.transmit(terms.most, now)
        turn = Turn(now, terms.owed_since, self._packets[:0], limited=window.has_due)
        if slots.size:
            turn.sent, turn.repetitions = len(slots), window.repetitions(slots)
            turn.sent_at, turn.owed_since = now, min(terms.owed_since, now)
            self.send(slots, chunks)
        batch = self._next(terms)
        turn.now, turn.received = self._clock(), len(batch)
        if self.ours(batch, Kind.PENDING).size or self.ours(batch, Kind.STALE).size:
            turn.others = batch
        else:
            self.take(batch, terms, turn)
        return turn

    def send(self, slots: Indices, chunks: Indices) -> None:
        """Send chunks, whether they are due or not. Raises OSError."""
        own, own_flags, _ = self._under_way
        packets = self._packets[: len(slots)]
        packets["slot"] = self._term.first_slot + slots
        packets["sequence"] = self._window.sequence[slots]
        packets["flags"] = own_flags[chunks]
        store_lanes(packets, own, chunks)
        self._link.send(packets)

    def take(self, batch: Records, terms: Terms, turn: Turn) -> None:
        """Take the results of a batch, and note in `turn` what follows from them."""
        window, now = self._window, turn.now
        positions, slots = self.accepted(batch, self.ours(batch, Kind.RESULT))
        if not positions.size:
            return
        if (round_trip := window.round_trip(slots, now)) is not None:
            turn.round_trips = [round_trip]
        turn.lost = window.deliver(slots, now, terms.too_soon)
        window.lose(terms.reordering)
        finished = window.finish(slots)
        _, _, result = self._under_way
        load_lanes(batch, positions, result.lanes, finished)
        result.flags[finished] = batch["flags"][positions]
        result.counts[finished] = batch["count"][positions]
        result.members[finished] = batch["workers"][positions]
        self._absent[slots] = 0
        turn.finished, turn.first = len(finished), 0 in finished
        turn.result_at, turn.owed_since = now, math.inf

    def ours(self, batch: Records, kind: Kind) -> Indices:
        """Return the positions in a batch of the replies of a kind, of this job and term."""
        return np.flatnonzero(
            (batch["kind"] == kind)
            & (batch["version"] == VERSION)
            & (batch["job"] == self._info.job)
            & (batch["term"] == self._term.number)
        )

    def accepted(self, batch: Records, among: Indices) -> tuple[Indices, Indices]:
        """Return the positions and slots of those `among` a batch that answer something outstanding."""
        if not among.size:
            return among, among
        slots = batch["slot"][among].astype(np.int64) - self._term.first_slot
        positions, slots = self._window.accept(slots, batch["sequence"][among].astype(np.int64))
        return among[positions], slots

    def _next(self, terms: Terms) -> Records:
        """Return the next batch, empty if none arrives before the round has to end."""
        if terms.pause > 0 and self._window.remaining > terms.most:
            self._link.pause(terms.pause)
        if len(batch := self._link.receive()):
            return batch
        self._link.wait(terms.until - self._clock())
        return self._link.receive()

    @property
    def _under_way(self) -> tuple[Integers, Flags, Reduction]:
        if not self._exchange:
            raise AssertionError
        return self._exchange
