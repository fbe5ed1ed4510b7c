"""I/O rounds in numpy.

Python handles batches, never single packets. One system call receives a batch, a few numpy
operations match it with the window, and one system call sends the answers.
"""

import math
from collections.abc import Callable

import numpy as np

from innet.host.integers import Bitmaps, Flags, Integers, Reduction
from innet.host.job import Term, WorkerInfo
from innet.host.link import Link
from innet.host.quantizers.scaling import Scaling
from innet.host.rounds import RoundLimits, RoundOutcome
from innet.host.window import Indices, Window
from innet.wire.batch import load_lanes, store_lanes
from innet.wire.layout import VERSION, Flag, Kind
from innet.wire.records import Records, marked


class NumpyRounds:
    """I/O rounds of one batch. `packets` and the bitmaps `answers` have an item for each slot."""

    def __init__(
        self,
        link: Link,
        info: WorkerInfo,
        term: Term,
        window: Window,
        packets: Records,
        answers: Bitmaps,
        clock: Callable[[], float],
    ) -> None:
        self._link, self._info, self._term, self._window = link, info, term, window
        self._packets, self._answers, self._clock = packets, answers, clock
        self._exchange: tuple[Integers | Scaling, Flags, Reduction] | None = None

    def start(self, chunks: Integers | Scaling, own_flags: Flags, result: Reduction) -> None:
        """Begin an exchange that sends `chunks`, (n, lanes), and fills `result`, of the same shape."""
        self._exchange = chunks, own_flags, result

    def stop(self) -> None:
        """Release the vectors of an exchange that is over."""
        self._exchange = None

    def run(self, limits: RoundLimits) -> RoundOutcome:
        """Send due packets, and receive the next batch. Raises OSError."""
        window, now = self._window, self._clock()
        slots, chunks = window.transmit(limits.most, now)
        outcome = RoundOutcome(now, limits.owed_since, self._packets[:0], limited=window.has_due)
        if slots.size:
            outcome.sent, outcome.repetitions = len(slots), window.repetitions(slots)
            outcome.sent_at, outcome.owed_since = now, min(limits.owed_since, now)
            self.send(slots, chunks)
        batch = self._next(limits)
        outcome.now, outcome.received = self._clock(), len(batch)
        if self.ours(batch, Kind.PENDING).size or self.ours(batch, Kind.STALE).size:
            outcome.others = batch
        else:
            self.take(batch, limits, outcome)
        return outcome

    def send(self, slots: Indices, chunks: Indices) -> None:
        """Send chunks, whether they are due or not. Raises OSError."""
        own, own_flags, _ = self._under_way
        packets = self._packets[: len(slots)]
        packets["slot"] = self._term.first_slot + slots
        packets["sequence"] = self._window.sequence[slots]
        packets["flags"] = own_flags[chunks]
        if isinstance(own, Scaling):
            own, chunks = own[chunks], np.arange(len(chunks))
        store_lanes(packets, own, chunks)
        self._link.send(packets)

    def take(self, batch: Records, limits: RoundLimits, outcome: RoundOutcome) -> None:
        """Take the results of a batch, and note in `outcome` what follows from them."""
        window, now = self._window, outcome.now
        positions, slots = self.accepted(batch, self.ours(batch, Kind.RESULT))
        if not positions.size:
            return
        if (round_trip := window.round_trip(slots, now)) is not None:
            outcome.round_trips = [round_trip]
        outcome.lost = window.deliver(slots, now, limits.too_soon)
        window.lose(limits.reordering)
        finished = window.finish(slots)
        _, _, result = self._under_way
        load_lanes(batch, positions, result.lanes, finished)
        outcome.marked = int(np.count_nonzero(marked(batch[positions])))
        result.flags[finished] = batch["flags"][positions] & ~np.uint16(Flag.MARKED)
        counts = batch["count"][positions]
        few = counts != 0  # the others are of all workers, as they say already
        result.counts[finished[few]] = counts[few]
        result.members[finished] = batch["workers"][positions]
        self._answers[slots] = 0
        outcome.finished, outcome.first = len(finished), 0 in finished
        outcome.result_at, outcome.owed_since = now, math.inf

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

    def _next(self, limits: RoundLimits) -> Records:
        """Return the next batch, empty if none arrives before the round has to end."""
        if limits.pause > 0 and self._window.remaining > limits.most:
            self._link.pause(limits.pause)
        if len(batch := self._link.receive()):
            return batch
        self._link.wait(limits.until - self._clock())
        return self._link.receive()

    @property
    def _under_way(self) -> tuple[Integers | Scaling, Flags, Reduction]:
        if not self._exchange:
            raise AssertionError
        return self._exchange
