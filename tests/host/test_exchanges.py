"""A worker's half of docs/recovery.md; the test plays the controller, the switch, and the others."""

from dataclasses import replace

import numpy as np
import pytest
from exchanging_worker import NO_SWITCH, SMALLEST, Worker, failure, wait_for_ready
from one_worker import CHUNKS, LANES, TERM, WITHIN, Switch

from innet.errors import (
    LinkFailed,
    WorkersMissing,
)
from innet.host.integers import Reduction
from innet.host.job import Path, Term, Timeouts
from innet.wire.layout import Flag, Kind, Operation
from innet.wire.records import get_field

LANES_BOTH_WAYS = Flag.CARRIED | Flag.WANTED


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


def test_a_term_begins_with_the_operation_of_its_own_exchange(worker: Worker):
    """Packets are kept from one exchange to the next; their operation must not be."""
    small = np.arange(LANES, dtype=np.int32).reshape(1, LANES)
    said: list[tuple[int, Operation]] = []
    for number, operations in (
        (TERM.number, (Operation.SUM, Operation.MAX, Operation.MAX)),
        (10, (Operation.MAX, Operation.SUM)),
        (11, (Operation.SUM,)),
    ):
        answered: set[int] = set()
        if number != TERM.number:
            exchange = len(said)
            worker.controller.say_recover(number)
            assert worker.heard(number - TERM.number)[-1] == (number, exchange)
            worker.controller.say_resume(replace(TERM, number=number, exchange=exchange))
        for operation in operations:
            running = worker.start(small, operation)
            packet = worker.take(0)
            while int(packet["sequence"][0]) in answered:  # repeated on a busy machine
                packet = worker.take(0)
            answered.add(int(packet["sequence"][0]))
            found = int(get_field(packet, "operation")[0])
            said.append((int(packet["term"][0]), Operation(found)))
            packet["lanes"] += len(said)
            worker.switch.answer(packet, Kind.RESULT)
            assert running.result(WITHIN).lanes.tolist() == (small + len(said)).tolist()
    assert [term for term, _ in said] == [9, 9, 9, 10, 10, 11]
    assert [operation for _, operation in said] == [
        Operation.SUM, Operation.MAX, Operation.MAX, Operation.MAX, Operation.SUM, Operation.SUM,
    ]  # fmt: skip


def test_who_has_the_result_gives_it_with_its_flags_and_its_members(worker: Worker):
    running = worker.start()
    for slot, members in enumerate((0b101, 0b111)):
        packet = worker.take(slot)
        packet["flags"] |= np.uint16(slot)
        worker.switch.answer(packet, Kind.RESULT, workers=members)
    running.result(WITHIN)
    worker.controller.say_recover(10)
    assert worker.heard(1) == [(10, 1)]
    worker.controller.say_resume(replace(TERM, number=10, exchange=0, shared=True))
    sharing = worker.pool.submit(worker.exchanges.attend)
    given = [worker.take(slot) for slot in range(3)]
    for packet in given:
        assert get_field(packet, "operation") == Operation.MAX
        worker.switch.answer(packet, Kind.RESULT)
    sharing.result(WITHIN)
    assert [packet["lanes"][0].tolist() for packet in given[:2]] == CHUNKS.tolist()
    assert [int(packet["flags"][0]) for packet in given] == [LANES_BOTH_WAYS | n for n in (0, 1, 0)]
    assert given[2]["lanes"][0, :6].tolist() == [0b101, 0, 0b111, 0, 2, 3]
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
    for packet, lanes in zip(
        own, [*right.tolist(), [0b011, 0, 0b110, 0, 2, 1] + [0] * 58], strict=True
    ):
        assert get_field(packet, "operation") == Operation.MAX
        assert (packet["flags"], packet["lanes"].max()) == (LANES_BOTH_WAYS, SMALLEST)
        packet["lanes"] = lanes
        packet["flags"] |= np.uint16(Flag.OVERFLOW)
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
        assert get_field(packet, "operation") == Operation.MAX
        worker.switch.answer(packet, Kind.RESULT)
    found = []
    for slot, sequence in ((2, 2), (0, 2), (1, 2)):
        del slot
        packet = worker.switch.take()
        while packet["term"] != 10 or get_field(packet, "operation") != Operation.SUM:
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


def test_a_new_term_takes_an_exchange_from_the_fallback_back_to_the_switch(worker: Worker, caplog):
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
    away, back = caplog.records
    assert away.getMessage().startswith("job train, worker 0: summing over the fallback")
    assert back.getMessage() == "job train, worker 0: summing over the switch again"
    assert (back.job, back.rank) == ("train", 0)


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
