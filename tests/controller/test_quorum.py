"""Results of fewer than all workers: the contributions in them, and the fate of late workers."""

from collections.abc import Iterator
from itertools import combinations

import numpy as np
import pytest
from racks import WITHIN, Rack, problem, rack

from innet.errors import LeftBehind, WorkersMissing
from innet.host import membership

LANES = 64


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(4, LANES) as running:
        yield running


def constant(value: float, chunks: int = 3) -> np.ndarray:
    return np.full(chunks * LANES, value, np.float32)


def test_the_mean_is_over_those_who_have_contributed(tor: Rack):
    with tor.workers(3, quorum=2) as (first, second, third):
        running = [agent.submit(constant(value)) for agent, value in ((first, 1), (second, 3))]
        for future in running:
            assert (future.result(WITHIN) == 2).all()
        late = third.submit(constant(100))
        assert (late.result(WITHIN) == 2).all()


def test_without_all_workers_the_job_goes_on_as_long_as_enough_are_left(tor: Rack, monkeypatch):
    monkeypatch.setattr(membership, "_FAREWELL_WITHIN", WITHIN)  # else it may seem to have died
    with tor.workers(3, min_workers=2) as (first, second, third):
        third.close()
        for _ in range(3):
            running = [agent.submit(constant(5)) for agent in (first, second)]
            for future in running:
                assert (future.result(WITHIN) == 5).all()
        second.close()
        error = problem(first.submit(constant(5)))
        assert isinstance(error, WorkersMissing)
        assert "worker 1: it has left the job" in str(error)


def test_who_is_too_late_is_told_that_the_others_have_gone_on_without_it(tor: Rack):
    with tor.workers(3, slots=4, quorum=2) as (first, second, third):
        for _ in range(5):
            for future in [agent.submit(constant(5, chunks=40)) for agent in (first, second)]:
                future.result(WITHIN)
        error = problem(third.submit(constant(5, chunks=40)))
        assert isinstance(error, LeftBehind)
        assert isinstance(problem(third.submit(constant(5))), LeftBehind)
        for future in [agent.submit(constant(7)) for agent in (first, second)]:
            assert (future.result(WITHIN) == 7).all()


@pytest.mark.parametrize("theirs", [1e20, np.nan])
def test_whoever_was_in_time_all_workers_get_the_same(tor: Rack, theirs: float):
    """By chance the third worker is in the exponents, in the integers, in both or in neither."""
    with tor.workers(3, quorum=2) as agents:
        for _ in range(20):
            running = [
                agent.submit(constant(value))
                for agent, value in zip(agents, (1, 1, theirs), strict=True)
            ]
            results = [future.result(WITHIN) for future in running]
            assert len({result.tobytes() for result in results}) == 1
            assert np.isnan(results[0]).any() or (results[0] >= 0).all()


def test_integers_are_exact_sums_of_those_who_are_in_them(tor: Rack):
    values = 2**30, 2**30 + 1, -(2**31)
    with tor.workers(3, quorum=2) as agents:
        running = [
            agent.submit(np.full(LANES, value, np.int32), "sum")
            for agent, value in zip(agents, values, strict=True)
        ]
        possible = {sum(pair) for pair in combinations(values, 2)}
        found = set()
        for future in running:
            error = future.exception(WITHIN)
            found |= set(future.result().tolist()) if error is None else {str(error)}
        [total] = found  # the same for all workers
        assert total in possible or f"do not fit int32, the first {max(possible)}" in total
