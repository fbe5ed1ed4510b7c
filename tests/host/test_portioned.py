"""Sums with portions of the lanes, broken off and begun again; the test is the switch and the others."""

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
from exchanging_worker import NO_SWITCH, SMALLEST, Worker, failure, wait_for_ready
from one_worker import LANES, TERM, WITHIN, WORKER_INFO, Switch

from innet.errors import LeftBehind
from innet.host import fastpath, float_reducer
from innet.host.integers import Reduction
from innet.host.job import Path
from innet.host.portions import Portions, interleaved
from innet.host.quantizers import fixed_point
from innet.host.quantizers.spec import QuantizerSpec
from innet.host.reducer import Reducer
from innet.wire.layout import Flag, Kind, Operation
from innet.wire.records import Records, bare, get_field

if TYPE_CHECKING:
    from concurrent.futures import Future

needs_compiler = pytest.mark.skipif(not fastpath.compiled(), reason="there is no C compiler")

COUNT = 3
CHUNKS = np.arange(COUNT * LANES, dtype=np.int32).reshape(COUNT, LANES)
OWNER = Portions.of(COUNT, range(COUNT), range(1, 2))
"""A reduce-scatter's worker: it sends all, and receives the middle chunk."""


class Summing:
    """A portioned sum under way."""

    def __init__(self, worker: Worker, portions: Portions = OWNER) -> None:
        rows = [each for each in portions.received if each < COUNT - 1]
        self.rows = np.full((len(rows), LANES), -1, np.int32)
        self.last = np.full((1, LANES), -1, np.int32)
        sent = CHUNKS[portions.sent.start : portions.sent.stop]
        none = np.zeros(COUNT, np.uint16)
        self.done: Future[Reduction] = worker.pool.submit(
            worker.exchanges.sum_portions, sent, none, portions, (self.rows, self.last)
        )


def answer(worker: Worker, slot: int, *, lanes: bool, plus: int = 5, carried: bool = True) -> None:
    """Let the switch finish a chunk, to which others have carried lanes or not."""
    packet = worker.take(slot)
    packet["flags"] |= np.uint16(Flag.CARRIED | Flag.WANTED)
    packet["flags"] &= ~np.uint16(0 if carried else Flag.CARRIED)
    packet["lanes"] += plus
    if lanes:
        worker.switch.answer(packet, Kind.RESULT)
    else:
        short = bare(packet)
        worker.switch.answer(short, Kind.RESULT)


def finish_before_last(worker: Worker, plus: int = 5) -> None:
    answer(worker, 0, lanes=False, plus=plus)
    answer(worker, 1, lanes=True, plus=plus)


def last_alone(worker: Worker) -> Records:
    """Return the packet of the last chunk, which comes after all others."""
    while (packet := worker.take(0))["sequence"] == 1:
        pass
    return packet


def begin_again(worker: Worker, number: int, **more: Any) -> None:
    """Let the workers agree on another term when this one has sent the last chunk."""
    last_alone(worker)
    worker.controller.say_recover(number)
    assert wait_for_ready(worker) == [(number, 0)]
    worker.controller.say_resume(replace(TERM, number=number, **more))


def give_last(worker: Worker) -> None:
    """Give this worker the last chunk's result, which others have."""
    for slot, lanes in enumerate((CHUNKS[2] + 5, [0b111, 3] + [0] * (LANES - 2))):
        packet = worker.take(slot)
        assert get_field(packet, "operation") == Operation.MAX
        assert packet["lanes"].max() == SMALLEST
        packet["lanes"] = lanes
        worker.switch.answer(packet, Kind.RESULT)


def test_the_last_chunk_goes_alone_and_everybody_gets_its_lanes(worker: Worker):
    running = Summing(worker)
    finish_before_last(worker)
    packet = last_alone(worker)
    assert packet["flags"] == Flag.CARRIED | Flag.WANTED
    assert packet["lanes"].tolist() == [CHUNKS[2].tolist()]
    packet["lanes"] += 5
    worker.switch.answer(packet, Kind.RESULT)
    done = running.done.result(WITHIN)
    assert (running.rows == CHUNKS[1] + 5).all()
    assert (running.last == CHUNKS[2] + 5).all()
    assert done.counts.tolist() == [3] * COUNT


def test_a_result_of_the_wrong_length_is_damage(worker: Worker):
    running = Summing(worker)
    answer(worker, 0, lanes=True, carried=False)
    answer(worker, 1, lanes=False)
    finish_before_last(worker)
    while worker.exchanges.traffic.corrupted < 2:
        assert not running.done.done()
    assert not running.done.done()


@pytest.mark.parametrize("compiled", [True, False])
def test_a_result_without_lanes_is_no_damage_if_a_quorum_made_it_before(
    switch: Switch, monkeypatch, *, compiled: bool
):
    if not compiled:
        monkeypatch.setattr(fastpath, "compiled", lambda: None)
    worker = Worker(switch, replace(WORKER_INFO, min_workers=2))
    worker.controller.say_resume(TERM)
    running = worker.start(CHUNKS[:1])
    answer(worker, 0, lanes=False)
    answer(worker, 0, lanes=True)  # to the contribution that comes again
    assert running.result(WITHIN).lanes.tolist() == (CHUNKS[:1] + 5).tolist()
    assert not worker.exchanges.traffic.corrupted


def test_lanes_that_are_not_wanted_are_ignored(worker: Worker):
    running = Summing(worker)
    answer(worker, 0, lanes=True)
    answer(worker, 1, lanes=True)
    packet = last_alone(worker)
    packet["lanes"] += 5
    worker.switch.answer(packet, Kind.RESULT)
    running.done.result(WITHIN)
    assert (running.rows == CHUNKS[1] + 5).all()
    assert (running.last == CHUNKS[2] + 5).all()
    assert not worker.exchanges.traffic.corrupted


def test_a_sum_that_nobody_has_finished_begins_again(worker: Worker):
    running = Summing(worker)
    finish_before_last(worker, plus=1)
    begin_again(worker, 10)
    finish_before_last(worker, plus=7)
    packet = last_alone(worker)
    packet["lanes"] += 7
    worker.switch.answer(packet, Kind.RESULT)
    running.done.result(WITHIN)
    assert (running.rows == CHUNKS[1] + 7).all()
    assert (running.last == CHUNKS[2] + 7).all()


def test_who_lacks_the_last_chunk_takes_it_from_those_who_have_it(worker: Worker):
    running = Summing(worker)
    finish_before_last(worker)
    begin_again(worker, 10, shared=True)
    give_last(worker)
    running.done.result(WITHIN)
    assert (running.rows == CHUNKS[1] + 5).all()
    assert (running.last == CHUNKS[2] + 5).all()


def test_who_lacks_more_than_the_last_chunk_is_left_behind(worker: Worker):
    running = Summing(worker)
    worker.take(0)
    worker.controller.say_recover(10)
    assert wait_for_ready(worker) == [(10, 0)]
    worker.controller.say_resume(replace(TERM, number=10, shared=True))
    failure(running.done, LeftBehind, "lacks a part of a sum")


def test_over_the_fallback_the_lanes_of_others_are_zeros(worker: Worker):
    gathering = Portions.of(COUNT, range(1, 2), range(COUNT))
    worker.controller.say_resume(NO_SWITCH)
    running = Summing(worker, gathering)
    position, chunks, operation, flags, future = worker.others.take()
    assert (position, operation) == ((NO_SWITCH.number, 0), Operation.SUM)
    assert chunks.tolist() == [[0] * LANES, CHUNKS[1].tolist()]
    assert not flags.any()
    result = Reduction.empty(2, LANES)
    result.lanes[:], result.counts[:], result.members[:] = CHUNKS[:2] + 1, 3, 0b111
    future.set_result(result)
    _, chunks, _, _, future = worker.others.take()
    assert not chunks.any()
    result = Reduction.empty(1, LANES)
    result.lanes[:], result.counts[:], result.members[:] = CHUNKS[2:] + 1, 3, 0b111
    future.set_result(result)
    running.done.result(WITHIN)
    assert (running.rows == CHUNKS[:2] + 1).all()
    assert (running.last == CHUNKS[2:] + 1).all()


def test_with_a_quorum_every_worker_keeps_the_whole_result(switch: Switch):
    worker = Worker(switch, replace(WORKER_INFO, min_workers=2))
    worker.controller.say_resume(TERM)
    running = Summing(worker)
    for slot in range(COUNT):
        packet = worker.take(slot)
        assert packet["flags"] == Flag.CARRIED | Flag.WANTED
        packet["lanes"] += 5
        worker.switch.answer(packet, Kind.RESULT, workers=0b101)
    done = running.done.result(WITHIN)
    assert done.counts.tolist() == [2] * COUNT
    assert (running.rows == CHUNKS[1] + 5).all()
    assert (worker.exchanges._last.lanes == CHUNKS + 5).all()


# -- floats, of which nobody keeps the sums


class SummingFloats:
    """A sum of floats under way, whose integers are CHUNKS."""

    def __init__(self, worker: Worker, wanted: range, *, in_place: bool) -> None:
        exponents = np.full(COUNT, 29, np.int32)  # of three workers: a step is 1
        scaling = fixed_point.on_the_way(
            CHUNKS.astype(np.float32), exponents, exponents, 3, mean=False, in_place=in_place,
            wanted=wanted,
        )  # fmt: skip
        assert scaling
        self.scaling = scaling
        none = np.zeros(COUNT, np.uint16)
        portions = Portions.of(COUNT, range(COUNT), wanted)
        self.done: Future[Reduction] = worker.pool.submit(
            worker.exchanges.sum_portions, scaling, none, portions
        )

    @property
    def floats(self) -> list[list[float]]:
        assert not self.done.result(WITHIN).lanes.size
        return self.scaling.results.tolist()


def finish(worker: Worker, plus: int) -> None:
    """Let the switch finish all chunks, of which the last comes alone."""
    for slot in range(COUNT - 1):
        answer(worker, slot, lanes=True, plus=plus)
    packet = last_alone(worker)
    packet["lanes"] += plus
    worker.switch.answer(packet, Kind.RESULT)


@needs_compiler
@pytest.mark.parametrize("in_place", [False, True])
def test_of_a_sum_of_floats_only_the_last_chunk_is_kept(worker: Worker, in_place: bool):
    running = SummingFloats(worker, range(COUNT), in_place=in_place)
    finish(worker, plus=5)
    assert running.floats == (CHUNKS + 5).tolist()
    assert worker.exchanges._last.lanes.tolist() == [(CHUNKS[2] + 5).tolist()]


@needs_compiler
@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("path", [Path.SWITCH, Path.FALLBACK])
def test_a_sum_of_floats_that_begins_again_has_nothing_of_its_first_attempt(
    worker: Worker, path: Path, in_place: bool
):
    running = SummingFloats(worker, range(COUNT), in_place=in_place)
    for slot in range(COUNT - 1):
        answer(worker, slot, lanes=True, plus=1)
    begin_again(worker, 13, path=path)
    if path == Path.SWITCH:
        finish(worker, plus=7)
    else:
        for rows in (CHUNKS[:2], CHUNKS[2:]):
            _, chunks, _, _, future = worker.others.take()
            assert chunks.tolist() == rows.tolist()
            result = Reduction.empty(len(rows), LANES)
            result.lanes[:], result.counts[:], result.members[:] = rows + 7, 3, 0b111
            future.set_result(result)
    assert running.floats == (CHUNKS + 7).tolist()


@needs_compiler
def test_who_lacks_the_last_chunk_of_floats_takes_it_from_those_who_have_it(worker: Worker):
    running = SummingFloats(worker, range(COUNT), in_place=True)
    for slot in range(COUNT - 1):
        answer(worker, slot, lanes=True)
    begin_again(worker, 10, shared=True)
    give_last(worker)
    assert running.floats == (CHUNKS + 5).tolist()


@needs_compiler
def test_with_a_quorum_a_worker_keeps_all_sums_and_has_the_floats_that_it_wants(switch: Switch):
    worker = Worker(switch, replace(WORKER_INFO, min_workers=2))
    worker.controller.say_resume(TERM)
    running = SummingFloats(worker, range(1, 2), in_place=False)
    for slot in range(COUNT):
        packet = worker.take(slot)
        packet["lanes"] += 5
        worker.switch.answer(packet, Kind.RESULT, workers=0b101)
    assert running.floats == [(CHUNKS[1] + 5).tolist()]
    assert (worker.exchanges._last.lanes == CHUNKS + 5).all()


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("part", [None, range(LANES // 2, 2 * LANES)])
def test_floats_whose_sums_have_overflowed_are_summed_again(
    worker: Worker, monkeypatch, part: range | None, in_place: bool
):
    monkeypatch.setattr(float_reducer, "LARGE", 0)
    worker.controller.say_resume(NO_SWITCH)
    reducer = Reducer(worker.exchanges, WORKER_INFO)
    values = np.random.default_rng(5).standard_normal(COUNT * LANES, np.float32)
    spec = QuantizerSpec()
    running = worker.pool.submit(
        reducer.floats, values.copy(), spec, mean=True, in_place=in_place, part=part
    )
    operations = []
    for _ in range(4):
        _, chunks, operation, flags, future = worker.others.take()
        result = Reduction.empty(*chunks.shape)
        result.lanes[:] = chunks if operation == Operation.MAX else 3 * chunks
        result.flags[:], result.counts[:], result.members[:] = flags, 3, 0b111
        if operations == [Operation.MAX]:
            result.lanes[1], result.flags[1] = np.iinfo(np.int32).max, Flag.OVERFLOW
        operations.append(operation)
        future.set_result(result)
    wanted = values if part is None else values[part.start : part.stop]
    np.testing.assert_allclose(running.result(WITHIN), wanted, 2**-22, 2**-27)
    assert operations == [Operation.MAX, *3 * [Operation.SUM]]


@pytest.mark.parametrize("workers", [1, 2, 8, 31])
@pytest.mark.parametrize("chunks", [1, 7, 64, 1000])
def test_chunks_go_in_an_order_that_takes_one_of_each_workers_part_in_turn(chunks, workers):
    order = interleaved(chunks, workers)
    assert sorted(order) == [*range(chunks)]
    owners = order * workers // chunks
    each = chunks // workers
    for start in range(0, chunks - workers + 1, workers):
        busiest = np.bincount(owners[start : start + workers]).max()
        assert busiest <= (2 if each else 1)
