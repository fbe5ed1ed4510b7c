"""Exchanges through the switch, and the errors of those that cannot finish; the test is the switch."""

import contextlib
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from time import monotonic
from typing import TYPE_CHECKING

import numpy as np
import pytest
from one_worker import CHUNKS, LANES, TERM, WITHIN, WORKER_INFO, Switch, cabled

from innet.errors import AllReduceError, LeftBehind, SwitchUnreachable, WorkersMissing
from innet.host.job import Term, Timeouts, WorkerInfo
from innet.host.transport import SwitchTransport
from innet.rpc import innet_pb2 as pb
from innet.wire.layout import Flag, Kind, Operation
from innet.wire.records import set_field

if TYPE_CHECKING:
    from innet.host.integers import Reduction


@pytest.fixture
def switch() -> Iterator[Switch]:
    with cabled() as made:
        yield made


@dataclass
class MembershipView:
    """The membership as the transport sees it, with a record of its messages."""

    departures: Callable[[], Mapping[int, str]] = dict
    end: AllReduceError | None = None
    troubles: list[str] = field(default_factory=list)

    def check(self) -> None:
        if self.end:
            raise self.end

    def departed(self) -> Mapping[int, str]:
        return self.departures()

    def trouble(self, reason: str) -> None:
        self.troubles.append(reason)

    reached: bool = True
    waited_for: list[tuple[float, tuple[int, ...]]] = field(default_factory=list)

    def in_touch(self) -> bool:
        return self.reached

    def waits(self, seconds: float, ranks: Iterable[int]) -> None:
        self.waited_for.append((seconds, tuple(ranks)))


class Worker:
    """A transport in its first term, with a thread of its own for each exchange."""

    def __init__(
        self,
        switch: Switch,
        job: MembershipView | None = None,
        info: WorkerInfo = WORKER_INFO,
        timeouts: Timeouts | None = None,
        term: Term = TERM,
    ) -> None:
        self.job = job or MembershipView()
        timeouts = timeouts or Timeouts(WITHIN, WITHIN)
        self.transport = SwitchTransport(switch.link, info, monotonic, self.job, timeouts)
        self.transport.begin(term)
        self.pool = switch.in_the_end.enter_context(ThreadPoolExecutor(1))
        switch.in_the_end.callback(self.stop, switch)

    def stop(self, switch: Switch) -> None:
        """End the exchange that is under way, if there is one."""
        self.job.end = AllReduceError("the test is over")
        switch.waker.wake()

    def start(
        self, chunks: np.ndarray = CHUNKS, operation: Operation = Operation.SUM, flags=None,
        inspect: Callable[[np.ndarray], None] | None = None,
    ) -> "Future[Reduction]":  # fmt: skip
        flags = np.zeros(len(chunks), np.uint16) if flags is None else flags
        return self.pool.submit(
            self.transport.all_reduce, chunks, flags, operation, inspect=inspect
        )


def failure(future: "Future[Reduction]", kind: type[AllReduceError], why: str) -> None:
    error = future.exception(WITHIN)
    assert type(error) is kind
    assert why in str(error)


def test_a_result_is_taken_with_its_flags_its_count_and_its_members(switch: Switch):
    worker = Worker(switch)
    running = worker.start(flags=np.array([0, Flag.OVERFLOW], np.uint16))
    first, second = switch.take(), switch.take()
    both = Flag.CARRIED | Flag.WANTED
    assert [int(each["flags"][0]) for each in (first, second)] == [both, both | Flag.OVERFLOW]
    assert [int(each["sequence"][0]) for each in (first, second)] == [1, 1]
    first["lanes"] += 1000
    switch.answer(first, Kind.RESULT, workers=0b101)
    switch.answer(second, Kind.RESULT, workers=0b111)
    result = running.result(WITHIN)
    assert result.lanes.tolist() == [(CHUNKS[0] + 1000).tolist(), CHUNKS[1].tolist()]
    assert result.flags.tolist() == [0, Flag.OVERFLOW]
    assert result.counts.tolist() == [2, 3]
    assert result.members.tolist() == [0b101, 0b111]


def serve(
    switch: Switch, running: "Future[Reduction]", reply: Callable[[np.ndarray], None]
) -> None:
    """Let the switch handle every contribution, as long as the worker sends some."""
    switch.sock.settimeout(0.1)
    while not running.done():
        with contextlib.suppress(TimeoutError):
            reply(switch.take())


@pytest.mark.parametrize("lost", range(12))
def test_what_is_lost_is_sent_again_as_it_was(switch: Switch, lost: int):
    seen: list[bytes] = []

    def reply(packet: np.ndarray) -> None:
        if packet["lanes"][0, 0] == chunks[lost, 0]:
            seen.append(packet.tobytes())
            if len(seen) < 3:
                return
        switch.answer(packet, Kind.RESULT)

    chunks = np.arange(12 * LANES, dtype=np.int32).reshape(12, LANES)
    worker = Worker(switch)
    running = worker.start(chunks)
    serve(switch, running, reply)
    assert running.result(WITHIN).lanes.tolist() == chunks.tolist()
    assert len(seen) >= 3
    assert len(set(seen)) == 1
    traffic = worker.transport.traffic
    assert traffic.retransmissions >= 2
    assert traffic.packets_sent == traffic.chunks + traffic.retransmissions


def test_who_leaves_after_contributing_is_not_missed(switch: Switch):
    """An answer names missing workers. Then they contribute and leave, and their result gets lost."""
    times_asked = 0

    def departed() -> dict[int, str]:
        nonlocal times_asked
        times_asked += worker.transport.traffic.packets_received > 0
        return {1: "it has left the job"} if times_asked > 1 else {}

    worker = Worker(switch, MembershipView(departed))
    running = worker.start(CHUNKS[:1])
    switch.answer(switch.take(), Kind.PENDING, workers=0b001)
    switch.take()
    switch.answer(switch.take(), Kind.RESULT)
    assert running.result(WITHIN).lanes.tolist() == CHUNKS[:1].tolist()
    assert times_asked > 1


def keep_answering(switch: Switch, running: "Future[Reduction]", arrived: tuple[int, int]) -> None:
    """Answer that others are missing. Only answers long after a departure count, so give many."""

    def reply(packet: np.ndarray) -> None:
        switch.answer(packet, Kind.PENDING, arrived[int(packet["slot"][0]) - TERM.first_slot])

    serve(switch, running, reply)


@pytest.mark.parametrize("arrived", [(0b101, 0b011), (0b101, 0b101)])
def test_who_left_without_contributing_is_named(switch: Switch, arrived: tuple[int, int]):
    worker = Worker(switch, MembershipView(lambda: {1: "it has left the job"}))
    running = worker.start()
    keep_answering(switch, running, arrived)
    failure(running, WorkersMissing, "the all-reduce cannot finish: worker 1: it has left the job")


def test_who_left_is_not_missed_where_enough_others_are_left(switch: Switch):
    info = WorkerInfo(WORKER_INFO.job, WORKER_INFO.rank, workers=3, min_workers=2, lanes=LANES)
    gone = {1: "it has left the job"}
    worker = Worker(switch, MembershipView(lambda: gone), info)
    running = worker.start(CHUNKS[:1])
    for _ in range(6):  # for longer than an answer can be in flight
        packet = switch.take()
        switch.answer(packet, Kind.PENDING, workers=0b001)
    assert not running.done()
    gone[2] = "its lease has run out"
    keep_answering(switch, running, (0b001, 0))
    failure(
        running, WorkersMissing, "worker 1: it has left the job; worker 2: its lease has run out"
    )


def test_what_ends_the_stay_ends_the_exchange(switch: Switch):
    job = MembershipView(end=AllReduceError("the membership is over"))
    failure(Worker(switch, job).start(), AllReduceError, "the membership is over")


def test_answers_that_are_not_for_this_job_and_term_are_no_sign_of_life(switch: Switch):
    worker = Worker(switch, timeouts=Timeouts(switch=1.0))
    running = worker.start(CHUNKS[:1])
    packet = switch.take()
    for name in ("version", "job", "term", "slot", "sequence"):
        foreign = packet.copy()
        foreign[name] += 1
        switch.answer(foreign, Kind.RESULT)
    failure(running, SwitchUnreachable, "the switch has not answered for 1")
    assert worker.transport.traffic.packets_received == 5
    assert worker.transport.traffic.corrupted == 0


def test_answers_that_are_not_intact_are_counted_and_no_sign_of_life(switch: Switch):
    worker = Worker(switch, timeouts=Timeouts(switch=1.0))
    running = worker.start(CHUNKS[:1])
    packet = switch.take()
    switch.answer(packet, Kind.PENDING)
    damaged = packet.copy()
    set_field(damaged, "kind", Kind.RESULT)
    switch.sock.send(damaged.tobytes())
    failure(running, SwitchUnreachable, "the switch has not answered for 1")
    assert worker.transport.traffic.corrupted == 1


def test_silence_is_trouble_once_a_term_and_later_in_the_next_one(switch: Switch):
    worker = Worker(switch, timeouts=Timeouts(switch=1.5))
    failure(worker.start(), SwitchUnreachable, "is it running, and does it still hold this job?")
    [first] = worker.job.troubles
    assert first.startswith("the switch has not answered for 1.")
    worker = Worker(switch)
    running = worker.start()
    while not worker.job.troubles:
        assert not running.done()
    worker.job.end = AllReduceError("another term")
    failure(running, AllReduceError, "another term")
    worker.job.end = None
    worker.transport.begin(Term(10, TERM.path, TERM.first_slot, TERM.slots))
    running = worker.start()
    while len(worker.job.troubles) == 1:
        assert not running.done()
    worker.job.end = AllReduceError("yet another one")
    failure(running, AllReduceError, "yet another one")
    seconds = [float(reason.split()[-2]) for reason in worker.job.troubles]
    assert seconds[1] >= 2 * 1.0


def test_time_in_which_the_worker_itself_did_not_run_is_no_silence_of_the_switch(switch: Switch):
    """For example after a SIGSTOP, or while another thread holds the interpreter lock."""

    class Stopped(MembershipView):
        def check(self) -> None:
            if worker.transport._probes.unanswered == 2 and not self.waited_for:
                threading.Event().wait(1.5)
                self.waited_for.append((1.5, ()))

    worker = Worker(switch, Stopped(), timeouts=Timeouts(switch=1.0))
    error = worker.start().exception(WITHIN)
    assert type(error) is SwitchUnreachable
    [seconds] = re.findall(r"has not answered for (\S+) s", str(error))
    assert float(seconds) < 1.5  # probed again and again before it gave up


def test_without_the_controller_the_silence_of_the_switch_is_borne(switch: Switch):
    """Only the controller knows another way to sum. The wait for it is as long as for other workers."""
    worker = Worker(switch, timeouts=Timeouts(switch=0.2, workers=1.5))
    worker.job.reached = False
    failure(worker.start(), SwitchUnreachable, "the switch has not answered for 1")


def test_silence_adds_up_over_terms_until_the_job_goes_on(switch: Switch):
    worker = Worker(switch, timeouts=Timeouts(switch=1.5))
    for number in range(10, 20):
        running = worker.start()
        while not worker.job.troubles:
            if running.done():
                failure(running, SwitchUnreachable, "the switch has not answered for")
                assert number > 10
                return
        worker.job.troubles.clear()
        worker.job.end = AllReduceError("another term")
        assert running.exception(WITHIN)
        worker.job.end = None
        worker.transport.begin(Term(number, TERM.path, TERM.first_slot, TERM.slots))
    raise AssertionError("it never gives up")


def test_others_that_do_not_come_are_waited_for_only_so_long(switch: Switch):
    worker = Worker(switch, timeouts=Timeouts(switch=WITHIN, workers=1.0))
    running = worker.start()
    keep_answering(switch, running, (0b101, 0b001))
    failure(running, WorkersMissing, "no contribution from workers [1, 2] for 1 s")
    assert (1, 2) in [ranks for _, ranks in worker.job.waited_for]
    assert not worker.job.troubles


def test_who_is_told_that_a_chunk_is_over_has_been_left_behind(switch: Switch):
    worker = Worker(switch)
    running = worker.start()
    packet, other = switch.take(), switch.take()
    late = packet.copy()
    late["sequence"] += 2
    switch.answer(late, Kind.STALE)
    switch.answer(other, Kind.RESULT)
    switch.answer(packet, Kind.STALE)
    failure(running, LeftBehind, "the other workers have gone on without this one")


def test_the_first_result_is_shown_as_soon_as_it_is_there(switch: Switch):
    def refuse(first: np.ndarray) -> None:
        assert first.tolist() == CHUNKS[0].tolist()
        raise AllReduceError("not this")

    worker = Worker(switch)
    running = worker.start(operation=Operation.MAX, inspect=refuse)
    switch.answer(switch.take_chunk(0), Kind.RESULT)
    failure(running, AllReduceError, "not this")


def test_sequence_numbers_go_on_within_a_term_and_begin_again_with_the_next(switch: Switch):
    worker = Worker(switch)
    for term, sequences in ((TERM, (1, 2)), (Term(11, TERM.path, 32, 2), (1, 2))):
        worker.transport.begin(term)
        for sequence in sequences:
            running = worker.start(CHUNKS[:1])
            while not running.done():
                packet = switch.take()
                if packet["term"] == term.number and packet["sequence"] == sequence:
                    assert packet["slot"] == term.first_slot
                    switch.answer(packet, Kind.RESULT)
                    running.result(WITHIN)


def test_progress_says_what_is_missing_and_where(switch: Switch):
    worker = Worker(switch)
    running = worker.start()
    switch.answer(switch.take_chunk(0), Kind.RESULT)
    switch.answer(switch.take_chunk(1), Kind.PENDING, workers=0b011)
    progress = pb.Progress()
    while (progress.remaining, [*progress.missing]) != (1, [2]):
        progress = pb.Progress()
        worker.transport.fill(progress)
    assert (progress.chunk, progress.slot, progress.sequence) == (1, TERM.first_slot + 1, 1)
    assert progress.stuck_s >= 0
    assert progress.timeout_s > progress.round_trip_s
    assert progress.window == TERM.slots
    switch.answer(switch.take_chunk(1), Kind.RESULT)
    running.result(WITHIN)
    progress = pb.Progress()
    worker.transport.fill(progress)
    assert (progress.remaining, progress.stuck_s, progress.silent_s) == (0, 0, 0)
