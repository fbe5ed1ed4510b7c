"""Results of a quorum of racks: the workers in them, and the fate of racks that straggle."""

import contextlib
from collections.abc import Iterator, Sequence
from itertools import combinations

import numpy as np
import pytest
from racks import WITHIN, problem
from trees import Forest, finish, forest, integers, submit

from innet.errors import LeftBehind, WorkersMissing
from innet.host.agent import Agent
from innet.local.faults import Faults

LANES = 64
HOSTS = {"spine": 1, "a": 2, "b": 2, "c": 3}
PARENTS = {rack: ["spine"] for rack in "abc"}
AT = ["a", "a", "b", "b", "c", "c"]
"""The racks of six workers. Any two racks make a quorum of four."""


@pytest.fixture(scope="module")
def spine() -> Iterator[Forest]:
    with forest(HOSTS, PARENTS) as made:
        yield made


def constant(value: float, chunks: int = 3) -> np.ndarray:
    return np.full(chunks * LANES, value, np.float32)


def begin(agents: Sequence[Agent]) -> None:
    """Let all workers sum once, so that a term is under way."""
    for future in [agent.submit(constant(3)) for agent in agents]:
        assert (future.result(WITHIN) == 3).all()


def test_the_mean_is_over_the_racks_that_are_in_it(spine: Forest):
    with spine.workers("spine", AT, quorum=4) as agents:
        values = 1, 3, 5, 7, 100, 200
        running = [
            agent.submit(constant(each)) for agent, each in zip(agents[:4], values, strict=False)
        ]
        for future in running:
            assert (future.result(WITHIN) == 4).all()
        for agent, each in zip(agents[4:], values[4:], strict=True):
            assert (agent.submit(constant(each)).result(WITHIN) == 4).all()


def test_a_worker_beside_a_stopped_one_gets_the_results_of_the_other_racks(spine: Forest):
    with spine.workers("spine", AT, quorum=4) as agents:
        first = agents[4]  # beside the sixth, which sends nothing
        for _ in range(5):
            early = first.submit(constant(100, chunks=20))
            running = [agent.submit(constant(5, chunks=20)) for agent in agents[:4]]
            for future in [*running, early]:
                assert (future.result(WITHIN) == 5).all()
        running = [agent.submit(constant(7)) for agent in agents[:4]]
        for future in running:
            assert (future.result(WITHIN) == 7).all()
        late = first.submit(constant(100))
        assert (late.result(WITHIN) == 7).all()


def test_a_rack_that_is_too_late_is_told_that_the_others_have_gone_on(spine: Forest):
    with spine.workers("spine", AT, slots=4, quorum=4) as agents:
        for _ in range(5):
            for future in [agent.submit(constant(5, chunks=40)) for agent in agents[:4]]:
                assert (future.result(WITHIN) == 5).all()
        assert isinstance(problem(agents[4].submit(constant(5, chunks=40))), LeftBehind)
        assert isinstance(problem(agents[5].submit(constant(5, chunks=40))), LeftBehind)
        for future in [agent.submit(constant(7)) for agent in agents[:4]]:
            assert (future.result(WITHIN) == 7).all()


def test_a_rack_that_a_worker_has_left_counts_again_when_it_is_needed(spine: Forest):
    with spine.workers("spine", ["a", "a", "b", "c", "c"], quorum=3) as agents:
        values = 1, 1, 4, 10
        begin(agents)
        agents[4].close()
        term = spine.show().term
        for _ in range(3):
            running = [
                agent.submit(constant(each)) for agent, each in zip(agents[:4], values, strict=True)
            ]
            for future in running:
                assert (future.result(WITHIN) == 2).all()
        assert spine.show().term == term
        agents[2].close()
        running = [agents[rank].submit(constant(values[rank])) for rank in (0, 1, 3)]
        for future in running:
            assert (future.result(WITHIN) == 4).all()
        assert {each.switch for each in spine.show().tree} == {"spine", "a", "c"}
        agents[3].close()
        error = problem(agents[0].submit(constant(5)))
        assert isinstance(error, WorkersMissing)


def test_spines_share_the_slots_and_one_is_lost():
    """The ranks of the racks are not in the order of their names."""
    racks = {"left": ["one", "two"], "right": ["one", "two"]}
    with (
        forest({"one": 0, "two": 0, "left": 2, "right": 2}, racks) as made,
        made.workers("one", ["right", "left", "left", "right"], quorum=2) as agents,
    ):
        for _ in range(3):
            running = [agents[rank].submit(constant(rank, chunks=40)) for rank in (0, 3)]
            for future in running:
                assert (future.result(WITHIN) == 1.5).all()
        term = made.show().term
        made.switches["one"].kill()
        made.until_in_another_term(term)
        for future in [agents[rank].submit(constant(rank, chunks=40)) for rank in (0, 3)]:
            assert (future.result(WITHIN) == 1.5).all()


def test_small_vectors_are_sums_of_those_who_are_in_them(spine: Forest):
    with spine.workers("spine", AT, quorum=4) as agents:
        small = [np.full(2, value, np.float32) for value in (1, 3, 5, 7)]
        running = [agent.submit(each) for agent, each in zip(agents[:4], small, strict=True)]
        for future in running:
            assert (future.result(WITHIN) == 4).all()


@pytest.mark.parametrize("seed", [1, 2])
def test_every_chunk_is_the_exact_sum_of_enough_whole_racks_whatever_is_lost(seed: int):
    """A worker of the third rack sends nothing, and the links between the switches lose packets."""
    vectors = integers(seed, 6, 20 * LANES)
    racks = [vectors[pair].astype(np.int64).sum(axis=0) for pair in ([0, 1], [2, 3], [4, 5])]
    possible = [sum(some) for count in (2, 3) for some in combinations(racks, count)]
    hosts = {**HOSTS, "spine": 0}
    with (
        forest(hosts, PARENTS, Faults.all(0.02), seed) as made,
        made.workers("spine", AT, quorum=4) as agents,
    ):
        for _ in range(3):
            for result in finish(submit(agents[:4], vectors[:4])):
                np.testing.assert_array_equal(result, racks[0] + racks[1])
        for _ in range(2):
            with contextlib.suppress(LeftBehind):
                for result in finish(submit(agents, vectors)):
                    chunks = [each.reshape(-1, LANES) for each in (result, *possible)]
                    matches = [(chunks[0] == each).all(axis=1) for each in chunks[1:]]
                    assert np.any(matches, axis=0).all()


def test_a_controller_that_returns_begins_a_term_without_the_worker_that_has_left(tmp_path):
    racks = {"a": ["spine"], "b": ["spine"], "c": ["spine"]}
    state = {"state": tmp_path / "state.db"}
    hosts = {"spine": 0, "a": 2, "b": 1, "c": 1}
    with (
        forest(hosts, racks, **state) as made,
        made.workers("spine", ["a", "a", "b", "c"], quorum=2) as agents,
    ):
        begin(agents)
        agents[1].close()
        term = made.show().term
        made.restart_controller(**state)
        # In the old term, complete racks could go on and leave the first worker behind.
        made.until_in_another_term(term)
        running = [agents[rank].submit(constant(rank)) for rank in (0, 2, 3)]
        for future in running:
            means = future.result(WITHIN)
            assert np.isclose(means[:, None], [1, 1.5, 2.5, 5 / 3], rtol=1e-5).any(axis=1).all()
