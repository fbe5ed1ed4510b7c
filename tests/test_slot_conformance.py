"""The P4 program does what the model of it does: random walks through both, side by side."""

import random

import pytest
from aggregation_rack import FIRST_SLOT, Job, aggregation_rack
from p4runtime_client import group
from slot_model import Protocol, Size, State, Sum, start, steps

WORKERS, JOB = 3, 21
SIZE = Size(WORKERS, slots=2, chunks=7)
WALKS, LONGEST = 20, 250


@pytest.fixture(scope="module")
def rack():
    with aggregation_rack(WORKERS) as running:
        running.controller.insert(group(JOB, *((r + 1, r + 1) for r in range(WORKERS))))
        for rank in range(WORKERS):
            running.admit(JOB, rank, WORKERS)
        yield running


@pytest.mark.parametrize("walk", range(WALKS))
def test_the_switch_and_the_model_agree(rack, walk):
    choice = random.Random(walk)
    jobs = [Job(rack, JOB, WORKERS, FIRST_SLOT + SIZE.slots * walk + s) for s in range(SIZE.slots)]
    state = start(SIZE)
    for _ in range(LONGEST):
        # A contribution to the newest chunks more often than not, so that the walk gets on.
        if choice.random() < 0.5:
            worker, slot = choice.randrange(WORKERS), choice.randrange(SIZE.slots)
            use = choice.randrange(state.progress[worker][slot] + 1)
            if SIZE.chunk(slot, use) < SIZE.chunks:
                state = contribute(jobs, state, worker, slot, use)
        else:
            takes = [after for what, after in steps(Protocol(SIZE), state) if "takes" in what]
            state = choice.choice(takes) if takes else state
    assert max(map(max, state.progress)) > 1, "the walk did not get anywhere"


def contribute(jobs: list[Job], state: State, worker: int, slot: int, use: int) -> State:
    """Let a contribution arrive in both; what the switch says must be what the model says."""
    sequence, job = Protocol(SIZE).tag(use), jobs[slot]
    before = state.cells[slot][sequence % 2]
    state = Protocol(SIZE).contribute(state, worker, slot, use)
    after = state.cells[slot][sequence % 2]

    job.send(worker, sequence, value(worker, SIZE.chunk(slot, use)))
    if after != before:
        listeners = range(WORKERS) if after.missing == 0 else []
    elif sequence == before.sequence and before.missing == 0:
        listeners = [worker]
    else:
        listeners = []
        if sequence == before.sequence:
            job.assert_pending(worker, sequence, bitmap(before.arrived))
    for each in listeners:
        job.assert_result(each, sequence, total(after.total), bitmap(after.arrived))
    job.rack.assert_quiet(worker + 1)
    return state


def value(worker: int, chunk: int) -> int:
    """What a worker contributes to a chunk: numbers whose sums are hardly ever alike."""
    return random.Random(worker * SIZE.chunks + chunk).randrange(1 << 28)


def total(contributions: Sum) -> int:
    return sum(value(*each) for each in contributions)


def bitmap(workers: frozenset[int]) -> int:
    return sum(1 << worker for worker in workers)
