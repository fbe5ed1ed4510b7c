"""Trees of three levels: more workers than a bitmap has bits, several parents on every level."""

from collections.abc import Iterator

import numpy as np
import pytest
from trees import Forest, finish, forest, integers, submit, sums
from waiting import until

from innet.errors import InnetError
from innet.local.faults import Faults
from innet.observe.diagnosis import diagnose
from innet.observe.sample import sample_job, sample_twice
from innet.rpc import innet_pb2 as pb

LANES = 64

RACKS = {"a1": 10, "a2": 8, "b1": 9, "b2": 6}
"""The workers of four racks: 33, and one more at the switch `b` between the racks and the top."""

PARENTS = {"a": ["top"], "b": ["top"], "a1": ["a"], "a2": ["a"], "b1": ["b"], "b2": ["b"]}
PLACES = [*(rack for rack, workers in RACKS.items() for _ in range(workers)), "b"]


@pytest.fixture(scope="module")
def deep() -> Iterator[Forest]:
    with forest({"top": 1, "a": 0, "b": 1, **RACKS}, PARENTS) as made:
        yield made


def exact(vectors: np.ndarray) -> np.ndarray:
    return vectors.astype(np.int64).sum(axis=0).astype(np.int32)


def test_thirty_four_workers_sum_exactly_and_a_late_one_is_named_by_its_rank(deep: Forest):
    vectors = integers(1, len(PLACES), 40 * LANES)
    with deep.workers("top", PLACES) as agents:
        for result in sums(agents, vectors):
            np.testing.assert_array_equal(result, exact(vectors))
        late = PLACES.index("b1") + 2
        others = [rank for rank in range(len(PLACES)) if rank != late]
        running = submit([agents[rank] for rank in others], vectors[others])
        until(lambda: [*deep.show().waiting_for] == [late])
        near = PLACES.index("b1")
        until(lambda: [*deep.show().members[near].progress.missing] == [late])
        # Above its rack, only the rack's sum is missing.
        far = {rank for rank, at in enumerate(PLACES) if at == "b1"}
        until(lambda: {*deep.show().members[PLACES.index("b2")].progress.missing} == far)
        assert f"worker {late}" in found(deep)
        running += submit([agents[late]], vectors[late : late + 1])
        for result in finish(running):
            np.testing.assert_array_equal(result, exact(vectors))
        assert {each.switch for each in deep.show().tree} == {"top", "a", "b", *RACKS}


def found(deep: Forest) -> set[str]:
    """Return the subjects of what `innet doctor` finds in the last job."""
    name = deep.show().name
    observation = sample_twice(lambda: sample_job(deep.stub, name), 0.5)
    return {each.subject for each in diagnose(observation)}


def test_a_job_on_one_switch_has_no_more_workers_than_its_bitmap_has_bits(deep: Forest):
    with pytest.raises(InnetError, match="'a1' sums 64 contributions at most"), deep.job("a1", 65):
        pass
    with (
        pytest.raises(InnetError, match="4097 workers: a job has 1 to 4096"),
        deep.job("top", 4097),
    ):
        pass


def test_all_parents_on_all_levels_share_the_slots_exactly_with_faults():
    hosts = dict.fromkeys(("one", "two", "three", "four", "a", "b", "c", "d"), 0)
    hosts |= dict.fromkeys(("low", "other"), 2)
    parents = {"a": ["one", "two"], "b": ["three", "four"], "c": ["one", "two"]}
    parents |= {"d": ["three", "four"], "low": ["a", "b"], "other": ["c", "d"]}
    with forest(hosts, parents, Faults.all(0.01), seed=5) as made:
        vectors = integers(2, 4, 64 * LANES)
        with made.workers("one", ["low", "low", "other", "other"]) as agents:
            for result in sums(agents, vectors):
                np.testing.assert_array_equal(result, exact(vectors))
            job = made.show()
    done = {each.switch: each.counters.completed for each in job.tree}
    assert all(done[top] > 0 for top in ("one", "two", "three", "four"))
    assert sum(done[top] for top in ("one", "two", "three", "four")) == job.counters.completed
    assert job.path == pb.PATH_SWITCH
