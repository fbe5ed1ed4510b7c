"""The P4 program follows its model: random walks through both, side by side.

``INNET_WALKS=200`` is the long mode.
"""

import os
import random
from dataclasses import replace
from itertools import count, permutations

import pytest
from aggregation_rack import FIRST_SLOT, Job, aggregation_rack
from p4runtime_client import group
from slot_model import Answer, Collective, Protocol, Size, Sum, Workers, arrive, start, steps

from innet.wire.layout import Ecn, Flag, Kind

WORKERS = 3
SIZES = {21: Size(WORKERS, 2, 7), 22: Size(WORKERS, 2, 7, 2), 23: Size(WORKERS, 2, 7, 1)}
"""The jobs: with all workers in each result, with two of them, and with one."""

MIXTURES = (*[(each,) for each in Collective], *permutations(Collective, 3))
"""The collectives of the walks, in turn: some follow each other in the same cell."""

SAID = {
    21: {Kind.RESULT, Kind.PENDING, Kind.STALE},
    22: {Kind.RESULT, Kind.PENDING, Kind.STALE},
    23: {Kind.RESULT, Kind.STALE},
}

WALKS, LONGEST = int(os.environ.get("INNET_WALKS", "20")), 250


@pytest.fixture(scope="module")
def rack():
    with aggregation_rack(WORKERS) as running:
        for job, size in SIZES.items():
            running.controller.insert(group(job, *((r + 1, r + 1) for r in range(WORKERS))))
            for rank in range(WORKERS):
                running.admit(job, rank, size.needed)
        yield running


@pytest.mark.parametrize("job", SIZES)
def test_the_switch_and_the_model_agree(rack, job):
    said, fresh = set(), count(FIRST_SLOT + 1000 * (job - min(SIZES)), SIZES[job].slots)
    for walk in range(WALKS):
        said |= walk_together(rack, job, random.Random(walk), next(fresh))
    assert said == SAID[job]


def walk_together(rack, job: int, choice: random.Random, first_slot: int) -> set[Kind]:
    """Walk through the model at random, and have the switch follow. Returns the kinds of its answers."""
    said = set()
    size = replace(SIZES[job], collectives=MIXTURES[choice.randrange(len(MIXTURES))])
    slots = [Job(rack, job, size.needed, first_slot + slot) for slot in range(size.slots)]
    state = start(size)
    for _ in range(LONGEST):
        # Mostly choose contributions to the newest chunks, so that the walk makes progress.
        if choice.random() < 0.5:
            worker, slot = choice.randrange(WORKERS), choice.randrange(size.slots)
            use = choice.randrange(state.progress[worker][slot] + 1)
            if use < size.uses(slot):
                state, answer = arrive(Protocol(size), state, worker, slot, use)
                contribute(slots[slot], size, worker, slot, use, answer)
                said |= {answer.kind} if answer else set()
        else:
            takes = [after for what, after in steps(Protocol(size), state) if "takes" in what]
            state = choice.choice(takes) if takes else state
    assert max(map(max, state.progress)) > 1, "the walk did not get anywhere"
    return said


def contribute(
    job: Job, size: Size, worker: int, slot: int, use: int, answer: Answer | None
) -> None:
    """Send a contribution to the switch, and assert that it answers as the model does."""
    sequence, chunk = Protocol(size).tag(use), size.chunk(slot, use)
    lanes = value(worker, chunk) if size.carries(worker, chunk) else None
    wants = size.wants(worker, chunk)
    job.send(worker, sequence, lanes, ecn=ecn(worker, chunk), wants=wants)
    for each in sorted(answer.to) if answer else []:
        match answer.kind:
            case Kind.RESULT:
                sum_of = total(answer.total) if each in answer.full else None
                flags = {"carried": answer.announced, "wanted": wanted(size, answer, chunk)}
                members, marked = bitmap(answer.members), marks(answer.members, chunk)
                job.assert_result(each, sequence, sum_of, members, marked, **flags)
            case Kind.PENDING:
                job.assert_pending(each, sequence, bitmap(answer.members))
            case Kind.STALE:
                job.assert_stale(each, sequence)
    job.rack.assert_quiet(worker + 1)


def value(worker: int, chunk: int) -> int:
    """Return a worker's contribution to a chunk: numbers whose sums are hardly ever equal."""
    return random.Random(worker * 100 + chunk).randrange(1 << 28)


def total(contributions: Sum) -> int:
    return sum(value(*each) for each in contributions)


def ecn(worker: int, chunk: int) -> Ecn:
    """Return whether a queue on the contribution's way is long."""
    return random.Random(-worker * 100 - chunk).choice([Ecn.CAPABLE, Ecn.CAPABLE, Ecn.CONGESTED])


def marks(members: Workers, chunk: int) -> Flag:
    """Return whether one of the contributions to the sum is marked."""
    marked = any(ecn(each, chunk) == Ecn.CONGESTED for each in members)
    return Flag.MARKED if marked else Flag(0)


def wanted(size: Size, answer: Answer, chunk: int) -> bool:
    """Return whether a member of the result wants its lanes."""
    return any(size.wants(each, chunk) for each in answer.members)


def bitmap(workers: Workers) -> int:
    return sum(1 << worker for worker in workers)
