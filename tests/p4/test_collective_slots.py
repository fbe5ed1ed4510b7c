"""Chunks of all collectives, and of any others, through one switch and through trees, with losses."""

import random
from itertools import count

import numpy as np
import pytest
from aggregation_rack import LANES
from switch_fabric import SLOTS, Chunk, FabricOfSwitches, Job, fabric

SHAPES = {2: [(1, 1), (1, 2), (63, 1)], 3: [(2, 3, 4), (8, 8, 8), (11, 20, 1)]}
"""The workers of each rack, by the number of racks."""


@pytest.fixture(scope="module")
def alone():
    with fabric(0) as made:
        yield made


@pytest.fixture(scope="module", params=[2, 3])
def tree(request):
    with fabric(request.param) as made:
        yield made


def chunk(workers: int, chance: random.Random, collective: str) -> Chunk:
    """Return a random chunk of a collective. In a sum, the lanes need all their bits and still fit."""
    everybody, nobody = frozenset(range(workers)), frozenset()
    owner = frozenset({chance.randrange(workers)})
    some = [frozenset(each for each in everybody if chance.random() < 0.5) for _ in range(2)]
    carries, wants = {
        "all-reduce": (everybody, everybody),
        "reduce-scatter": (everybody, owner),
        "all-gather": (owner, everybody),
        "barrier": (nobody, nobody),
        "any": (some[0], some[1]),
    }[collective]
    bound = (1 << 31) // max(1, len(carries))
    low, high = (-(1 << 31), 1 << 31) if len(carries) == 1 else (-bound + 1, bound)
    lanes = np.random.default_rng(chance.getrandbits(32)).integers(low, high, (workers, LANES))
    return Chunk(lanes, carries, wants)


COLLECTIVES = ["all-reduce", "reduce-scatter", "all-gather", "barrier", "any"]
_numbers = count(1)


def summed(job: Job, seed: int, chunks: int) -> None:
    """Sum random chunks of random collectives, one after the other, in a few slots."""
    chance = random.Random(seed)
    for _ in range(chunks):
        made = chunk(len(job.where), chance, chance.choice(COLLECTIVES))
        job.sum(made, chance.randrange(min(3, SLOTS)), chance)


@pytest.mark.parametrize("workers", [*range(1, 33), 33, 48, 63, 64])
def test_every_worker_of_a_switch_gets_the_exact_sum_that_it_wants(
    alone: FabricOfSwitches, workers: int
):
    job = alone.open_job(next(_numbers), [range(workers)])
    summed(job, workers, 24)


@pytest.mark.parametrize("case", range(3))
def test_every_worker_of_a_tree_gets_the_exact_sum_that_it_wants(tree: FabricOfSwitches, case: int):
    shape = SHAPES[len(tree.racks)][case]
    ranks = iter(range(sum(shape)))
    job = tree.open_job(next(_numbers), [[next(ranks) for _ in range(size)] for size in shape])
    summed(job, sum(shape), 24)


@pytest.mark.parametrize("collective", COLLECTIVES)
def test_lanes_pass_each_cable_once_and_only_where_they_are_needed(
    tree: FabricOfSwitches, collective: str
):
    shape = [range(2 * rack, 2 * rack + 2) for rack in range(len(tree.racks))]
    job, chance = tree.open_job(next(_numbers), shape), random.Random(collective)
    for _ in range(6):
        made = chunk(2 * len(shape), chance, collective)
        tree.seen.clear()
        job.sum(made, 0, chance, loses=False)
        for rack, ranks in zip(tree.racks, shape, strict=True):
            carried = not made.carries.isdisjoint(ranks)
            wanted = bool(made.carries) and not made.wants.isdisjoint(ranks)
            receivers = len(made.wants.intersection(ranks)) if made.carries else 0
            assert tree.seen[rack, "up", carried] == 1
            assert tree.seen[rack, "up", not carried] == 0
            assert tree.seen[rack, "down", wanted] == 1
            assert tree.seen[rack, "down", not wanted] == 0
            assert tree.seen[rack, "workers", True] == receivers
            assert tree.seen[rack, "workers", False] == 2 - receivers
