"""int32 vectors through the switch: sends chunks, takes results, repeats what got lost.

What happens to packets, a turn does (:mod:`innet.host.turns`); what follows from it is decided here.
"""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from innet.controller import innet_pb2 as pb
from innet.errors import LeftBehind, SwitchUnreachable, WorkersMissing
from innet.host import fastpath
from innet.host.congestion import CongestionWindow
from innet.host.integers import Flags, Integers, Reduction
from innet.host.link import Link
from innet.host.numpy_turns import NumpyTurns
from innet.host.scaling import Scaling
from innet.host.seat import Epoch, Path, Patience, Seat
from innet.host.timer import ProbeTimer, RetransmissionTimer
from innet.host.turns import Terms, Turn, Turns
from innet.host.window import Indices, Window
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.layout import Kind, Operation
from innet.wire.records import Records, blank

# Of the smoothed round trip:
_REORDERING = 1.0  # how much later a chunk may be sent and still overtake another; in C as well
_TOO_SOON = 0.5  # what comes sooner after a repetition was not brought about by it
_SLOWEST_REMINDER = 0.5  # seconds
_DEPARTURE_SETTLES = 1.0  # seconds, after which no answer is under way that was sent before it
_OUTAGE = 4  # questions without an answer, after which what was under way is not any more
# Where results queue, a worker that looks less often has fewer batches to work on. A longer wait gains
# little more, and where processors are what is short, all others wait as well.
_GATHERING = 0.25  # of the time in queues: so the way to the switch does not run empty
_LEAST_GATHERING, _MOST_GATHERING = 0.0005, 0.002  # seconds
# When silence is trouble.
_UNANSWERED = 2  # questions
_SILENCE = 0.3  # seconds
_TIMEOUTS = 4  # retransmission timeouts
_MOST_DOUBLINGS = 4  # of that, in epochs in which no exchange is finished


class Stay(Protocol):
    """What of a worker's stay in its job concerns an exchange under way."""

    def check(self) -> None:
        """Raise what ends the exchange, if anything does."""

    def departed(self) -> Mapping[int, str]:
        """The ranks that have left the job, and why."""

    def trouble(self, reason: str) -> None:
        """Ask for another epoch: the switch does not answer."""


@dataclass
class Traffic:
    """What a worker has sent and received so far; bytes are of whole frames without FCS.

    `corrupted` packets were received and dropped. `chunks` are those with a result.
    """

    packets_sent: int = 0
    packets_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    retransmissions: int = 0
    chunks: int = 0
    corrupted: int = 0


class SwitchTransport:
    """All-reduce of int32 vectors by the aggregation program of one switch, in one epoch at a time.

    Every worker of the job must make the same calls in the same order.
    """

    def __init__(
        self,
        link: Link,
        seat: Seat,
        clock: Callable[[], float],
        stay: Stay,
        patience: Patience | None = None,
    ) -> None:
        self._link = link
        self._seat = seat
        self._clock = clock
        self._stay = stay
        self._patience = patience or Patience()
        self._timer = RetransmissionTimer()
        self._probes = ProbeTimer(self._timer)
        self._everybody = (1 << seat.workers) - 1
        self._left_at: dict[int, float] = {}
        self._gone: dict[int, str] = {}
        self._progress_at = 0.0
        self.result_at = float("-inf")  # when the last result came
        self._owed_since = math.inf  # the switch owes an answer
        self._silent_before = 0.0  # in epochs before this one
        self._vain = -1  # epochs since an exchange was finished in one
        self.traffic = Traffic()
        self._frame_bytes = link.dtype.itemsize + (0 if link.encapsulation else ENCAPSULATION_BYTES)
        self.begin(Epoch(0, Path.SWITCH))

    def begin(self, epoch: Epoch) -> None:
        """Sum in an epoch from here on; nothing of an older one counts any more."""
        self._epoch = epoch
        self._window = Window(epoch.slots)
        self._congestion = CongestionWindow(epoch.slots)
        self._absent = np.zeros(epoch.slots, np.uint32)  # whom a slot's chunk lacks, if known
        self._outgoing = blank(
            epoch.slots, self._seat.lanes, Kind.CONTRIBUTION, self._link.encapsulation
        )
        self._outgoing["job"] = self._seat.job
        self._outgoing["epoch"] = epoch.number
        self._numpy = NumpyTurns(
            self._link, self._seat, epoch, self._window, self._outgoing, self._absent, self._clock
        )
        self._compiled = self._compiled_turns(epoch)
        self._turns: Turns = self._compiled or self._numpy
        self._in_trouble = False
        self._vain += 1

    def _compiled_turns(self, epoch: Epoch) -> fastpath.Turns | None:
        library = fastpath.compiled()
        if not library:
            return None
        place = self._seat.job, epoch.number, epoch.first_slot
        return fastpath.Turns(
            library, self._link, self._window, place, self._outgoing, self._absent
        )

    @property
    def exhausted(self) -> bool:
        """Whether sequence numbers might run out in the next exchange: another epoch is needed."""
        return self._window.exhausted

    def all_reduce(
        self,
        chunks: Integers,
        flags: Flags,
        operation: Operation,
        inspect: Callable[[Integers], None],
        scaling: Scaling | None = None,
    ) -> Reduction:
        """Combine a (chunks, lanes) int32 array with the other workers' arrays of the same shape.

        `flags` go with the chunks, (chunks,), which `scaling` makes as they go. `inspect` is given the
        first chunk's result, (lanes,), as soon as it is in, and may raise to give the exchange up. Raises
        what :meth:`Stay.check` does, LeftBehind, SwitchUnreachable, WorkersMissing, OSError; after that
        the epoch is spoilt.
        """
        # In order, and of this machine's byte order, which a quantizer's integers need not have.
        own = np.ascontiguousarray(chunks, np.int32), np.ascontiguousarray(flags, np.uint16)
        result = Reduction.empty(*chunks.shape)
        self._window.start(len(chunks))
        if scaling and not self._compiled:
            scaling.make_ready()
        self._numpy.start(*own, result)
        if self._compiled:
            self._compiled.start(*own, result, scaling.native if scaling else None)
        try:
            self._run(operation, lambda: inspect(result.lanes[0]))
        except BaseException:
            if scaling:
                scaling.forget()
            raise
        finally:
            for each in (self._numpy, self._turns):
                each.stop()
            self._silent_before += self._silence(self._clock())
            self._owed_since = math.inf
        self._vain = max(0, self._vain - 1)
        return result

    def _run(self, operation: Operation, inspect: Callable[[], None]) -> None:
        window, now = self._window, self._clock()
        self._outgoing["operation"] = operation
        self._progress_at = now
        self._absent[:] = 0
        self._gone = {}
        self._probes.restart(now)
        while window.remaining:
            if self._take_turn():
                inspect()
            if window.remaining:
                self._continue(self._clock())

    def progressed(self) -> None:
        """The job goes on by another path: the switch's silence is forgiven."""
        self._silent_before = 0.0

    def fill(self, progress: pb.Progress) -> None:
        """Say how far the exchange under way has come, from any thread."""
        window, now = self._window, self._clock()
        progress.remaining = window.remaining
        progress.round_trip_s = self._timer.smoothed or 0.0
        progress.timeout_s = self._timer.timeout
        progress.window = self._congestion.size
        if window.remaining:
            chunk, slot, sequence = window.oldest()
            progress.chunk, progress.slot = chunk, self._epoch.first_slot + slot
            progress.sequence, progress.missing = sequence, self._missing
        progress.silent_s = self._silent_before + self._silence(now)

    @property
    def _deadline(self) -> float:
        reminder = self._window.next_reminder(self._timer.timeout, _SLOWEST_REMINDER)
        return min(self._probes.deadline, reminder, self._trouble_at)

    def _take_turn(self) -> bool:
        """Whether it has brought the first chunk's result."""
        usual = self._timer.smoothed or self._timer.timeout
        seconds = min(_GATHERING * self._timer.queueing, _MOST_GATHERING)
        terms = Terms(
            most=self._congestion.size,
            until=self._deadline,
            pause=seconds if seconds >= _LEAST_GATHERING else 0.0,
            round_began=self._congestion.round_began,
            too_soon=_TOO_SOON * usual,
            reordering=_REORDERING * usual,
            owed_since=self._owed_since,
            steady=self._congestion.steady,
        )
        turn = self._turns.turn(terms)
        self._owed_since = turn.owed_since
        self._note_sent(turn)
        self._note_results(turn)
        if len(turn.others):
            # What the switch has of this worker's is learnt before the results are taken; who is missing
            # is asked of what is unfinished still: an answer may be older than the result.
            others = turn.others
            pendings = self._numpy.ours(others, Kind.PENDING)
            self._take_receipts(others, pendings, turn.now)
            further = Turn(turn.now, self._owed_since, others[:0])
            self._numpy.take(others, terms, further)
            self._note_results(further)
            self._take_missing(others, pendings, turn.now)
            self._take_stale(others, self._numpy.ours(others, Kind.STALE))
            return turn.first or further.first
        return turn.first

    def _note_sent(self, turn: Turn) -> None:
        if turn.limited:
            self._congestion.limits()
        if turn.sent:
            self._probes.sent(turn.sent_at)
            self._count_sent(turn.sent, turn.repetitions)
        traffic = self.traffic
        traffic.packets_received += turn.received
        traffic.bytes_received += turn.received * self._frame_bytes
        traffic.corrupted = self._link.corrupted

    def _count_sent(self, packets: int, repetitions: int) -> None:
        self.traffic.packets_sent += packets
        self.traffic.bytes_sent += packets * self._frame_bytes
        self.traffic.retransmissions += repetitions

    def _note_results(self, turn: Turn) -> None:
        """What results say about the way to the switch and back."""
        if not turn.finished:
            return
        self._owed_since = turn.owed_since
        self._silent_before = 0.0
        self._progress_at = self.result_at = turn.result_at
        self._probes.restart(max(turn.sent_at, turn.result_at))
        for round_trip in turn.round_trips:
            self._timer.sample(round_trip)
        self._congestion.delivered(turn.finished, turn.lost, self._window.newest, turn.result_at)
        self.traffic.chunks += turn.finished

    def _continue(self, now: float) -> None:
        """Let be sent what is due, ask if nothing comes, and see whether there is still hope."""
        self._window.remind(now, self._timer.timeout, _SLOWEST_REMINDER)
        if now >= self._probes.deadline:
            # Ever more, so that it is not by chance that nothing comes.
            most = min(1 << self._probes.unanswered, self._congestion.size)
            slots, chunks = self._window.probe(most, now)
            self._numpy.send(slots, chunks)
            self._count_sent(len(slots), self._window.repetitions(slots))
            self._owed_since = min(self._owed_since, now)
            self._probes.asked(now)
            if self._probes.unanswered == _OUTAGE:
                self._congestion.silence()
        self._check(now)

    def _take_receipts(self, batch: Records, among: Indices, now: float) -> None:
        _, slots = self._numpy.accepted(batch, among)
        if slots.size:
            self._heard()
            self._probes.answered(now)
            if (round_trip := self._window.had(slots, now)) is not None:
                self._timer.sample(round_trip)

    def _take_missing(self, batch: Records, among: Indices, now: float) -> None:
        positions, slots = self._numpy.accepted(batch, among)
        if not positions.size:
            return
        arrived = batch["workers"][positions]
        self._absent[slots] = self._everybody & ~arrived
        # The answer may be older than a departure, before which the worker has contributed. One
        # that comes long after the departure was known, and still lacks it, is not.
        departed = self._departures(now)
        gone = {r for r in departed if now - self._left_at[r] > _DEPARTURE_SETTLES}
        for bitmap in np.unique(arrived).tolist():
            absent = {rank for rank in gone if not bitmap >> rank & 1}
            if self._seat.workers - len(absent) < self._seat.fewest:
                self._gone |= {rank: departed[rank] for rank in absent}

    def _take_stale(self, batch: Records, among: Indices) -> None:
        positions, _ = self._numpy.accepted(batch, among)
        if positions.size:
            raise LeftBehind(
                "the other workers have gone on without this one, which came too late: join the job "
                "again, or let its quorum be all workers"
            )

    @property
    def _missing(self) -> int:
        """The workers that some chunk lacks, as a bitmap; everybody as long as no answer says."""
        return int(np.bitwise_or.reduce(self._absent)) or self._everybody

    def _departures(self, now: float) -> Mapping[int, str]:
        departed = self._stay.departed()
        for rank in departed:
            self._left_at.setdefault(rank, now)
        return departed

    def _heard(self) -> None:
        self._owed_since = math.inf
        self._silent_before = 0.0

    def _silence(self, now: float) -> float:
        """For how long the switch has owed an answer, in this epoch. From any thread."""
        return max(0.0, now - self._owed_since)

    def _check(self, now: float) -> None:
        self._stay.check()
        silent = self._silence(now)
        stuck = now - self._progress_at
        self._departures(now)
        if now >= self._trouble_at:
            self._in_trouble = True
            self._stay.trouble(f"the switch has not answered for {silent:.1f} s")
        if (silent := silent + self._silent_before) > self._patience.switch:
            raise SwitchUnreachable(
                f"the switch has not answered for {silent:.1f} s: is it running, "
                "and does it still hold this job?"
            )
        if self._gone:
            reasons = "; ".join(f"worker {rank}: {why}" for rank, why in self._gone.items())
            raise WorkersMissing(f"the all-reduce cannot finish: {reasons}")
        if stuck > self._patience.workers:
            missing = [rank for rank in range(self._seat.workers) if self._missing >> rank & 1]
            raise WorkersMissing(
                f"no contribution from workers {missing} for {stuck:.0f} s: "
                "are they stuck, or do they call all-reduce less often?"
            )

    @property
    def _trouble_at(self) -> float:
        """When the switch's silence will be trouble; once an epoch."""
        if self._in_trouble or self._probes.unanswered < _UNANSWERED:
            return math.inf
        # Twice as long in every further epoch, for a new one may not be what helps.
        tolerable = max(_SILENCE, _TIMEOUTS * self._timer.timeout)
        return self._owed_since + tolerable * (1 << min(self._vain, _MOST_DOUBLINGS))
