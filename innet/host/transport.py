"""int32 vectors through the switch: sends chunks, takes results, retransmits lost packets.

An I/O round handles the packets (:mod:`innet.host.rounds`). This module draws the conclusions.
"""

from collections.abc import Callable

import numpy as np

from innet.errors import LeftBehind
from innet.host import memory
from innet.host.congestion import CongestionWindow
from innet.host.inquiries import Inquiries
from innet.host.integers import Flags, Integers, Reduction
from innet.host.job import Path, Term, Timeouts, WorkerInfo
from innet.host.link import Link
from innet.host.portions import Portions
from innet.host.quantizers.scaling import Scaling, Target
from innet.host.queries import Queries
from innet.host.rounds import RoundLimits, RoundOutcome
from innet.host.stall import MembershipView, StallDetector
from innet.host.term_rounds import TermRounds
from innet.host.timer import ProbeTimer, RetransmissionTimer
from innet.host.traffic import Traffic
from innet.host.window import Indices, Window
from innet.rpc import innet_pb2 as pb
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.layout import Kind, Operation
from innet.wire.records import Records

# In units of the smoothed round trip:
_REORDERING = 1.0  # a chunk may overtake another that was sent so much earlier
_TOO_SOON = 0.5  # a result that comes sooner after a retransmission was not caused by it
_SLOWEST_REMINDER = 0.5  # seconds
_OUTAGE = 4  # unanswered probes, after which the chunks sent before count as no longer in flight
# Packets that wait in the kernel for the link delay the packets of this host's other jobs. So no more
# wait there than leave within this time. The others wait in the worker.
_QUEUED = 0.004  # seconds
_LEAST_QUEUED = 16  # packets


class SwitchTransport:
    """All-reduce of int32 vectors by the aggregation program of one switch, in one term at a time.

    Every worker of the job must make the same calls in the same order.
    """

    def __init__(
        self,
        link: Link,
        info: WorkerInfo,
        clock: Callable[[], float],
        membership: MembershipView,
        timeouts: Timeouts,
    ) -> None:
        self._link = link
        self._info = info
        self._clock = clock
        self._timer = RetransmissionTimer()
        self._probes = ProbeTimer(self._timer)
        self.inquiries: Inquiries | None = None  # of the exchange under way, if it has deadlines
        self._stall = StallDetector(
            info, membership, timeouts, self._timer, self._probes, lambda: link.refusal
        )
        self._silence, self._missing = self._stall.silence, self._stall.missing
        front = 0 if link.encapsulation else ENCAPSULATION_BYTES
        self.traffic = Traffic(link.dtype.itemsize + front, link.bare_dtype.itemsize + front)
        self.begin(Term(0, Path.SWITCH))

    def begin(self, term: Term) -> None:
        """Sum in this term from now on; replies of older terms no longer count."""
        self._term = term
        self._window = Window(term.slots)
        self._congestion = CongestionWindow(term.slots)
        self._stall.begin_term(term)
        self._rounds = TermRounds(
            self._link, self._info, term, self._window, self._missing.answers, self._clock
        )
        self._numpy = self._rounds.numpy
        self._queries = Queries(self._link, self._info, term, self._window, self._missing)

    @property
    def result_at(self) -> float:
        """Return when the last result came."""
        return self._stall.result_at

    @property
    def exhausted(self) -> bool:
        """Return whether the next exchange might use up the sequence numbers: another term is needed."""
        return self._window.exhausted

    def all_reduce(
        self,
        chunks: Integers | Scaling,
        flags: Flags,
        operation: Operation,
        portions: Portions | None = None,
        into: Target = None,
        inspect: Callable[[Integers], None] | None = None,
    ) -> Reduction:
        """Combine a (chunks, lanes) int32 array with the other workers' arrays of the same shape.

        `flags`, (chunks,), go with the chunks. A scaling makes the chunks when they are sent. With
        `portions`, the contribution and the result have rows for a part of the chunks only. `into` may
        be a contiguous array for the result's rows. If it is the scaling, and C runs the rounds, then
        the scaling takes the results, and there are no rows.

        `inspect` is called with the first chunk's result, (lanes,), as soon as the result has arrived. It
        may raise an error to give the exchange up. With it, the result must have the first chunk's row.

        Raises the errors of :meth:`MembershipView.check`, LeftBehind, SwitchUnreachable, WorkersMissing,
        OSError; after that the term is spoilt.
        """
        portions = portions or Portions.whole(len(flags))
        order = portions.order(self._info.workers)
        flags = np.asarray(flags, np.uint16) | portions.flags
        if not isinstance(into, np.ndarray):
            taken_by_scaling = into is not None and self._rounds.in_c
            rows = 0 if taken_by_scaling else len(portions.received)
            into = memory.empty((rows, chunks.shape[1]), np.int32)
        bits = self._missing.contributors.bits
        result = Reduction.into(into, len(flags), portions.received.start, bits)
        result.counts[:] = self._info.workers
        self._rounds.start(chunks, flags, result, portions.sent.start, order)
        try:
            self._run(operation, inspect and (lambda: inspect(result.lanes[0])))
        except BaseException:
            self._rounds.abandon()
            raise
        finally:
            self._rounds.stop()
            self._silence.end_exchange(self._clock())
        self._silence.succeed()
        return result

    def _run(self, operation: Operation, inspect: Callable[[], None] | None) -> None:
        window, now = self._window, self._clock()
        self._rounds.set_operation(operation)
        self._queries.set_operation(operation)
        self._stall.begin_exchange(now)
        self._probes.restart(now)
        if self.inquiries:
            self.inquiries.begin(now, self._timer.least)
        while window.remaining:
            if self._run_round() and inspect:
                inspect()
            if window.remaining:
                self._continue(self._clock())
        if self.inquiries:
            self.inquiries.end(self._clock())

    def progressed(self) -> None:
        """Forgive the switch's silence, because the job goes on by another path."""
        self._silence.forget()

    def fill(self, progress: pb.Progress) -> None:
        """Fill in the progress of the exchange under way. Safe from any thread."""
        window, now = self._window, self._clock()
        progress.remaining = window.remaining
        progress.round_trip_s = self._timer.smoothed or 0.0
        progress.least_round_trip_s = self._timer.least
        progress.timeout_s = self._timer.timeout
        progress.window = self._congestion.size
        if window.remaining:
            progress.chunk, slot, progress.sequence = window.oldest()
            progress.slot = self._term.first_slot + slot
            progress.missing.extend(sorted(self._missing.known))
        self._stall.fill(progress, now)

    @property
    def _deadline(self) -> float:
        deadline = min(self._probes.deadline, self._stall.report_at)
        if self._window.any_had:
            reminder = self._window.next_reminder(self._timer.timeout, _SLOWEST_REMINDER)
            deadline = min(deadline, reminder)
        return min(deadline, self.inquiries.at) if self.inquiries else deadline

    def _run_round(self) -> bool:
        """Run an I/O round. Return whether it has brought the first chunk's result."""
        usual = self._timer.smoothed or self._timer.timeout
        deadline, most = self._deadline, self._congestion.size
        limits = RoundLimits(
            most=most,
            until=deadline,
            idle=0.0 if self._window.any_had or self.inquiries else self._probes.first_wait,
            round_trip_began=self._congestion.round_trip_began,
            steady=self._congestion.steady,
            too_soon=_TOO_SOON * usual,
            reordering=_REORDERING * usual,
            most_queued=max(_LEAST_QUEUED, int(most * _QUEUED / usual)),
            owed_since=self._silence.owed_since,
        )
        outcome = self._rounds.run(limits)
        self._stall.note_round(outcome, max(deadline, outcome.result_at + limits.idle))
        self._note_sent(outcome)
        self._note_results(outcome)
        if outcome.others:
            # Read the switch's receipts before taking the results. Read the missing workers only
            # afterwards, and only for unfinished chunks: an answer may be older than the result.
            others = outcome.others.full, outcome.others.bare
            for each in others:
                self._take_receipts(each, outcome.now)
            further = RoundOutcome(outcome.now, self._silence.owed_since)
            self._numpy.take(outcome.others, limits, further)
            self._note_results(further)
            for each in others:
                self._take_missing(each, outcome.now)
                self._take_stale(each)
            return outcome.first or further.first
        return outcome.first

    def _note_sent(self, outcome: RoundOutcome) -> None:
        if outcome.limited:
            self._congestion.limits()
        if outcome.sent:
            self._probes.sent(outcome.sent_at)
        self.traffic.count_round(outcome)
        self.traffic.corrupted = self._link.corrupted

    def _note_results(self, outcome: RoundOutcome) -> None:
        """Update timers and congestion window from a round's results."""
        if not outcome.finished:
            return
        self._stall.note_results(outcome)
        self._probes.restart(max(outcome.sent_at, outcome.result_at))
        self._timer.learn(outcome.round_trips)
        self._congestion.delivered(
            outcome.finished,
            outcome.lost,
            self._window.newest,
            outcome.result_at,
            outcome.marked,
            queueing=self._timer.queueing > self._timer.least,
        )
        self.traffic.chunks += outcome.finished

    def _continue(self, now: float) -> None:
        """Mark due packets, send a probe after a silence, and give up if there is no hope."""
        self._stall.excuse(now)
        self._window.remind(now, self._timer.timeout, _SLOWEST_REMINDER)
        if now >= self._probes.deadline:
            # Send more with each probe, so that a silence is no coincidence.
            most = min(1 << self._probes.unanswered, self._congestion.size)
            self._repeat(*self._window.probe(most, now), now)
            self._probes.asked(now)
            if self._probes.unanswered == _OUTAGE:
                self._congestion.silence()
        if self.inquiries and now >= self.inquiries.at:
            self._inquire(self.inquiries, now)
        self._stall.check(now)

    def _inquire(self, inquiries: Inquiries, now: float) -> None:
        """Ask the switch which contributions a chunk that is past its deadline lacks."""
        if self._link.is_sending:
            inquiries.postpone(now)
            return
        slots, chunks = self._window.overdue(inquiries.age, now)
        if slots.size:
            self._repeat(slots, chunks, now)
        inquiries.asked(now)

    def _repeat(self, slots: Indices, chunks: Indices, now: float) -> None:
        bare = self._numpy.send(slots, chunks)
        self.traffic.count_sent(len(slots), bare, self._window.repetitions(slots))
        self._silence.owe(now)

    def _take_receipts(self, batch: Records, now: float) -> None:
        _, slots = self._numpy.accepted(batch, self._numpy.ours(batch, Kind.PENDING))
        if slots.size:
            self._silence.end()
            self._probes.answered(now)
            if (round_trip := self._window.had(slots, now)) is not None:
                self._timer.learn([round_trip])

    def _take_missing(self, batch: Records, now: float) -> None:
        positions, slots = self._numpy.accepted(batch, self._numpy.ours(batch, Kind.PENDING))
        if positions.size:
            arrived = batch["workers"][positions]
            self._stall.note_answers(slots, arrived, now)
            asked = self._queries.send(slots, arrived, now)
            self.traffic.count_sent(asked, asked, 0)
            if self.inquiries:
                self.inquiries.take(self._missing.of(slots, arrived))

    def _take_stale(self, batch: Records) -> None:
        if self._numpy.accepted(batch, self._numpy.ours(batch, Kind.STALE))[0].size:
            raise LeftBehind(
                "the other workers have gone on without this one, which came too late: join the job "
                "again when they have left, or let its quorum be all workers"
            )
