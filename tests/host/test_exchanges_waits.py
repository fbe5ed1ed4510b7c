"""Exchanges that wait: for how long, for whom, and what ends them."""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np
import pytest
from exchanging_worker import NO_SWITCH, Worker, failure, wait_for_ready
from one_worker import CHUNKS, TERM, WITHIN, WORKER_INFO, Switch

from innet.errors import (
    AgentClosed,
    AllReduceError,
    JobEnded,
    LeftBehind,
    SwitchUnreachable,
    WorkersDisagree,
    WorkersMissing,
)
from innet.host.integers import Reduction
from innet.host.job import Timeouts
from innet.wire.layout import Kind, Operation


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


def a_clock_of_waits(switch: Switch, monkeypatch):
    """Let the exchanges' clock go on only while they wait: a late look would count more seconds."""
    seconds = 0.0

    def wait(limit: float):
        nonlocal seconds
        seconds += 1.1 * limit

    monkeypatch.setattr(switch.waker, "wait", wait)
    monkeypatch.setattr("innet.host.exchanges.monotonic", lambda: seconds)


def test_the_patience_with_the_switch_is_not_for_workers_that_are_waited_for(
    switch: Switch, monkeypatch
):
    worker = Worker(switch, timeouts=Timeouts(switch=0.1, workers=1.0))
    worker.controller.say_resume(TERM)
    worker.attend()
    a_clock_of_waits(switch, monkeypatch)
    worker.controller.waiting_for = frozenset({1})
    worker.controller.say_recover(10, "the switch has restarted")
    failure(worker.start(), WorkersMissing, "has waited 1 s for worker 1: are they stuck")


def test_the_patience_with_the_switch_is_not_for_a_controller_that_is_out_of_reach(
    switch: Switch, monkeypatch
):
    worker = Worker(switch, timeouts=Timeouts(switch=0.1, workers=1.0))
    worker.controller.say_resume(TERM)
    worker.attend()
    a_clock_of_waits(switch, monkeypatch)
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


def test_who_has_left_may_have_finished_at_the_fallback_before(worker: Worker, monkeypatch):
    worker.controller.say_resume(NO_SWITCH)
    running = worker.start()
    *_, future = worker.others.take()
    result = Reduction.empty(*CHUNKS.shape)

    def departed() -> Mapping[int, str]:
        if not future.done():
            future.set_result(result)
        return {1: "it has left the job"}

    monkeypatch.setattr(worker.controller, "departed", departed)
    worker.switch.waker.wake()
    assert running.result(WITHIN) is result


def test_who_has_left_too_early_is_not_waited_for_at_the_fallback(worker: Worker):
    worker.controller.say_resume(NO_SWITCH)
    running = worker.start()
    *_, future = worker.others.take()
    worker.controller.say_departed(1, "it has left the job")
    failure(running, WorkersMissing, "worker 1: it has left the job")
    assert future.cancelled()


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
