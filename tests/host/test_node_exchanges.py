"""Exchanges of nodes have the results of all workers' exchange, in the same bits, or a common error."""

import contextlib
import re
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from time import monotonic
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from nodes import met
from racks import Rack, problem, rack
from waiting import WITHIN, until

from innet.errors import (
    AllReduceError,
    JobEnded,
    NeighbourLost,
    SumOverflow,
    UnsupportedTensor,
    WorkersDisagree,
    WorkersMissing,
)
from innet.host import node as node_module
from innet.host import node_tables
from innet.host.agent import Agent
from innet.host.agreement import ALL_GATHER, Collective
from innet.host.integers import Reduction
from innet.host.job import Timeouts
from innet.host.node_tables import Table
from innet.wire.layout import Operation

SHAPES = [(2, 2), (1, 4)]  # nodes, and workers on each
WORKERS = 4
LANES = 64
PIECE_ROWS = 21
PIECE_BYTES = PIECE_ROWS * 4 * LANES - 16  # without the words of a call
SIZES = [0, 1, 3, 1000, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 7]


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(3 * WORKERS, LANES) as running:
        yield running


@contextlib.contextmanager
def joined(tor: Rack, shape: tuple[int, int] = SHAPES[0], **more) -> Iterator[list[Agent]]:
    """Yield the agents of some nodes, by rank. Their memory has room for a few rows at a time.

    If a node has all workers, it combines a few rows on every worker, and others in parts.
    """
    nodes, size = shape
    with pytest.MonkeyPatch.context() as patch, contextlib.ExitStack() as stack:
        patch.setattr(node_module, "PIECE_BYTES", 2 * PIECE_ROWS * (4 * LANES + 2) + 64)
        patch.setattr(node_tables, "_FEW_BYTES", WORKERS * 4 * LANES * 4)
        met_nodes = stack.enter_context(met(nodes, size))
        slices = 1 if nodes == 1 else size
        jobs = [stack.enter_context(tor.job(WORKERS // slices)) for _ in range(slices)]
        links = stack.enter_context(tor.cables(WORKERS))
        agents = [
            tor.join(jobs[rank % slices], rank // slices, links[rank], node=met_nodes[rank], **more)
            for rank in range(WORKERS)
        ]
        for agent in agents:
            stack.callback(agent.close, abandon=True)
        yield agents


@pytest.fixture(scope="module", params=SHAPES, ids=str)
def agents(tor: Rack, request: pytest.FixtureRequest) -> Iterator[list[Agent]]:
    with joined(tor, request.param) as found:
        yield found


@pytest.fixture(scope="module")
def plain(tor: Rack, agents: list[Agent]) -> Iterator[list[Agent]]:
    """Yield agents that contribute for themselves, and that have made as many calls as the others."""
    del agents
    with tor.workers(WORKERS) as found:
        yield found


def exchanged(
    agents: list[Agent], chunks: np.ndarray, operation: Operation, flags: np.ndarray
) -> list[Reduction]:
    running = [
        agent.perform(lambda exchanges, _, own=own, set_=set_: exchanges.all_reduce(own, set_, operation))
        for agent, own, set_ in zip(agents, chunks, flags, strict=True)
    ]  # fmt: skip
    return [each.result(WITHIN) for each in running]


@given(
    rows=st.integers(0, 3 * PIECE_ROWS + 2),
    seed=st.integers(0, 999),
    operation=st.sampled_from([Operation.SUM, Operation.MAX]),
)
def test_an_exchange_is_that_of_all_workers(agents, rows: int, seed: int, operation: Operation):
    rng = np.random.default_rng(seed)
    bound = 2**31 // WORKERS if operation == Operation.SUM else 2**31
    chunks = rng.integers(-bound, bound, (WORKERS, rows, LANES)).astype(np.int32)
    flags = rng.integers(0, 2, (WORKERS, rows)).astype(np.uint16)
    expected = (chunks.sum(0) if operation == Operation.SUM else chunks.max(0)).astype(np.int32)
    for found in exchanged(agents, chunks, operation, flags):
        assert np.array_equal(found.lanes, expected)
        assert np.array_equal(found.flags, np.bitwise_or.reduce(flags, axis=0))
        assert found.counts.tolist() == [WORKERS] * rows
        assert found.includes(np.arange(WORKERS)[:, None], WORKERS).all()


@given(size=st.sampled_from(SIZES), seed=st.integers(0, 999), root=st.integers(0, WORKERS - 1))
def test_bytes_reach_all_workers_whatever_their_number(agents, size: int, seed: int, root: int):
    own = np.random.default_rng(seed).integers(0, 256, (WORKERS, size)).astype(np.uint8)
    for collective, expected in ((ALL_GATHER, own), (Collective("broadcast", root), own[root])):
        for each in [
            agent.submit_move(content, collective, np.copy)
            for agent, content in zip(agents, own, strict=True)
        ]:
            assert np.array_equal(each.result(WITHIN), expected)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_progress_counts_exchanges_and_the_time_since_something_happened(
    tor: Rack, shape: tuple[int, int]
):
    with joined(tor, shape) as agents:
        before = [agent.progress().exchange for agent in agents]
        for each in [agent.submit(np.ones(300, np.int32), "max") for agent in agents]:
            each.result(WITHIN)
        after = [agent.progress() for agent in agents]
        assert [each.exchange for each in after] == [number + 1 for number in before]
        assert not any(each.busy for each in after)
        waiting = agents[0].submit(np.ones(300, np.int32), "max")
        began = monotonic()
        until(lambda: agents[0].progress().busy or shape == SHAPES[0])
        assert agents[0].progress().stuck_s <= monotonic() - began + 1
        for each in [agent.submit(np.ones(300, np.int32), "max") for agent in agents[1:]]:
            each.result(WITHIN)
        waiting.result(WITHIN)


@given(
    workers=st.integers(1, 9), rows=st.integers(0, 60), lanes=st.integers(1, 9), alone=st.booleans()
)
def test_the_slices_are_all_rows_once_and_the_first_row_is_the_first_workers(
    workers: int, rows: int, lanes: int, alone: bool
):
    place = SimpleNamespace(ranks=range(workers), has_all=alone)
    memory = bytearray((workers + 1) * 64 * (lanes * 4 + 2))
    covered = []
    for index in range(workers):
        place.index = index
        part = Table(SimpleNamespace(place=place, memory=memory), lanes, 0).part(rows)
        covered += range(rows)[part]
        assert part.stop - part.start <= -(-rows // workers)
    assert covered == [*range(rows)]


VALUES = {
    "small": lambda rng: rng.standard_normal(3),
    "several pieces": lambda rng: rng.standard_normal(5000),
    "not finite": lambda rng: np.where(rng.random(3000) < 0.001, np.nan, 1.0),
    "wide": lambda rng: np.ldexp(rng.standard_normal(3000), rng.integers(-140, 120, 3000)),
    "nothing": lambda _: np.zeros(0),
}  # fmt: skip


@pytest.mark.parametrize("quantizer", ["int32", "int16", "int8", "int8+stochastic"])
@pytest.mark.parametrize("kind", VALUES)
def test_means_have_the_same_bits_as_with_every_worker_for_itself(
    agents, plain, kind: str, quantizer: str
):
    rng = np.random.default_rng(5)
    vectors = [VALUES[kind](rng).astype(np.float32) for _ in range(WORKERS)]
    bits = [
        each.result(WITHIN).tobytes()
        for some in (agents, plain)
        for each in [
            agent.submit(vector, quantizer=quantizer)
            for agent, vector in zip(some, vectors, strict=True)
        ]
    ]
    assert len(set(bits)) == 1


@pytest.mark.parametrize("dtype", [np.int32, np.int64])
@pytest.mark.parametrize("size", [3, 3000])
def test_integers_are_exact_or_overflow_for_all(agents, dtype, size: int):
    largest = np.iinfo(dtype).max
    fits = np.full(size, largest // WORKERS, dtype)
    for each in [agent.submit(fits, "sum") for agent in agents]:
        assert np.array_equal(each.result(WITHIN), fits * WORKERS)
    for each in [agent.submit(np.full(size, largest, dtype), "sum") for agent in agents]:
        assert type(problem(each)) is SumOverflow


@pytest.mark.parametrize("sizes", [(9, 3000, 9, 9), (9, 9, 3000, 3000), (3000, 9, 5000, 7)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_workers_that_disagree_learn_it_on_all_nodes(
    tor: Rack, shape: tuple[int, int], sizes: tuple[int, ...]
):
    """They do on one node, between nodes, and everywhere."""
    with joined(tor, shape) as agents:
        running = [
            agent.submit(np.ones(size, np.float32))
            for agent, size in zip(agents, sizes, strict=True)
        ]
        for each in running:
            assert type(problem(each)) is WorkersDisagree
            assert f"between {min(sizes)} and {max(sizes)}" in str(problem(each))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_workers_that_call_different_collectives_learn_it(tor: Rack, shape: tuple[int, int]):
    def calls(agents: list[Agent]) -> Iterator[Future]:
        own = np.ones(3000, np.float32)
        yield agents[0].submit_barrier()
        yield agents[1].submit_move(own, ALL_GATHER, np.copy)
        yield agents[2].submit(own)
        yield agents[3].submit(own[:3])

    with joined(tor, shape) as agents:
        for each in [*calls(agents)]:
            assert type(problem(each)) is WorkersDisagree
            assert "different" in str(problem(each))


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_when_one_leaves_the_others_end_with_an_error_that_names_it(
    tor: Rack, shape: tuple[int, int]
):
    with joined(tor, shape) as agents:
        running = [agent.submit(np.ones(3000, np.float32)) for agent in agents[:3]]
        agents[3].close(abandon=True)
        errors = [problem(each) for each in running]
    assert type(errors[2]) is NeighbourLost
    assert "worker 3, on the same node" in str(errors[2])
    assert all(isinstance(each, WorkersMissing) for each in errors)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_job_that_ends_ends_the_exchanges_of_all(tor: Rack, shape: tuple[int, int]):
    with joined(tor, shape) as agents:
        running = [agent.submit(np.ones(3000, np.float32)) for agent in agents[:3]]
        tor.delete(agents[1]._membership._request.job)
        errors = [problem(each) for each in running]
        assert type(errors[1]) is JobEnded
        assert all(isinstance(each, AllReduceError) for each in errors)


@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_the_wait_for_a_neighbour_has_a_limit(tor: Rack, shape: tuple[int, int]):
    timeouts = Timeouts(switch=WITHIN, workers=0.1)
    with joined(tor, shape, timeouts=timeouts) as agents:
        found = problem(agents[0].submit(np.ones(9, np.float32)))
        assert type(found) is WorkersMissing
        assert re.match("workers? 1.*, on the same node, did not come within", str(found))


def test_tensors_that_only_a_fallback_could_sum_are_refused(agents):
    with ThreadPoolExecutor(1) as pool, pytest.raises(UnsupportedTensor):
        pool.submit(agents[0]._exchanges.combine, np.zeros(1), mean=True).result(WITHIN)
