"""Sums that do not wait for late workers have each contribution once, on time or later."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from faulty_job import faulty_job
from racks import WITHIN, Rack, means, rack, random_vectors
from scripted_lateness import NOBODY, SCRIPT, at_once, scripted
from trees import forest

from benchmarks.emulated.stragglers import DEADLINE, Case, checked, integers
from innet.errors import InnetError, SumOverflow, UsageError, WorkersDisagree
from innet.host.agent import Agent
from innet.host.deadline_sums import DeadlineSums
from innet.local.faults import Faults

LANES, WORKERS = 64, 4


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(WORKERS, LANES) as running:
        yield running


def check(agents: Sequence[Agent], floats: int, seed: int = 0) -> list[dict[str, Any]]:
    """Sum integers by the script. Each worker compares its sums with the oracle."""
    sums, case = scripted(agents), Case("oracle", DEADLINE, len(SCRIPT), floats, seed)
    return at_once(agents, lambda rank: checked(case, agents[rank], sums[rank]))


@pytest.mark.parametrize("floats", [1, LANES, 40 * LANES + 7])
def test_each_contribution_is_in_exactly_one_sum(tor: Rack, floats: int):
    with tor.workers(WORKERS) as agents:
        notes = check(agents, floats)
    in_time = [sum(rank not in late for late, _ in SCRIPT) for rank in range(WORKERS)]
    assert [each["checked"] for each in notes] == in_time
    assert all(each["late"] for each in notes)


def test_the_oracle_finds_a_contribution_that_is_lost_or_counted_twice(tor: Rack):
    for wrong in (0, 2):
        with tor.workers(2) as agents:
            sums, case = scripted(agents), Case("oracle", DEADLINE, 8, 9 * LANES)
            rest = sums[1]._with_rest
            sums[1]._with_rest = lambda values, rest=rest, wrong=wrong: (
                values + wrong * (rest(values) - values)
            ).astype(np.int32)
            with ThreadPoolExecutor(2) as pool:
                running = [pool.submit(checked, case, agents[rank], sums[rank]) for rank in (0, 1)]
                assert isinstance(running[0].exception(WITHIN), InnetError)
                agents[0].close(abandon=True)
                assert isinstance(running[1].exception(WITHIN), InnetError)


@pytest.mark.parametrize("seed", range(3))
def test_under_loss_repetition_and_reordering_too(tor: Rack, seed: int):
    with faulty_job(tor, WORKERS, 8, seed, Faults.all(0.02)) as job:
        check(job.agents, 20 * LANES, seed)


def test_in_a_tree_too():
    with (
        forest({"tor": 1, "left": 3, "right": 3}, {"left": ["tor"], "right": ["tor"]}) as trees,
        trees.workers("tor", ["left", "left", "right", "right"]) as agents,
    ):
        check(agents, 40 * LANES)


def test_a_late_worker_gets_the_state_and_no_sums(tor: Rack):
    script = [NOBODY, *[({2}, 4)] * 5]
    case = Case("oracle", DEADLINE, len(script), 9 * LANES)
    with tor.workers(WORKERS) as agents:
        sums = scripted(agents, script)
        states = [np.zeros(case.floats, np.int32) for _ in agents]
        history = [states[0].copy()]

        def step(rank: int, number: int) -> Any:
            found = sums[rank].all_reduce(integers(case, rank, number), states[rank])
            if found is not None:
                states[rank] += found
            return found

        for number in range(len(script)):
            found = at_once(agents, lambda rank, number=number: step(rank, number))
            assert [each is None for each in found] == [
                rank in script[number][0] for rank in range(WORKERS)
            ]
            history.append(states[0].copy())
    rows = states[2].reshape(-1, LANES)
    for number, chunk in ((2, 1), (3, 2), (4, 3), (5, 0)):
        before = history[number].reshape(-1, LANES)
        np.testing.assert_array_equal(rows[chunk::4], before[chunk::4])
    assert not any(np.array_equal(*each) for each in pairwise(history))


def test_the_mean_of_floats_is_over_all_workers(tor: Rack):
    vectors = random_vectors(3, WORKERS, 9 * LANES)
    with tor.workers(WORKERS) as agents:
        whole = means(agents, *vectors)[0]
        sums = scripted(agents, [({1}, 2)] * 2)
        states = [np.zeros_like(whole) for _ in agents]

        def work(rank: int) -> Any:
            nothing = np.zeros_like(whole)
            parts = [
                sums[rank].all_reduce(vectors[rank], states[rank]),
                sums[rank].all_reduce(nothing, states[rank]),
                sums[rank].settle(nothing, states[rank]),
            ]
            return [each for each in parts if each is not None]

        found = at_once(agents, work)
    assert [len(each) for each in found] == [3, 1, 3, 3]
    np.testing.assert_allclose(sum(found[0]), whole, atol=1e-6)
    np.testing.assert_array_equal(found[0][2], 0)
    assert all(each[0].tobytes() == found[0][0].tobytes() for each in (found[2], found[3]))


def test_a_sum_that_does_not_fit_is_refused(tor: Rack):
    with tor.workers(2) as agents:
        sums = scripted(agents, [({1}, 2)])
        values, state = np.full(LANES, 2**31 - 1, np.int32), np.zeros(LANES, np.int32)
        with ThreadPoolExecutor(2) as pool:
            running = [pool.submit(each.all_reduce, values, state.copy()) for each in sums]
            assert isinstance(running[0].exception(WITHIN), SumOverflow)
            assert running[1].result(WITHIN) is None


def test_after_a_sum_that_does_not_fit_late_workers_get_the_right_state(tor: Rack):
    with tor.workers(2) as agents:
        sums = scripted(agents, [({1}, 2)] * 4)
        much, little = np.full(4 * LANES, 2**31 - 1, np.int32), np.zeros(4 * LANES, np.int32)
        right = np.arange(4 * LANES, dtype=np.int32)
        states = [right.copy(), np.zeros_like(right)]

        def step(rank: int, values: np.ndarray) -> Any:
            try:
                return sums[rank].all_reduce(values, states[rank])
            except SumOverflow as problem:
                return problem

        refused, nothing = at_once(agents, lambda rank: step(rank, little if rank else much))
        assert isinstance(refused, SumOverflow)
        assert nothing is None
        for _ in range(2):
            at_once(agents, lambda rank: step(rank, little))
        assert [each.step for each in sums] == [3, 3]
        np.testing.assert_array_equal(states[1], right)


def test_a_rest_that_does_not_fit_is_kept_until_it_is_sent(tor: Rack):
    with tor.workers(2) as agents:
        sums = scripted(agents, [({1}, 4)] * 8)
        state = np.zeros(4 * LANES, np.int32)

        def step(rank: int, number: int) -> Any:
            values = np.zeros_like(state)
            values[3 * LANES] = number * rank  # in the chunk that is sent in steps 3 and 7
            try:
                return sums[rank].all_reduce(values, state.copy())
            except SumOverflow as problem:
                return problem

        numbers = [2**30, 2**30, -(2**31) + 5, 0, 2**30, 2**30, 2**30, 0]
        found = [at_once(agents, lambda rank, n=n: step(rank, n)) for n in numbers]
        assert [late for _, late in found] == [None] * 8
        assert [each[3 * LANES] for each, _ in found[:7]] == [0, 0, 0, 5, 0, 0, 0]
        assert isinstance(found[7][0], SumOverflow)


def test_states_of_different_sizes_are_told(tor: Rack):
    with tor.workers(2) as agents:
        sums = scripted(agents, [({1}, 2)])
        values = np.ones(4 * LANES, np.float32)

        def told(rank: int) -> str:
            with pytest.raises(WorkersDisagree) as raised:
                sums[rank].all_reduce(values, np.zeros(4 * LANES + rank, np.float32))
            return str(raised.value)

        assert at_once(agents, told) == [
            f"this worker's state has {4 * LANES + rank} elements, others' have between 256 and 257"
            for rank in range(2)
        ]


def test_what_is_not_finite_is_seen_once(tor: Rack):
    with tor.workers(2) as agents:
        sums = scripted(agents, [({1}, 2)] * 3)
        state = np.zeros(2 * LANES, np.float32)

        def step(rank: int, number: float) -> Any:
            values = np.ones_like(state)
            values[LANES] += number * rank  # in the chunk that is sent in step 1
            return sums[rank].all_reduce(values, state.copy())

        first, second, third = (
            at_once(agents, lambda rank, n=n: step(rank, n))[0] for n in (np.inf, 0, 0)
        )
        assert np.isnan(first[LANES:]).all()
        assert second[LANES] == 1
        np.testing.assert_array_equal(second[LANES + 1 :], 1.5)
        np.testing.assert_array_equal(third[:LANES], 1.5)


@pytest.mark.parametrize("fewer", [{"quorum": 2}, {"min_workers": 2}])
def test_a_job_that_goes_on_without_workers_is_refused(tor: Rack, fewer: dict[str, int]):
    with tor.workers(3, **fewer) as agents, pytest.raises(UsageError, match="need all 3 workers"):
        DeadlineSums(agents[0])


def test_private_sums_are_refused(tor: Rack, tmp_path):
    key = tmp_path / "key"
    key.touch(0o600)
    key.write_bytes(bytes(range(32)))
    with (
        tor.job(1) as name,
        tor.join(name, 0, private_key_file=key) as agent,
        pytest.raises(UsageError, match="private sums have no deadlines"),
    ):
        DeadlineSums(agent)


def test_wrong_arguments_are_refused(tor: Rack):
    good = np.zeros(8, np.float32)
    with tor.workers(1) as [agent]:
        for deadline in (0, -1.0):
            with pytest.raises(UsageError, match="has to be above 0"):
                DeadlineSums(agent, deadline)
        sums = DeadlineSums(agent, 0.5)
        for values, state, why in (
            (good.astype(np.float64), good, "the values are float64"),
            (good.reshape(2, 4), good, r"of shape \(2, 4\)"),
            (good, good.astype(np.int64), "the state are int64"),
            (good[:0], good, "the values have no elements"),
            (good, np.zeros(16, np.float32)[::2], "not contiguous"),
            (good, np.broadcast_to(np.zeros(8, np.float32), 8), "cannot be changed"),
            ([1.0, 2.0], good, "the values are a list: give a numpy array"),
        ):
            with pytest.raises(UsageError, match=why):
                sums.all_reduce(values, state)
        np.testing.assert_array_equal(sums.all_reduce(good + 1, good), good + 1)
