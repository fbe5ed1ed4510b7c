"""Collectives of agents through a switch, against the same collectives of numpy in one process."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from racks import Rack, rack
from trees import forest
from waiting import WITHIN

from innet.controller.state.registry import Policy
from innet.errors import UnsupportedTensor, UsageError, WorkersDisagree, WorkersMissing
from innet.host import float_reducer
from innet.host.agent import Agent
from innet.host.agreement import ALL_GATHER, ALL_REDUCE
from innet.local.faults import Faults, faulty

LANES = 64
DTYPES = ("uint8", "int16", "float16", "float32", "int64", "float64", "complex64", "bool")


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(41, LANES, policy=Policy(lease_s=WITHIN)) as running:
        yield running


@pytest.fixture(scope="module")
def small() -> Iterator[Rack]:
    with rack(3, LANES) as running:
        yield running


@pytest.fixture(scope="module", params=[1, 2, 3, 32])
def agents(tor: Rack, request: pytest.FixtureRequest) -> Iterator[list[Agent]]:
    with tor.workers(request.param) as found:
        yield found


@pytest.fixture(scope="module")
def three(tor: Rack) -> Iterator[list[Agent]]:
    with tor.workers(3) as found:
        yield found


def together(agents: Sequence[Agent], call: Callable[[Agent, int], Any]) -> list[Any]:
    """Return the outcome of a call of every worker, by rank: its result or its error."""

    def outcome(rank: int) -> Any:
        try:
            return call(agents[rank], rank)
        except Exception as problem:  # noqa: BLE001 - the test looks at it
            return problem

    return list(_threads().map(outcome, range(len(agents))))


@cache
def _threads() -> ThreadPoolExecutor:
    """Return threads for all calls. To start new ones takes much of the time of a small call."""
    return ThreadPoolExecutor(64)


@pytest.fixture(scope="module", autouse=True)
def _end_threads() -> Iterator[None]:
    yield
    _threads().shutdown()
    _threads.cache_clear()


def anything(shape: Sequence[int], dtype: str, seed: int) -> np.ndarray:
    """Return an array of random bits: NaNs, infinities and the smallest integers among them."""
    kind = np.dtype(dtype)
    content = np.random.default_rng(seed).integers(0, 256, (*shape, kind.itemsize), np.uint8)
    content %= 2 if dtype == "bool" else 255
    return content.view(kind)[..., 0]


@st.composite
def tensors(draw) -> tuple[tuple[int, ...], str, int]:
    """Draw a shape, a dtype and a seed."""
    shape = draw(st.lists(st.integers(0, 9), max_size=3).map(tuple) | st.tuples(st.just(3000)))
    return shape, draw(st.sampled_from(DTYPES)), draw(st.integers(0, 99))


@given(tensors())
def test_an_all_gather_has_the_bits_of_all(agents, drawn):
    shape, dtype, seed = drawn
    own = [anything(shape, dtype, seed + rank) for rank in range(len(agents))]
    expected = np.concatenate(own) if shape else np.stack(own)
    for found in together(agents, lambda agent, rank: agent.all_gather(own[rank])):
        assert (found.shape, found.dtype) == (expected.shape, expected.dtype)
        assert found.tobytes() == expected.tobytes()


@given(tensors(), st.integers(0, 31))
def test_a_broadcast_has_the_bits_of_its_root(agents, drawn, number):
    shape, dtype, seed = drawn
    root = number % len(agents)
    own = [anything(shape, dtype, seed + rank) for rank in range(len(agents))]
    for found in together(agents, lambda agent, rank: agent.broadcast(own[rank], root)):
        assert (found.shape, found.dtype) == (shape, own[root].dtype)
        assert found.tobytes() == own[root].tobytes()


@pytest.mark.parametrize("dtype", ["int32", "int64"])
@pytest.mark.parametrize("rows", [1, 5, 700])
def test_a_reduce_scatter_of_integers_is_exact(agents, dtype, rows):
    shape = rows * len(agents), 3
    own = np.random.default_rng(rows).integers(-(2**25), 2**25, (len(agents), *shape), dtype)
    parts = np.split(own.sum(0, dtype), len(agents))
    found = together(agents, lambda agent, rank: agent.reduce_scatter(own[rank], "sum"))
    for mine, part in zip(found, parts, strict=True):
        np.testing.assert_array_equal(mine, part)


@pytest.mark.parametrize("quantizer", ["int32", "int16", "int8+feedback"])
def test_a_reduce_scatter_of_floats_is_the_part_of_the_all_reduce(three, quantizer):
    own = np.random.default_rng(7).normal(size=(3, 3000)).astype(np.float32)
    # Error feedback keeps the errors of each key, so the two calls need keys of their own.
    whole = together(
        three, lambda agent, rank: agent.all_reduce(own[rank], quantizer=quantizer, key="one")
    )
    found = together(
        three, lambda agent, rank: agent.reduce_scatter(own[rank], quantizer=quantizer, key="two")
    )
    for rank, mine in enumerate(found):
        assert mine.tobytes() == whole[0][1000 * rank : 1000 * (rank + 1)].tobytes()


@pytest.mark.parametrize("in_place", [[False] * 3, [True] * 3, [True, False, True]])
@pytest.mark.parametrize("quantizer", ["int32", "int16", "int8+feedback"])
def test_large_floats_have_the_bits_of_small_ones(
    three, monkeypatch, quantizer: str, in_place: list[bool]
):
    own = np.random.default_rng(11).normal(size=(3, 5000)).astype(np.float32)
    own[1, 700], own[2, 3000], own[:, 4000:4100] = np.nan, np.inf, 0
    found = []
    for key in (1, 2):
        given = own.copy()
        futures = [
            agent.submit(given[rank], quantizer=quantizer, key=key, in_place=in_place[rank])
            for rank, agent in enumerate(three)
        ]
        found.append([future.result(WITHIN).tobytes() for future in futures])
        monkeypatch.setattr(float_reducer, "LARGE", 0)
    assert found[0] == found[1] == 3 * found[0][:1]


def test_error_feedback_makes_up_for_the_errors_of_a_shard(three):
    own = np.random.default_rng(8).normal(size=(3, 3000)).astype(np.float32)
    sums = np.zeros((3, 1000))
    for _ in range(50):
        parts = together(
            three,
            lambda agent, rank: agent.reduce_scatter(
                own[rank], quantizer="int8+feedback", key="shard"
            ),
        )
        sums += parts
    np.testing.assert_allclose(sums.reshape(-1) / 50, own.mean(0), atol=0.02)


def test_a_reduce_gives_its_root_alone_the_result(three):
    own = np.arange(3000, dtype=np.int32).reshape(3, -1)
    for root in range(3):
        found = together(three, lambda agent, rank, to=root: agent.reduce(own[rank], to, "sum"))
        np.testing.assert_array_equal(found[root], own.sum(0))
        assert [each is None for each in found] == [rank != root for rank in range(3)]


def test_a_barrier_takes_one_packet_each_way(three):
    before = [(agent.traffic.packets_sent, agent.traffic.packets_received) for agent in three]
    together(three, lambda agent, _: agent.barrier())
    for agent, (sent, received) in zip(three, before, strict=True):
        # A packet may be repeated on a busy machine.
        repeated = agent.traffic.retransmissions
        assert agent.traffic.packets_sent - sent - repeated <= 1
        assert agent.traffic.packets_received - received - repeated <= 1


def test_nobody_leaves_a_barrier_before_the_last_has_come(three):
    early = [agent.submit_barrier() for agent in three[:2]]
    assert not any(future.done() for future in early)
    three[2].barrier()
    for future in early:
        future.result(WITHIN)


def test_torch_tensors_of_any_dtype_come_back_as_such(three):
    for dtype in (torch.bfloat16, torch.float8_e4m3fn, torch.bool, torch.complex64, torch.int8):
        own = [(torch.arange(6) % 2 + rank).reshape(2, 3).to(dtype) for rank in range(3)]
        for found in together(three, lambda agent, rank, own=own: agent.all_gather(own[rank])):
            assert found.dtype == dtype
            assert found.view(torch.uint8).equal(torch.cat(own).view(torch.uint8))
        [_, found, _] = together(three, lambda agent, rank, own=own: agent.broadcast(own[rank], 2))
        assert found.view(torch.uint8).equal(own[2].view(torch.uint8))


def test_strides_and_views_do_not_matter(three):
    own = np.arange(60, dtype=np.int64).reshape(6, 10)[::2, 1::3]
    [found, *_] = together(three, lambda agent, _: agent.all_gather(own))
    np.testing.assert_array_equal(found, np.concatenate([own] * 3))
    for view in (torch.tensor([1 + 2j, 3j]).conj(), torch.tensor([1 + 2j, 3j]).conj().imag):
        [found, *_] = together(three, lambda agent, _, own=view: agent.all_gather(own))
        assert found.tolist() == 3 * view.tolist()


@pytest.mark.parametrize("size", [10, 3000])
def test_losses_and_repetitions_change_no_bit(small, size):
    own = [anything((size,), "float32", rank) for rank in range(3)]
    with (
        small.cables(3) as links,
        faulty(links, 5, Faults(), Faults()) as wiring,
        small.job(3) as job,
        ThreadPoolExecutor(3) as pool,
    ):
        joined = list(pool.map(lambda rank: small.join(job, rank, wiring.links[rank]), range(3)))
        for _ in range(5):
            for found in together(joined, lambda agent, rank: agent.all_gather(own[rank])):
                assert found.tobytes() == np.concatenate(own).tobytes()
            for found in together(joined, lambda agent, rank: agent.broadcast(own[rank], 1)):
                assert found.tobytes() == own[1].tobytes()
            together(joined, lambda agent, _: agent.barrier())
        for agent in joined:
            agent.close()


NUMBERS = st.integers(-(2**20), 2**20)
KINDS = ("float32", "int32", "int64", "max", "mean", "barrier", "bytes")


def small_call(
    agent: Agent, rank: int, kind: str, numbers: Sequence[int]
) -> tuple[np.ndarray, np.ndarray]:
    """Return the result of a call of a few numbers, and what it has to be."""
    workers, dtype = agent.info.workers, kind if kind in DTYPES or kind == "int32" else "float32"
    given = [np.array(numbers, dtype) + np.dtype(dtype).type(each) for each in range(workers)]
    exact = np.sum(given, axis=0, dtype=np.int64)
    if kind == "barrier":
        agent.barrier()
        return given[0], given[0]
    if kind == "bytes":
        return agent.all_gather(given[rank]), np.concatenate(given)
    if kind in ("max", "mean"):
        expected = np.max(given, axis=0) if kind == "max" else (exact / workers).astype(dtype)
        return agent.all_reduce(given[rank], kind), expected  # type: ignore[arg-type]
    return agent.all_reduce(given[rank], "sum"), exact.astype(dtype)


Calls = Sequence[tuple[str, Sequence[int]]]
small_calls = st.lists(
    st.tuples(st.sampled_from(KINDS), st.lists(NUMBERS, min_size=1, max_size=70)),
    min_size=1,
    max_size=12,
)
"""Calls of one to a few packets. Sums of these numbers are exact in float32."""


def check_small_calls(agents: Sequence[Agent], calls: Calls) -> None:
    """Make the calls one after the other, and compare every bit of every result."""

    def make(agent: Agent, rank: int) -> None:
        for kind, numbers in calls:
            found, expected = small_call(agent, rank, kind, numbers)
            assert found.dtype == expected.dtype
            assert found.tobytes() == expected.tobytes()

    for problem in together(agents, make):
        if problem is not None:
            raise problem


@given(small_calls)
def test_small_calls_of_any_kinds_follow_each_other(three: list[Agent], calls: Calls):
    check_small_calls(three, calls)


@pytest.fixture(scope="module")
def troubled(tor: Rack) -> Iterator[list[Agent]]:
    """Yield workers whose cables lose, repeat, delay and damage packets."""
    with (
        tor.cables(3) as links,
        faulty(links, 11, Faults.all(0.05), Faults.all(0.05)) as wiring,
        tor.job(3) as job,
        contextlib.ExitStack() as stack,
    ):
        with ThreadPoolExecutor(3) as pool:
            joined = list(pool.map(lambda rank: tor.join(job, rank, wiring.links[rank]), range(3)))
        for agent in joined:
            stack.enter_context(agent)
        yield joined


@settings(max_examples=15)
@given(small_calls)
def test_faults_change_no_bit_of_a_small_call(troubled: list[Agent], calls: Calls):
    check_small_calls(troubled, calls)


def test_terms_that_change_between_small_calls_change_no_bit(tor: Rack):
    """A worker asks for another term again and again, also while others are in the midst of a call."""
    calls = [(kind, [*range(rank, rank + 9)]) for rank, kind in enumerate(3 * KINDS)]
    with tor.workers(3) as agents:
        check_small_calls(agents, calls[:1])
        first = agents[0].term

        def make(agent: Agent, rank: int) -> int:
            terms = set()
            for number, (kind, numbers) in enumerate(calls):
                if number % len(agents) == rank and agent.term:
                    agent._membership.trouble(agent.term.number, "the test says so")
                found, expected = small_call(agent, rank, kind, numbers)
                assert found.tobytes() == expected.tobytes()
                terms.add(agent.term.number if agent.term else 0)
            return len(terms)

        counts = together(agents, make)
        assert all(isinstance(each, int) for each in counts), counts
        check_small_calls(agents, calls[:1])
        assert first
        assert agents[0].term
        assert agents[0].term.number > first.number


DIFFERENT = {
    "collectives": (lambda agent: agent.barrier(), lambda agent: agent.all_gather(np.ones(3))),
    "sizes": (
        lambda agent: agent.all_gather(np.ones(3)),
        lambda agent: agent.all_gather(np.ones(4)),
    ),
    "roots": (
        lambda agent: agent.broadcast(np.ones(3000), 0),
        lambda agent: agent.broadcast(np.ones(3000), 1),
    ),
    "reductions": (
        lambda agent: agent.all_reduce(np.ones(30, np.float32)),
        lambda agent: agent.reduce_scatter(np.ones(30, np.float32)),
    ),
}


@pytest.mark.parametrize("calls", DIFFERENT.values(), ids=DIFFERENT)
def test_workers_that_call_different_things_are_all_told(small, calls):
    with small.workers(2) as pair:
        for problem in together(pair, lambda agent, rank: calls[rank](agent)):
            assert isinstance(problem, WorkersDisagree)


def test_what_makes_no_sense_is_refused(three):
    [one, *_] = three
    with pytest.raises(UsageError, match="multiple of the number of workers"):
        one.reduce_scatter(np.ones(4, np.float32))
    with pytest.raises(UsageError, match="the ranks are 0 to 2"):
        one.broadcast(np.ones(4), 3)
    with pytest.raises(UsageError, match="the ranks are 0 to 2"):
        one.reduce(np.ones(4, np.float32), -1)


@pytest.mark.parametrize(
    "call",
    [
        lambda agent: agent.reduce_scatter([1.0, 2.0, 3.0]),
        lambda agent: agent.reduce([1.0, 2.0, 3.0]),
        lambda agent: agent.all_gather([1.0, 2.0, 3.0]),
        lambda agent: agent.broadcast("text"),
        lambda agent: agent.reduce_scatter(torch.eye(3).to_sparse()),
        lambda agent: agent.all_gather(torch.eye(3).to_sparse()),
        lambda agent: agent.broadcast(torch.eye(3).to_sparse()),
        lambda agent: agent.broadcast(np.array([None, "text"])),
        lambda agent: agent.broadcast(torch.ones(3, device="meta")),
        lambda agent: agent.broadcast(np.empty(2**31, np.uint8)),
        lambda agent: agent.all_gather(np.empty(2**31, np.uint8)),
    ],
)
def test_what_cannot_be_moved_is_refused_and_the_agents_go_on(three, call):
    with pytest.raises(UnsupportedTensor):
        call(three[0])
    for found in together(three, lambda agent, rank: agent.all_gather(np.int8([rank]))):
        assert found.tolist() == [0, 1, 2]


@pytest.mark.parametrize("begin", ["submit", "submit_move"])
def test_a_result_that_cannot_be_finished_concerns_only_its_future(three, begin):
    def finish(_: object) -> None:
        raise MemoryError

    collective = {"submit": ALL_REDUCE, "submit_move": ALL_GATHER}[begin]
    futures = [
        getattr(agent, begin)(np.ones(4, np.float32), collective=collective, finish=finish)
        for agent in three
    ]
    for future in futures:
        with pytest.raises(MemoryError):
            future.result(WITHIN)
    for found in together(three, lambda agent, rank: agent.all_gather(np.int8([rank]))):
        assert found.tolist() == [0, 1, 2]


@pytest.mark.parametrize("size", [10, 5000])
def test_a_gather_without_one_of_the_workers_names_it(small, size):
    with small.job(3, min_workers=2) as job, ThreadPoolExecutor(3) as pool:
        agents = list(pool.map(lambda rank: small.join(job, rank), range(3)))
        own = np.ones(size)
        assert (
            len({found.tobytes() for found in together(agents, lambda a, _: a.all_gather(own))})
            == 1
        )
        agents[2].close()
        for problem in together(agents[:2], lambda agent, _: agent.all_gather(own)):
            assert isinstance(problem, WorkersMissing)
            assert "worker 2" in str(problem)
        for total in together(
            agents[:2], lambda agent, _: agent.all_reduce(np.ones(5, np.int32), "sum")
        ):
            np.testing.assert_array_equal(total, np.full(5, 2))
        for agent in agents[:2]:
            agent.close()


AT = ["left", "right", "right", "far", "tor"]
"""The switches of five workers: two racks, and one below the first of them."""


@pytest.fixture(scope="module", params=[Faults(), Faults.all(0.02)], ids=["clean", "faulty"])
def tree(request: pytest.FixtureRequest) -> Iterator[list[Agent]]:
    """Yield workers at several levels of a tree, also with faults on the cables between switches."""
    hosts = {"tor": 1, "left": 1, "right": 2, "far": 1}
    parents = {"left": ["tor"], "right": ["tor"], "far": ["left"]}
    with (
        forest(hosts, parents, request.param, 7) as switches,
        switches.workers("tor", AT) as agents,
    ):
        yield agents


@pytest.mark.parametrize("size", [7, 700, 3001])
def test_a_tree_moves_the_bits_of_all(tree: list[Agent], size: int):
    own = [anything((size,), "float32", rank) for rank in range(len(AT))]
    for found in together(tree, lambda agent, rank: agent.all_gather(own[rank])):
        assert found.tobytes() == np.concatenate(own).tobytes()
    for root in (0, 3):
        for found in together(tree, lambda agent, rank, to=root: agent.broadcast(own[rank], to)):
            assert found.tobytes() == own[root].tobytes()


@settings(max_examples=10)
@given(small_calls)
def test_small_calls_through_a_tree(tree: list[Agent], calls: Calls):
    check_small_calls(tree, calls)


@pytest.mark.parametrize("rows", [1, 140, 601])
def test_a_tree_gives_each_worker_its_part(tree: list[Agent], rows: int):
    shape = len(AT), rows * len(AT)
    own = np.random.default_rng(rows).integers(-(2**28), 2**28, shape, np.int32)
    total = own.sum(0, np.int32)
    found = together(tree, lambda agent, rank: agent.reduce_scatter(own[rank], "sum"))
    for mine, part in zip(found, np.split(total, len(AT)), strict=True):
        np.testing.assert_array_equal(mine, part)
    found = together(tree, lambda agent, rank: agent.reduce(own[rank], 3, "sum"))
    np.testing.assert_array_equal(found[3], total)


def test_in_a_tree_lanes_come_down_only_to_who_wants_them(tree: list[Agent]):
    own = np.ones(64 * LANES, np.int32)
    before = [(each.traffic.bytes_received, each.traffic.retransmissions) for each in tree]
    together(tree, lambda agent, _: agent.reduce(own, 0, "sum"))
    received = [
        each.traffic.bytes_received - early for each, (early, _) in zip(tree, before, strict=True)
    ]
    lanes = own.nbytes
    assert received[0] > lanes
    again = sum(each.traffic.retransmissions for each in tree) - sum(n for _, n in before)
    for each in received[1:]:  # bare headers, and the chunks that everybody gets
        assert each < lanes / 2 + 400 * again
