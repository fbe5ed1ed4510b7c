"""A worker's half of docs/recovery.md; the test plays the controller, the switch, and the others."""

import threading
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace

import numpy as np
import pytest
from one_worker import CHUNKS, LANES, TERM, WITHIN, WORKER_INFO, Controller, Switch, cabled

from innet.errors import (
    AgentClosed,
    AllReduceError,
    JobEnded,
    LeftBehind,
    LinkFailed,
    SwitchUnreachable,
    WorkersDisagree,
    WorkersMissing,
)
from innet.host.exchanges import Exchanges
from innet.host.integers import Reduction
from innet.host.job import Path, Term, Timeouts, WorkerInfo
from innet.wire.layout import Flag, Kind, Operation

SMALLEST = np.iinfo(np.int32).min
NO_SWITCH = Term(12, Path.FALLBACK, TERM.first_slot, TERM.slots, reason="no switch answers")


class Others:
    """The other workers when there is no switch; the test decides the result of an exchange."""

    def __init__(self) -> None:
        self.workers = WORKER_INFO.workers
        self._asked = threading.Semaphore(0)
        self._calls: list[tuple[tuple[int, int], np.ndarray, Operation, np.ndarray, Future]] = []

    def all_reduce(self, position, chunks, operation, flags) -> "Future[Reduction]":
        future: Future[Reduction] = Future()
        self._calls.append((position, chunks, operation, flags, future))
        self._asked.release()
        return future

    def combine(self, tensor, *, mean: bool) -> Future:
        raise AssertionError((tensor, mean))

    def take(self) -> tuple[tuple[int, int], np.ndarray, Operation, np.ndarray, Future]:
        """Return the worker's next contribution to a sum with the others."""
        assert self._asked.acquire(timeout=WITHIN)
        return self._calls.pop(0)


class Worker:
    """A worker whose exchanges run in a thread of their own, as an agent's do."""

    def __init__(
        self, switch: Switch, info: WorkerInfo = WORKER_INFO, timeouts: Timeouts | None = None
    ) -> None:
        self.switch, self.others = switch, Others()
        self.controller = Controller(switch.waker)
        self.exchanges = Exchanges(
            switch.link, info, self.controller, switch.waker,
            timeouts or Timeouts(WITHIN, WITHIN), self.others,
        )  # fmt: skip
        self.pool = switch.in_the_end.enter_context(ThreadPoolExecutor(1))
        switch.in_the_end.callback(self.exchanges.stop)

    def start(
        self, chunks: np.ndarray = CHUNKS, operation: Operation = Operation.SUM, flags=None,
        **more,
    ) -> "Future[Reduction]":  # fmt: skip
        flags = np.zeros(len(chunks), np.uint16) if flags is None else flags
        return self.pool.submit(self.exchanges.all_reduce, chunks, operation, flags, **more)

    def attend(self) -> None:
        """Do the same as an agent between two exchanges."""
        self.pool.submit(self.exchanges.attend).result(WITHIN)

    def finish(self, chunks: np.ndarray = CHUNKS, **more) -> Reduction:
        """Finish an exchange in which the switch returns the worker's own chunks."""
        running = self.start(chunks, **more)
        for slot in range(len(chunks)):
            self.switch.answer(self.take(slot), Kind.RESULT)
        return running.result(WITHIN)

    def take(self, slot: int) -> np.ndarray:
        """Return the contribution to a slot in the present term; skip earlier packets."""
        term = self.controller.term
        while True:
            packet = self.switch.take_chunk(slot)
            if packet["term"] == term.number:
                return packet

    def heard(self, count: int) -> list[tuple[int, int]]:
        """Return the first `count` messages that the worker is ready."""
        while len(self.controller.readies) < count:
            self.attend()
        return self.controller.readies


@pytest.fixture
def switch() -> Iterator[Switch]:
    with cabled() as made:
        yield made


@pytest.fixture
def worker(switch: Switch) -> Worker:
    made = Worker(switch)
    made.controller.say_resume(TERM)
    return made


def wait_for_ready(worker: Worker, count: int = 1) -> list[tuple[int, int]]:
    """Wait for `count` such messages while an exchange is under way."""
    while len(worker.controller.readies) < count:
        threading.Event().wait(0.001)
    return worker.controller.readies


def failure(future: "Future[Reduction]", kind: type[AllReduceError], why: str) -> None:
    error = future.exception(WITHIN)
    assert type(error) is kind
    assert why in str(error)


def test_an_exchange_waits_for_the_first_term(switch: Switch):
    worker = Worker(switch)
    running = worker.start()
    worker.controller.say_resume(TERM)
    for slot in range(2):
        switch.answer(worker.take(slot), Kind.RESULT)
    assert running.result(WITHIN).lanes.tolist() == CHUNKS.tolist()
    assert worker.exchanges.term == TERM


@pytest.mark.parametrize("finished", [0, 1, 3])
def test_between_two_exchanges_it_is_ready_at_once_with_the_next_ones_number(worker, finished: int):
    for _ in range(finished):
        worker.finish()
    worker.controller.say_recover(10)
    worker.attend()
    worker.attend()
    assert worker.controller.readies == [(10, finished)]
    worker.controller.say_recover(11)
    worker.attend()
    assert worker.controller.readies == [(10, finished), (11, finished)]


def test_a_new_term_breaks_an_exchange_off_and_it_is_done_again_whole(worker: Worker):
    running = worker.start()
    worker.switch.answer(worker.take(0), Kind.RESULT)
    late = worker.take(1)
    worker.controller.say_recover(10)
    assert wait_for_ready(worker) == [(10, 0)]
    worker.controller.say_resume(replace(TERM, number=10, first_slot=16))
    worker.switch.answer(late, Kind.RESULT)  # of the previous term: does not count
    for slot in range(2):
        packet = worker.take(slot)
        assert packet["sequence"] == 1
        assert packet["lanes"].tolist() == [CHUNKS[slot].tolist()]
        packet["lanes"] += 5
        worker.switch.answer(packet, Kind.RESULT)
    assert running.result(WITHIN).lanes.tolist() == (CHUNKS + 5).tolist()


def test_who_has_the_result_gives_it_with_its_flags_and_its_members(worker: Worker):
    running = worker.start()
    for slot, members in enumerate((0b101, 0b111)):
        packet = worker.take(slot)
        packet["flags"] = slot
        worker.switch.answer(packet, Kind.RESULT, workers=members)
    running.result(WITHIN)
    worker.controller.say_recover(10)
    assert worker.heard(1) == [(10, 1)]
    worker.controller.say_resume(replace(TERM, number=10, exchange=0, shared=True))
    sharing = worker.pool.submit(worker.exchanges.attend)
    given = [worker.take(slot) for slot in range(3)]
    for packet in given:
        assert packet["operation"] == Operation.MAX
        worker.switch.answer(packet, Kind.RESULT)
    sharing.result(WITHIN)
    assert [packet["lanes"][0].tolist() for packet in given[:2]] == CHUNKS.tolist()
    assert [int(packet["flags"][0]) for packet in given] == [0, 1, 0]
    assert given[2]["lanes"][0, :4].tolist() == [0b101, 0b111, 2, 3]
    worker.controller.say_recover(11)
    assert worker.heard(2)[-1] == (11, 1)


@pytest.mark.parametrize("busy", [True, False])
def test_who_lacks_the_result_takes_it_from_those_who_have_it(worker: Worker, *, busy: bool):
    """It takes it too if it has not begun the exchange, since a quorum did without its contribution."""
    shared = replace(TERM, number=10, shared=True)
    if busy:
        running = worker.start()
        worker.take(0)
        worker.controller.say_recover(10)
        assert wait_for_ready(worker) == [(10, 0)]
        worker.controller.say_resume(shared)
    else:
        worker.controller.say_recover(10)
        worker.attend()
        worker.controller.say_resume(shared)
        worker.attend()
        running = worker.start()
    own, right = [worker.take(slot) for slot in range(3)], CHUNKS * 7
    for packet, lanes in zip(own, [*right.tolist(), [0b011, 0b110, 2, 1] + [0] * 60], strict=True):
        assert packet["operation"] == Operation.MAX
        assert (packet["flags"], packet["lanes"].max()) == (0, SMALLEST)
        packet["lanes"] = lanes
        packet["flags"] = Flag.OVERFLOW
        worker.switch.answer(packet, Kind.RESULT)
    result = running.result(WITHIN)
    assert result.lanes.tolist() == right.tolist()
    assert result.flags.tolist() == [Flag.OVERFLOW] * 2
    assert (result.members.tolist(), result.counts.tolist()) == ([0b011, 0b110], [2, 1])
    worker.controller.say_recover(11)
    assert worker.heard(2)[-1] == (11, 1)


def test_a_worker_in_the_next_exchange_shares_the_one_before_first(worker: Worker):
    worker.finish()
    running = worker.start(CHUNKS + 100)
    worker.take(0)
    worker.controller.say_recover(10)
    assert wait_for_ready(worker) == [(10, 1)]
    worker.controller.say_resume(replace(TERM, number=10, shared=True))
    for slot in range(3):
        packet = worker.take(slot)
        assert packet["operation"] == Operation.MAX
        worker.switch.answer(packet, Kind.RESULT)
    found = []
    for slot, sequence in ((2, 2), (0, 2), (1, 2)):
        del slot
        packet = worker.switch.take()
        while packet["term"] != 10 or packet["operation"] != Operation.SUM:
            packet = worker.switch.take()
        assert packet["sequence"] == sequence
        found.append(packet["lanes"][0].tolist())
        worker.switch.answer(packet, Kind.RESULT)
        if len(found) == 2:
            break
    assert sorted(found) == (CHUNKS + 100).tolist()
    assert running.result(WITHIN).lanes.tolist() == (CHUNKS + 100).tolist()


def test_sharing_may_be_broken_off_too(worker: Worker):
    worker.finish()
    worker.controller.say_recover(10)
    worker.attend()
    for number in (10, 11):
        worker.controller.say_resume(replace(TERM, number=number, shared=True))
        sharing = worker.pool.submit(worker.exchanges.attend)
        packets = [worker.take(slot) for slot in range(3)]
        if number == 11:
            break
        worker.controller.say_recover(11)
        sharing.result(WITHIN)
        assert worker.controller.readies[1:] == [(11, 1)]
    for packet in packets:
        worker.switch.answer(packet, Kind.RESULT)
    sharing.result(WITHIN)
    assert worker.start(CHUNKS[:0]).result(WITHIN).lanes.shape == (0, LANES)


def test_on_the_fallback_the_same_integers_go_to_the_others(worker: Worker):
    worker.controller.say_recover(12)
    worker.attend()
    worker.controller.say_resume(NO_SWITCH)
    for number in range(3):
        flags = np.array([0, Flag.OVERFLOW], np.uint16)
        running = worker.start(CHUNKS + number, Operation.MAX, flags)
        position, chunks, operation, given, future = worker.others.take()
        assert (position, operation) == ((12, number), Operation.MAX)
        assert chunks.tolist() == (CHUNKS + number).tolist()
        assert given.tolist() == flags.tolist()
        result = Reduction.empty(2, LANES)
        future.set_result(result)
        assert running.result(WITHIN) is result
    assert worker.exchanges.fallbacks == {"switch": 3}


def test_the_reason_for_a_fallback_is_counted_and_logged_once(worker: Worker, caplog):
    no_slots = Term(12, Path.FALLBACK, reason="no slots are free for the job yet")
    worker.controller.say_resume(no_slots)
    for _ in range(2):
        running = worker.start()
        *_, future = worker.others.take()
        future.set_result(Reduction.empty(2, LANES))
        running.result(WITHIN)
    assert worker.exchanges.fallbacks == {"no_slots": 2}
    [record] = caplog.records
    assert "no slots are free for the job yet" in record.getMessage()


def test_a_new_term_takes_an_exchange_from_the_fallback_back_to_the_switch(worker: Worker):
    worker.controller.say_resume(NO_SWITCH)
    running = worker.start()
    *_, future = worker.others.take()
    worker.controller.say_recover(13)
    assert wait_for_ready(worker) == [(13, 0)]
    assert future.cancelled()
    worker.controller.say_resume(replace(TERM, number=13))
    for slot in range(2):
        worker.switch.answer(worker.take(slot), Kind.RESULT)
    assert running.result(WITHIN).lanes.tolist() == CHUNKS.tolist()


def test_sharing_goes_over_the_fallback_as_well(worker: Worker):
    worker.finish()
    worker.controller.say_recover(12)
    worker.attend()
    worker.controller.say_resume(replace(NO_SWITCH, shared=True))
    sharing = worker.pool.submit(worker.exchanges.attend)
    position, chunks, operation, _, future = worker.others.take()
    assert (position, operation) == ((12, 0), Operation.MAX)
    assert chunks[:2].tolist() == CHUNKS.tolist()
    future.set_result(Reduction.empty(3, LANES))
    sharing.result(WITHIN)


def test_a_fallback_that_fails_because_a_worker_died_names_the_worker(worker: Worker):
    worker.controller.say_resume(NO_SWITCH)
    running = worker.start()
    *_, future = worker.others.take()
    future.set_exception(RuntimeError("Connection closed by peer"))
    worker.controller.say_departed(2, "its connection has ended")
    failure(running, WorkersMissing, "worker 2: its connection has ended")


def test_a_fallback_that_fails_without_a_reason_ends_the_stay(switch: Switch):
    worker = Worker(switch, timeouts=Timeouts(switch=0.2, workers=WITHIN))
    worker.controller.say_resume(NO_SWITCH)
    running = worker.start()
    *_, future = worker.others.take()
    future.set_exception(RuntimeError("Connection closed by peer"))
    failure(running, LinkFailed, "the fallback failed (Connection closed by peer)")


def test_others_that_do_not_come_to_the_fallback_are_waited_for_only_so_long(switch: Switch):
    worker = Worker(switch, timeouts=Timeouts(switch=WITHIN, workers=0.2))
    worker.controller.say_resume(NO_SWITCH)
    failure(worker.start(), WorkersMissing, "not all workers have begun this all-reduce for")


def test_a_term_that_does_not_come_is_waited_for_only_so_long(switch: Switch):
    worker = Worker(switch, timeouts=Timeouts(switch=0.3, workers=0.3))
    failure(worker.start(), WorkersMissing, "the job has not begun for")
    worker = Worker(switch, timeouts=Timeouts(switch=0.3, workers=WITHIN))
    worker.controller.say_resume(TERM)
    worker.attend()
    worker.controller.say_recover(10, "the switch's connection has ended")
    running = worker.start()
    failure(running, SwitchUnreachable, "after a term was over (the switch's connection has")


def test_the_patience_with_the_switch_is_not_for_workers_that_are_waited_for(switch: Switch):
    worker = Worker(switch, timeouts=Timeouts(switch=0.1, workers=1.0))
    worker.controller.say_resume(TERM)
    worker.attend()
    worker.controller.waiting_for = frozenset({1})
    worker.controller.say_recover(10, "the switch has restarted")
    failure(worker.start(), WorkersMissing, "has waited 1 s for worker 1: are they stuck")


def test_the_patience_with_the_switch_is_not_for_a_controller_that_is_out_of_reach(switch: Switch):
    worker = Worker(switch, timeouts=Timeouts(switch=0.1, workers=1.0))
    worker.controller.say_resume(TERM)
    worker.attend()
    worker.controller.connected = False
    worker.controller.say_recover(10, "the switch has restarted")
    failure(worker.start(), SwitchUnreachable, "has not gone on for 1.")


def test_no_answer_is_trouble_and_only_the_controller_ends_the_term(worker: Worker):
    running = worker.start()
    while not worker.controller.troubles:
        assert not running.done()
    [(term, reason)] = worker.controller.troubles
    assert term == TERM.number
    assert reason.startswith("the switch has not answered for 1.")
    worker.controller.say_recover(10)
    assert wait_for_ready(worker) == [(10, 0)]
    worker.controller.say_resume(replace(TERM, number=10))
    for slot in range(2):
        worker.switch.answer(worker.take(slot), Kind.RESULT)
    running.result(WITHIN)


def test_a_controller_that_goes_back_on_a_new_term_is_asked_for_one(worker: Worker):
    """The controller has forgotten the new term, and the exchange was broken off."""
    running = worker.start()
    worker.take(0)
    worker.controller.say_recover(10)
    wait_for_ready(worker)
    worker.controller.recover = None
    worker.switch.waker.wake()
    while not worker.controller.troubles:
        assert not running.done()
    assert worker.controller.troubles == [(TERM.number, "an exchange was broken off")]
    worker.controller.say_recover(11)
    assert wait_for_ready(worker, 2)[-1] == (11, 0)


def test_before_sequence_numbers_run_out_there_is_a_new_term(worker: Worker):
    worker.finish()
    worker.exchanges._transport._window.sequence[:] = 2**31 + 2
    running = worker.start()
    while not worker.controller.troubles:
        assert not running.done()
    assert worker.controller.troubles == [(TERM.number, "its sequence numbers are used up")]
    worker.controller.say_recover(10)
    assert wait_for_ready(worker) == [(10, 1)]
    worker.controller.say_resume(replace(TERM, number=10, exchange=1))
    for slot in range(2):
        packet = worker.take(slot)
        assert packet["sequence"] == 1
        worker.switch.answer(packet, Kind.RESULT)
    running.result(WITHIN)


def test_who_is_behind_what_the_others_go_on_with_is_told_so(worker: Worker):
    worker.controller.say_resume(replace(TERM, number=10, exchange=1))
    worker.attend()
    failure(worker.start(), LeftBehind, "goes on with exchange 1, this worker has not finished 0")


def test_a_term_before_what_was_finished_is_refused(worker: Worker):
    for _ in range(2):
        worker.finish()
    worker.controller.say_resume(replace(TERM, number=10, exchange=0, shared=True))
    failure(worker.start(), AllReduceError, "goes back to exchange 0, this worker has finished 1")


@pytest.mark.parametrize("min_workers", [3, 2])
def test_departures_end_the_waiting_when_too_few_are_left(switch: Switch, min_workers: int):
    worker = Worker(switch, replace(WORKER_INFO, min_workers=min_workers))
    worker.controller.say_resume(TERM)
    worker.attend()
    worker.controller.say_recover(10)
    running = worker.start()
    for rank in range(1, 5 - min_workers):
        assert not running.done()
        worker.controller.say_departed(rank, "it was silent for 10 s")
    failure(running, WorkersMissing, "worker 1: it was silent for 10 s")


def test_the_end_of_the_job_ends_exchanges_that_wait_and_those_under_way(switch: Switch):
    for resumed in (True, False):
        worker = Worker(switch)
        if resumed:
            worker.controller.say_resume(TERM)
        running = worker.start()
        worker.controller.ended = "the job 'x' was deleted"
        switch.waker.wake()
        failure(running, JobEnded, "the job 'x' was deleted")
        failure(worker.start(), JobEnded, "the job 'x' was deleted")


def test_stopping_ends_an_exchange_that_waits_for_nothing_but_the_others(worker: Worker):
    worker.controller.say_resume(NO_SWITCH)
    running = worker.start()
    *_, future = worker.others.take()
    worker.exchanges.stop()
    failure(running, AgentClosed, "the agent was closed before the all-reduce was done")
    assert future.cancelled()


def test_after_a_failure_nothing_is_sent_any_more(worker: Worker):
    def refuse(first: np.ndarray) -> None:
        assert first.tolist() == CHUNKS[0].tolist()
        raise WorkersDisagree("not this")

    running = worker.start(operation=Operation.MAX, inspect=refuse)
    worker.switch.answer(worker.take(0), Kind.RESULT)
    failure(running, WorkersDisagree, "not this")
    sent = worker.exchanges.traffic.packets_sent
    failure(worker.start(), WorkersDisagree, "not this")
    worker.controller.say_recover(10)
    worker.attend()
    assert worker.exchanges.traffic.packets_sent == sent
    assert not worker.controller.readies
