"""int32 vectors through the switch: sends chunks, takes results, retransmits lost packets.

An I/O round handles the packets (:mod:`innet.host.rounds`). This module draws the
conclusions.
"""

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from innet.errors import LeftBehind, SwitchUnreachable, WorkersMissing
from innet.host import fastpath
from innet.host.congestion import CongestionWindow
from innet.host.integers import Flags, Integers, Reduction
from innet.host.link import Link
from innet.host.numpy_rounds import NumpyRounds
from innet.host.rounds import IoRounds, RoundLimits, RoundOutcome
from innet.host.scaling import Scaling
from innet.host.seat import Path, Patience, Seat, Term
from innet.host.timer import ProbeTimer, RetransmissionTimer
from innet.host.window import Indices, Window
from innet.rpc import innet_pb2 as pb
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.layout import Kind, Operation
from innet.wire.records import Records, blank

# In units of the smoothed round trip:
_REORDERING = 1.0  # a chunk may overtake another that was sent so much earlier; in C as well
_TOO_SOON = 0.5  # a result that comes sooner after a retransmission was not caused by it
_SLOWEST_REMINDER = 0.5  # seconds
_DEPARTURE_SETTLES = 1.0  # seconds: older answers are no longer in flight
_OUTAGE = 4  # unanswered probes, after which the chunks sent before count as no longer in flight
# Where results queue, a worker that looks less often has fewer batches to handle. A longer wait
# gains little more. Where processors are scarce, it also makes all other workers wait.
_GATHERING = 0.25  # of the queueing time, so that the path to the switch does not run empty
_LEAST_GATHERING, _MOST_GATHERING = 0.0005, 0.002  # seconds
# The limits of the switch's silence.
_UNANSWERED = 2  # probes
_SILENCE = 1.0  # seconds: on a loaded machine the switch may take so long
_TIMEOUTS = 4  # retransmission timeouts
_LATE = 0.05  # seconds: if this thread runs so long after a deadline, the process was stopped
_MOST_DOUBLINGS = 2  # of that limit, in terms in which no exchange is finished


class Stay(Protocol):
    """The interface to a worker's membership for an exchange under way."""

    def check(self) -> None:
        """Raise if something ends the exchange."""

    def departed(self) -> Mapping[int, str]:
        """Return the ranks that have left the job, with the reasons."""

    def trouble(self, reason: str) -> None:
        """Ask for another term: the switch does not answer."""

    def in_touch(self) -> bool:
        """Return whether the controller can be reached; only the controller knows another way to sum."""

    def waits(self, seconds: float, ranks: Iterable[int]) -> None:
        """Note how long the exchange has waited, and for which ranks as far as known."""


@dataclass
class Traffic:
    """The packets and bytes sent and received so far; bytes are of whole frames without FCS.

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
    """All-reduce of int32 vectors by the aggregation program of one switch, in one term at a time.

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
        self._owed_since = math.inf  # since when the switch owes an answer; inf if it owes none
        self._silent_before = 0.0  # silence in terms before this one
        self._forgiven = 0.0  # silence of the switch while the controller was out of reach
        self._due = self._looked_at = 0.0  # when this thread was to run, and when it did
        self._vain = -2  # terms since the last finished exchange; 0 in the first real term
        self.traffic = Traffic()
        self._frame_bytes = link.dtype.itemsize + (0 if link.encapsulation else ENCAPSULATION_BYTES)
        self.begin(Term(0, Path.SWITCH))

    def begin(self, term: Term) -> None:
        """Sum in this term from now on; replies of older terms no longer count."""
        self._term = term
        self._window = Window(term.slots)
        self._congestion = CongestionWindow(term.slots)
        self._absent = np.zeros(term.slots, np.uint32)  # missing workers of each chunk, if known
        self._outgoing = blank(
            term.slots, self._seat.lanes, Kind.CONTRIBUTION, self._link.encapsulation
        )
        self._outgoing["job"] = self._seat.job
        self._outgoing["term"] = term.number
        self._numpy = NumpyRounds(
            self._link, self._seat, term, self._window, self._outgoing, self._absent, self._clock
        )
        self._compiled = self._compiled_rounds(term)
        self._rounds: IoRounds = self._compiled or self._numpy
        self._in_trouble = False
        self._vain += 1

    def _compiled_rounds(self, term: Term) -> fastpath.CompiledRounds | None:
        library = fastpath.compiled()
        if not library:
            return None
        place = self._seat.job, term.number, term.first_slot
        return fastpath.CompiledRounds(
            library, self._link, self._window, place, self._outgoing, self._absent
        )

    @property
    def exhausted(self) -> bool:
        """Return whether the next exchange might use up the sequence numbers: another term is needed."""
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

        `flags`, (chunks,), go with the chunks, which `scaling` makes just before they are sent.
        `inspect` is called with the first chunk's result, (lanes,), as soon as it has arrived; it
        may raise to give the exchange up. Raises the errors of :meth:`Stay.check`, LeftBehind,
        SwitchUnreachable, WorkersMissing, OSError; after that the term is spoilt.
        """
        # Contiguous and in this machine's byte order. A quantizer's integers need not be either.
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
            for each in (self._numpy, self._rounds):
                each.stop()
            self._silent_before += self._silence(self._clock())
            self._owed_since = math.inf
        self._vain = max(0, self._vain - 1)
        return result

    def _run(self, operation: Operation, inspect: Callable[[], None]) -> None:
        window, now = self._window, self._clock()
        self._due = self._looked_at = now
        self._outgoing["operation"] = operation
        self._progress_at = now
        self._absent[:] = 0
        self._gone = {}
        self._probes.restart(now)
        while window.remaining:
            if self._run_round():
                inspect()
            if window.remaining:
                self._continue(self._clock())

    def progressed(self) -> None:
        """Forgive the switch's silence, because the job goes on by another path."""
        self._silent_before = 0.0

    def fill(self, progress: pb.Progress) -> None:
        """Fill in the progress of the exchange under way. Safe from any thread."""
        window, now = self._window, self._clock()
        progress.remaining = window.remaining
        progress.round_trip_s = self._timer.smoothed or 0.0
        progress.timeout_s = self._timer.timeout
        progress.window = self._congestion.size
        if window.remaining:
            chunk, slot, sequence = window.oldest()
            progress.chunk, progress.slot = chunk, self._term.first_slot + slot
            progress.sequence, progress.missing = sequence, self._missing
        progress.silent_s = self._silent_before + self._silence(now)

    @property
    def _deadline(self) -> float:
        reminder = self._window.next_reminder(self._timer.timeout, _SLOWEST_REMINDER)
        return min(self._probes.deadline, reminder, self._trouble_at)

    def _run_round(self) -> bool:
        """Run an I/O round. Return whether it has brought the first chunk's result."""
        usual = self._timer.smoothed or self._timer.timeout
        seconds = min(_GATHERING * self._timer.queueing, _MOST_GATHERING)
        self._due = self._deadline
        limits = RoundLimits(
            most=self._congestion.size,
            until=self._due,
            pause=seconds if seconds >= _LEAST_GATHERING else 0.0,
            round_trip_began=self._congestion.round_trip_began,
            too_soon=_TOO_SOON * usual,
            reordering=_REORDERING * usual,
            owed_since=self._owed_since,
            steady=self._congestion.steady,
        )
        outcome = self._rounds.run(limits)
        self._owed_since = outcome.owed_since
        self._note_sent(outcome)
        self._note_results(outcome)
        if len(outcome.others):
            # Read the switch's receipts before taking the results. Read the missing workers only
            # afterwards, and only for unfinished chunks: an answer may be older than the result.
            others = outcome.others
            pendings = self._numpy.ours(others, Kind.PENDING)
            self._take_receipts(others, pendings, outcome.now)
            further = RoundOutcome(outcome.now, self._owed_since, others[:0])
            self._numpy.take(others, limits, further)
            self._note_results(further)
            self._take_missing(others, pendings, outcome.now)
            self._take_stale(others, self._numpy.ours(others, Kind.STALE))
            return outcome.first or further.first
        return outcome.first

    def _note_sent(self, outcome: RoundOutcome) -> None:
        if outcome.limited:
            self._congestion.limits()
        if outcome.sent:
            self._probes.sent(outcome.sent_at)
            self._count_sent(outcome.sent, outcome.repetitions)
        traffic = self.traffic
        traffic.packets_received += outcome.received
        traffic.bytes_received += outcome.received * self._frame_bytes
        traffic.corrupted = self._link.corrupted

    def _count_sent(self, packets: int, repetitions: int) -> None:
        self.traffic.packets_sent += packets
        self.traffic.bytes_sent += packets * self._frame_bytes
        self.traffic.retransmissions += repetitions

    def _note_results(self, outcome: RoundOutcome) -> None:
        """Update timers and congestion window from a round's results."""
        if not outcome.finished:
            return
        self._owed_since = outcome.owed_since
        self._silent_before = 0.0
        self._progress_at = self.result_at = outcome.result_at
        self._probes.restart(max(outcome.sent_at, outcome.result_at))
        for round_trip in outcome.round_trips:
            self._timer.sample(round_trip)
        self._congestion.delivered(
            outcome.finished, outcome.lost, self._window.newest, outcome.result_at
        )
        self.traffic.chunks += outcome.finished

    def _continue(self, now: float) -> None:
        """Mark due packets, send a probe after a silence, and give up if there is no hope."""
        self._excuse(now)
        self._window.remind(now, self._timer.timeout, _SLOWEST_REMINDER)
        if now >= self._probes.deadline:
            # Send more with each probe, so that a silence is no coincidence.
            most = min(1 << self._probes.unanswered, self._congestion.size)
            slots, chunks = self._window.probe(most, now)
            self._numpy.send(slots, chunks)
            self._count_sent(len(slots), self._window.repetitions(slots))
            self._owed_since = min(self._owed_since, now)
            self._probes.asked(now)
            if self._probes.unanswered == _OUTAGE:
                self._congestion.silence()
        self._check(now)

    def _excuse(self, now: float) -> None:
        """Forgive the others' silence if this process did not run meanwhile."""
        late = now - max(self._due, self._looked_at)
        self._looked_at = now
        if late > _LATE:
            self._progress_at = min(now, self._progress_at + late)
            if self._owed_since < math.inf:
                self._owed_since = min(now, self._owed_since + late)

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
        # The answer may be older than a departure, and the worker may have contributed before it
        # left. If an answer comes long after the departure was known, and still lacks the
        # contribution, it is missing.
        departed = self._departures(now)
        gone = {r for r in departed if now - self._left_at[r] > _DEPARTURE_SETTLES}
        for bitmap in np.unique(arrived).tolist():
            absent = {rank for rank in gone if not bitmap >> rank & 1}
            if self._seat.workers - len(absent) < self._seat.min_workers:
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
        """Return the workers that some chunk lacks, as a bitmap; all while no answer names them."""
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
        """Return how long the switch has owed an answer, in this term. Safe from any thread."""
        return max(0.0, now - self._owed_since)

    def _check(self, now: float) -> None:
        self._stay.check()
        silent = self._silence(now)
        stuck = now - self._progress_at
        self._departures(now)
        if now >= self._trouble_at:
            self._in_trouble = True
            self._stay.trouble(f"the switch has not answered for {silent:.1f} s")
        silent += self._silent_before
        self._forgiven = min(self._forgiven, silent) if self._stay.in_touch() else silent
        patient = stuck <= self._patience.workers
        if silent - self._forgiven > self._patience.switch or (silent > _SILENCE and not patient):
            raise SwitchUnreachable(
                f"the switch has not answered for {silent:.1f} s: is it running, "
                "and does it still hold this job?"
            )
        if self._gone:
            reasons = "; ".join(f"worker {rank}: {why}" for rank, why in self._gone.items())
            raise WorkersMissing(f"the all-reduce cannot finish: {reasons}")
        self._stay.waits(stuck, ranks_in(int(np.bitwise_or.reduce(self._absent))))
        if not patient:
            raise WorkersMissing(
                f"no contribution from workers {ranks_in(self._missing)} for {stuck:.0f} s: "
                "are they stuck, or do they call all-reduce less often?"
            )

    @property
    def _trouble_at(self) -> float:
        """Return the time at which the switch's silence becomes trouble; once a term."""
        if self._in_trouble or self._probes.unanswered < _UNANSWERED:
            return math.inf
        # Double the limit in every further term, because a new one may not help.
        tolerable = max(_SILENCE, _TIMEOUTS * self._timer.timeout)
        return self._owed_since + tolerable * (1 << min(self._vain, _MOST_DOUBLINGS))


def ranks_in(bitmap: int) -> list[int]:
    """Return the ranks whose bits are set."""
    return [rank for rank in range(bitmap.bit_length()) if bitmap >> rank & 1]
