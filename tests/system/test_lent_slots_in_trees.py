"""Jobs in trees lend slots to each other, and to jobs at one switch of the tree: every sum is exact."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from bursting_jobs import sum_in_bursts
from trees import Forest, forest, integers, sums
from waiting import until

from innet.machine.environment import PRIVATE_KEY_FILE
from innet.p4.artifacts import SLOTS
from innet.rpc import innet_pb2 as pb

LANES, ASKED, KEPT = 64, 32, 2
BOTH = ["left", "right"]


def reserve(trees: Forest, switch: str, left: int) -> None:
    """Leave so many slots free on a switch and on all below it."""
    size = SLOTS[LANES] // 2
    while size >= left:
        request = pb.CreateJobRequest(name=f"reserved-{size}", switch=switch, workers=1, slots=size)
        trees.stub.CreateJob(request)
        size //= 2


@contextlib.contextmanager
def two_racks() -> Iterator[tuple[Forest, str]]:
    """Yield a tree of two levels, and its top."""
    parents = {"left": ["tor"], "right": ["tor"]}
    with forest({"tor": 0, "left": 4, "right": 4}, parents) as trees:
        yield trees, "tor"


@contextlib.contextmanager
def two_spines() -> Iterator[tuple[Forest, str]]:
    """Yield two racks below two switches, which divide the slots of a job. One slot has one of them."""
    parents = {"left": ["one", "two"], "right": ["one", "two"]}
    with forest({"one": 0, "two": 0, "left": 4, "right": 4}, parents) as trees:
        yield trees, "one"


@contextlib.contextmanager
def three_levels() -> Iterator[tuple[Forest, str]]:
    """Yield a tree of three levels. The racks are not at the same depth."""
    parents = {"middle": ["top"], "left": ["middle"], "right": ["top"]}
    with forest({"top": 0, "middle": 0, "left": 4, "right": 4}, parents) as trees:
        yield trees, "top"


@pytest.mark.parametrize("kept", [1, KEPT])
@pytest.mark.parametrize("made", [two_racks, two_spines, three_levels])
def test_jobs_in_trees_lend_slots_to_each_other(made, kept: int):
    with made() as (trees, top), contextlib.ExitStack() as stack:
        reserve(trees, top, 2 * ASKED)
        jobs = [
            stack.enter_context(
                trees.workers(top, BOTH, slots=ASKED, min_slots=kept, priority=number % 2)
            )
            for number in range(4)
        ]
        sum_in_bursts(jobs)


def test_a_job_at_one_switch_and_jobs_in_the_tree_lend_slots_to_each_other():
    more = {"slots": ASKED, "min_slots": KEPT}
    with two_racks() as (trees, top), contextlib.ExitStack() as stack:
        reserve(trees, top, 2 * ASKED)
        places = [(top, BOTH), (top, BOTH), ("left", ["left"] * 2), ("right", ["right"] * 2)]
        jobs = [stack.enter_context(trees.workers(*each, **more)) for each in places]
        sum_in_bursts(jobs)


def test_private_sums_in_a_tree_lend_slots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_bytes(bytes(range(32)))
    monkeypatch.setenv(PRIVATE_KEY_FILE, str(key))
    with two_racks() as (trees, top), contextlib.ExitStack() as stack:
        reserve(trees, top, 2 * ASKED)
        jobs = [
            stack.enter_context(trees.workers(top, BOTH, slots=ASKED, min_slots=KEPT))
            for _ in range(4)
        ]
        assert all(each.private for job in jobs for each in job)
        sum_in_bursts(jobs)


@pytest.mark.parametrize("switch", ["tor", "left"])
def test_a_switch_of_a_tree_dies_while_a_job_borrows_slots(switch: str):
    with (
        two_racks() as (trees, top),
        trees.workers(top, BOTH, slots=ASKED, min_slots=KEPT) as agents,
    ):
        vectors = integers(1, 2, 3000)

        def borrows() -> bool:
            for result in sums(agents, vectors):
                np.testing.assert_array_equal(result, vectors.sum(axis=0, dtype=np.int64))
            return agents[0].term.slots == ASKED

        until(borrows)
        trees.switches[switch].kill()
        trees.switches[switch].start()
        borrows()
        assert trees.show().recoveries
        until(borrows)
