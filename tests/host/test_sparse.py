"""Sparse sums through a switch: the bits of the dense sums, with the bytes of what is there."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from quorum_room import QuorumRoom
from racks import Rack, problem, rack
from waiting import WITHIN

from innet.controller.state.registry import Policy
from innet.errors import SumOverflow, UsageError, WorkersDisagree
from innet.host.agent import Agent
from innet.host.quantizers.spec import QuantizerSpec
from innet.local.faults import Faults, faulty

LANES = 64
FRAME = 14 + 20 + 8 + 24 + 4 * LANES


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(37, LANES, policy=Policy(lease_s=WITHIN)) as running:
        yield running


@pytest.fixture(scope="module", params=[1, 2, 3, 32])
def agents(tor: Rack, request: pytest.FixtureRequest) -> Iterator[list[Agent]]:
    with tor.workers(request.param) as found:
        yield found


@pytest.fixture(scope="module")
def three(tor: Rack) -> Iterator[list[Agent]]:
    with tor.workers(3) as found:
        yield found


def reduced(agents: Sequence[Agent], tensors: Sequence[Any], op: str = "sum", **more: Any) -> Any:
    """Return the result of all workers, which has to be the same."""
    running = [agent.submit(mine, op, **more) for agent, mine in zip(agents, tensors, strict=True)]
    first, *others = [future.result(WITHIN) for future in running]
    assert all(bits(other) == bits(first) for other in others)
    return first


def bits(result: Any) -> bytes:
    if isinstance(result, np.ndarray):
        return result.tobytes()
    return result.indices().numpy().tobytes() + result.values().numpy().tobytes()


def sent(agents: Sequence[Agent], call: Any) -> int:
    """Return the most frames that a worker has sent for a call, without repetitions."""
    before = [(each.traffic.packets_sent, each.traffic.retransmissions) for each in agents]
    call()
    after = [(each.traffic.packets_sent, each.traffic.retransmissions) for each in agents]
    return max(
        (late[0] - early[0]) - (late[1] - early[1])
        for early, late in zip(before, after, strict=True)
    )


def in_blocks(workers: int, size: int, width: int, share: float, seed: int) -> np.ndarray:
    """Return (workers, size) float32 of which each worker has other blocks."""
    rng = np.random.default_rng(seed)
    kept = rng.random((workers, -(-size // width))) < share
    values = rng.standard_normal((workers, size)) * 2.0 ** rng.integers(-20, 20, (workers, 1))
    return np.where(np.repeat(kept, width, axis=1)[:, :size], values, 0).astype(np.float32)


recipes = st.tuples(
    st.integers(0, 2000), st.integers(1, 200), st.sampled_from([0.0, 0.02, 0.3]), st.integers(0, 99)
)


@given(recipes, st.sampled_from(["int32", "int16", "int8"]), st.sampled_from(["sum", "mean"]))
@example((2000, 64, 0.0, 1), "int32", "sum")
@example((1999, 64, 0.3, 1), "int32", "sum")
def test_blocks_of_a_packet_have_the_bits_of_the_dense_sum(agents, recipe, name: str, op: str):
    if len(agents) == 32 and name == "int8":
        name = "int16"
    size, width, share, seed = recipe
    vectors = in_blocks(len(agents), size, width, share, seed)
    dense = reduced(agents, vectors, op, quantizer=name)
    sparse = reduced(agents, vectors, op, quantizer=f"{name}+blocks")
    assert sparse.tobytes() == (dense + 0).tobytes()  # not minus zero, which small sums may be


@given(recipes, st.integers(1, 300))
def test_blocks_of_any_width_are_summed_within_the_bound(agents, recipe, block: int):
    size, width, share, seed = recipe
    vectors = in_blocks(len(agents), size, width, share, seed)
    found = reduced(agents, vectors, quantizer=f"int32+blocks:{block}")
    exact = vectors.sum(axis=0, dtype=np.float64)
    largest = abs(vectors).max(initial=0)
    assert abs(found - exact).max(initial=0) <= largest * len(agents) * 2.0**-22
    assert not found[(vectors == 0).all(axis=0)].any()


@given(recipes, st.sampled_from([np.int32, np.int64]), st.sampled_from(["+blocks", "+blocks:7"]))
def test_integers_are_exact(agents, recipe, dtype, blocks: str):
    size, width, share, seed = recipe
    vectors = (in_blocks(len(agents), size, width, share, seed) * 2.0**20).clip(-(2**25), 2**25)
    vectors = vectors.astype(dtype)
    found = reduced(agents, vectors, quantizer="int8" + blocks)
    np.testing.assert_array_equal(found, vectors.sum(axis=0, dtype=dtype))


def test_a_sum_that_does_not_fit_is_an_error_and_the_agents_go_on(three):
    full = np.full(1000, 2**30, np.int32)
    running = [agent.submit(full, "sum", quantizer="int32+blocks") for agent in three]
    assert all(isinstance(problem(each), SumOverflow) for each in running)
    ones = np.ones(1000, np.int32)
    assert (reduced(three, [ones] * 3, quantizer="int32+blocks") == 3).all()


@pytest.mark.parametrize("poison", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("quantizer", ["int32+blocks", "int8+blocks", "int32+topk:0.05"])
def test_a_block_that_is_not_finite_is_nan_for_all_and_no_other_is(three, poison, quantizer):
    vectors = in_blocks(3, 5000, 256, 0.2, 5)
    vectors[1, 1000] = poison
    found = reduced(three, vectors, quantizer=quantizer, key="poison")
    assert np.isnan(found[1000])
    assert np.isfinite(found[:768]).all()
    assert np.isfinite(found[1024:]).all()
    again = reduced(three, in_blocks(3, 5000, 256, 0.2, 5), quantizer=quantizer, key="poison")
    assert np.isfinite(again).all()


def test_only_the_union_is_sent(three):
    vectors = np.zeros((3, 100 * LANES), np.float32)
    for rank, block in enumerate((3, 3, 99)):
        vectors[rank, block * LANES] = rank + 1
    # The call, the bitmap, the exponents, and the union's two packets.
    assert sent(three, lambda: reduced(three, vectors, quantizer="int32+blocks")) == 5
    # Without blocks: two packets of exponents, and all others.
    assert sent(three, lambda: reduced(three, vectors, quantizer="int32")) == 102
    none = np.zeros_like(vectors)
    assert sent(three, lambda: reduced(three, none, quantizer="int32+blocks")) == 2


# -- the largest blocks --------------------------------------------------------------------------


def test_the_largest_blocks_are_the_same_on_all_workers(three):
    vectors = np.zeros((3, 100 * LANES), np.float32)
    vectors[0, :: 2 * LANES] = np.arange(50)  # blocks 0, 2, 4, ...
    vectors[1, LANES :: 2 * LANES] = -1000 - np.arange(50)
    vectors[2] = 0.5  # is sent where the others' blocks are
    found = reduced(three, vectors, quantizer="int32+topk:0.03", key="chosen").reshape(100, LANES)
    assert np.flatnonzero(found.any(axis=1)).tolist() == [95, 97, 99]
    np.testing.assert_allclose(found[99], [0.5 - 1049] + [0.5] * (LANES - 1))


@pytest.mark.parametrize("quantizer", ["int32+topk:0.1", "int8+blocks:16+topk:0.1"])
def test_what_is_kept_comes_later(three, quantizer: str):
    """Every block's residual grows until it is among the largest. Then all of it is sent."""
    vectors = np.random.default_rng(1).uniform(0.5, 1, (3, 50 * LANES)).astype(np.float32)
    steps, total = 200, np.zeros(50 * LANES)
    for _ in range(steps):
        total += reduced(three, vectors, quantizer=quantizer, key=quantizer)
    exact = vectors.sum(axis=0, dtype=np.float64)
    # A block waits for the others, which take ten steps, or a few more as they are unequal.
    assert abs(total - steps * exact).max() <= 25 * exact.max()
    # Nothing is lost: all blocks together give back what was kept.
    for _ in range(200):
        total += reduced(three, 0 * vectors, quantizer=quantizer, key=quantizer)
    np.testing.assert_allclose(total, steps * exact, rtol=1e-2)


@pytest.mark.parametrize("quantizer", ["int32+topk:0.1", "int32+blocks:16+topk:1"])
def test_zeros_are_no_largest_blocks(three, quantizer: str):
    none = np.zeros((3, 50 * LANES), np.float32)
    frames = sent(three, lambda: reduced(three, none, quantizer=quantizer, key=quantizer))
    assert frames == (1 if "blocks" not in quantizer else 4)  # the magnitudes


# -- sparse tensors ------------------------------------------------------------------------------


@st.composite
def sparse_recipes(draw) -> tuple[tuple[int, ...], int, torch.dtype, int]:
    """Draw a shape, the number of its sparse dimensions, a dtype, and a seed."""
    shape = draw(st.lists(st.integers(1, 12), min_size=1, max_size=3).map(tuple))
    if draw(st.booleans()):
        shape = (draw(st.integers(1, 3000) | st.integers(3000, 30_000)), *shape[1:])
    dtype = draw(st.sampled_from([torch.float32, torch.int32, torch.int64]))
    return shape, draw(st.integers(1, len(shape))), dtype, draw(st.integers(0, 999))


def sparse(rank: int, recipe: tuple[tuple[int, ...], int, torch.dtype, int]) -> torch.Tensor:
    """Return a worker's tensor: whole numbers, some indices twice, and nothing on some workers."""
    shape, cut, dtype, seed = recipe
    generator = torch.Generator().manual_seed(seed * 32 + rank)
    count = int(torch.randint(0, 40, (), generator=generator)) if (rank + seed) % 3 else 0
    heads = [torch.randint(0, size, (count,), generator=generator) for size in shape[:cut]]
    values = torch.randint(-99, 99, (count, *shape[cut:]), generator=generator).to(dtype)
    return torch.sparse_coo_tensor(torch.stack(heads), values, shape, check_invariants=True)


@given(sparse_recipes())
def test_sparse_tensors_have_the_exact_sum_at_all_indices_of_any_worker(agents, recipe):
    tensors = [sparse(rank, recipe) for rank in range(len(agents))]
    expected = sum(tensors[1:], tensors[0]).coalesce()
    found = reduced(agents, tensors)
    assert (found.shape, found.dtype, found.is_coalesced()) == (recipe[0], recipe[2], True)
    assert found.sparse_dim() == recipe[1]
    assert torch.equal(found.indices(), expected.indices())
    # Whole numbers below 2**14 are multiples of the step.
    assert torch.equal(found.values(), expected.values())


def test_the_mean_is_over_all_workers(three):
    tensors = [torch.zeros(50, 3).index_fill_(0, torch.tensor([rank]), 6.0) for rank in range(3)]
    found = reduced(three, [each.to_sparse(1) for each in tensors], "mean")
    assert torch.equal(found.to_dense(), sum(tensors) / 3)


@pytest.mark.parametrize("quantizer", ["int16", "int8", "int8+blocks"])
def test_a_quantizer_narrows_the_rows(three, quantizer: str):
    rows = torch.randn(3, 100, LANES, generator=torch.Generator().manual_seed(1))
    tensors = [
        torch.sparse_coo_tensor(
            torch.arange(0, 3000, 30)[None], mine, (3000, LANES), check_invariants=True
        )
        for mine in rows
    ]
    frames = {
        name: sent(three, lambda name=name: reduced(three, tensors, quantizer=name))
        for name in ("int32", quantizer)
    }
    assert frames[quantizer] <= 0.65 * frames["int32"]
    found = reduced(three, tensors, quantizer=quantizer)
    torch.testing.assert_close(found.values(), rows.sum(0), atol=0.2, rtol=0)


def test_the_bytes_are_those_of_the_unions_rows(three):
    """One row in a hundred on each worker: 1.3 times the union's rows at most, with all headers."""
    rng = np.random.default_rng(1)
    rows, width = 20_000, 100
    tensors = [
        torch.sparse_coo_tensor(
            rng.choice(rows, rows // 100, replace=False)[None], torch.ones(rows // 100, width),
            (rows, width), check_invariants=True,
        )
        for _ in range(3)
    ]  # fmt: skip
    found: list[torch.Tensor] = []
    frames = sent(three, lambda: found.append(reduced(three, tensors)))
    payload = found[0].values().numel() * 4
    assert frames * 4 * LANES <= 1.1 * payload  # without headers, which 64 lanes make large
    assert found[0].values().sum() == 3 * (rows // 100) * width


def far_apart(rows: int) -> list[torch.Tensor]:
    """Return three tensors with one row each, of 64 elements."""
    return [
        torch.sparse_coo_tensor(
            torch.tensor([[rank * rows // 3]]), torch.ones(1, 64), (rows, 64), check_invariants=True
        )
        for rank in range(3)
    ]


def test_the_bits_of_rare_rows_take_no_more_than_the_rows(three):
    """A million rows have 1042 packets of bits. Of them a few packets are sent, in groups of groups."""
    found: list[torch.Tensor] = []
    frames = sent(three, lambda: found.append(reduced(three, far_apart(1_000_000))))
    assert found[0].indices().tolist() == [[0, 333_333, 666_666]]
    assert (found[0].values() == 1).all()
    assert frames <= 12
    none = [torch.sparse_coo_tensor(torch.empty(1, 0), torch.empty(0, 64), (10**6, 64),
            check_invariants=True)] * 3  # fmt: skip
    assert sent(three, lambda: found.append(reduced(three, none))) <= 3
    assert found[1]._nnz() == 0


@pytest.mark.parametrize("exchange", range(5))
def test_with_a_quorum_groups_of_a_late_worker_do_no_harm(exchange: int):
    """Whatever it is late for, its rows are summed or missing, and the others' are right."""
    late = [[1] if number == exchange else [] for number in range(5)]
    vectors = np.zeros((2, 5000), np.float32)
    vectors[0, 17], vectors[:, 4000], vectors[1, 4999] = 1, 2, 3
    [found] = with_a_late_worker("int32+blocks:1", late, vectors)
    assert found[17] == 1
    assert found[4000] in (2, 4)
    assert found[4999] in (0, 3)
    assert set(np.flatnonzero(found)) <= {17, 4000, 4999}


def test_error_feedback_is_refused_for_sparse_tensors(three):
    tensor = torch.eye(3).to_sparse()
    for quantizer in ("int8+feedback", "int32+topk:0.1", "strom:1"):
        with pytest.raises(UsageError, match="cannot follow the rows of a sparse tensor"):
            three[0].submit(tensor, "sum", quantizer=quantizer, key=0)
    assert torch.equal(reduced(three, [tensor] * 3).to_dense(), 3 * torch.eye(3))


# -- workers that differ -------------------------------------------------------------------------


def sparse_of(rows: int, width: int) -> torch.Tensor:
    return torch.sparse_coo_tensor(
        torch.tensor([[1]]), torch.ones(1, width), (rows, width), check_invariants=True
    )


DISAGREE = [
    (np.zeros(1000, np.float32), "int32", "int32+blocks", "different quantizers"),
    (np.zeros(1000, np.float32), "int32+blocks:8", "int32+blocks", "different quantizers"),
    (np.zeros(1000, np.int32), "int32+blocks:8", "int32+blocks", "different quantizers"),
    (np.zeros(1000, np.float32), "int32+topk:0.1", "int32+topk:0.2", "different quantizers"),
    ((sparse_of(1000, 64), sparse_of(1001, 64)), None, None, "has 100[01] rows, others have"),
    ((sparse_of(1000, 64), sparse_of(1000, 63)), None, None, "6[34] elements, others have"),
    ((sparse_of(1000, 1), np.ones(1000, np.float32)), None, None, "different dtypes"),
    ((sparse_of(1000, 1), sparse_of(1000, 1).int()), None, None, "different dtypes"),
]


@pytest.mark.parametrize(("tensors", "first", "second", "why"), DISAGREE)
def test_workers_that_differ_are_told(tor: Rack, tensors, first, second, why):
    pair = tensors if isinstance(tensors, tuple) else (tensors, tensors)
    with tor.workers(2) as agents:
        running = [
            agent.submit(mine, "sum", quantizer=name, key=0)
            for agent, mine, name in zip(agents, pair, (first, second), strict=True)
        ]
        for future in running:
            found = problem(future)
            assert isinstance(found, WorkersDisagree)
            with pytest.raises(WorkersDisagree, match=why):
                raise found


# -- losses and quorums ---------------------------------------------------------------------------


def test_lost_and_repeated_packets_change_nothing(tor: Rack):
    vectors = in_blocks(2, 50_000, 100, 0.1, 3)
    with tor.job(2) as job, tor.cables(2) as links, faulty(links, 4) as wiring:
        agents = [tor.join(job, rank, link) for rank, link in enumerate(wiring.links)]
        expected = reduced(agents, vectors, quantizer="int32+blocks")
        wiring.chance(Faults(drop=0.1, duplicate=0.1))
        assert reduced(agents, vectors, quantizer="int32+blocks").tobytes() == expected.tobytes()
        wiring.chance(Faults())
        for agent in agents:
            agent.close()


def with_a_late_worker(name: str, late: list[list[int]], *calls: np.ndarray) -> list[np.ndarray]:
    """Return the sums of (2, size) vectors, one after the other, with the same key."""
    spec, room = QuantizerSpec.read(name), QuorumRoom(2, LANES, late)
    found = []
    for vectors in calls:
        first, second = room.run(
            lambda reducer, rank, given=vectors: reducer.floats(given[rank], spec, 0, mean=False)
        )
        assert first.tobytes() == second.tobytes()
        found.append(first)
    return found


def two_blocks() -> np.ndarray:
    """Return (2, 6400) float32: each of the workers has a block of its own."""
    vectors = np.zeros((2, 100 * LANES), np.float32)
    vectors[0, 5 * LANES], vectors[1, 7 * LANES] = 1, 2
    return vectors


def test_with_a_quorum_the_union_is_of_those_that_came_in_time():
    vectors = two_blocks()
    late = [[], [1]]  # for the bitmap
    [found] = with_a_late_worker("int32+blocks", late, vectors)
    assert found.tobytes() == vectors[0].tobytes()
    late = [[], [], [], [1]]  # for the values
    [found] = with_a_late_worker("int32+blocks", late, vectors)
    assert found.tobytes() == vectors[0].tobytes()


@pytest.mark.parametrize("exchange", [0, 1, 2])
def test_with_a_quorum_the_largest_blocks_of_a_late_worker_come_later(exchange: int):
    vectors = two_blocks()
    late = [[1] if number == exchange else [] for number in range(3)]
    found = with_a_late_worker("int32+topk:0.1", late, vectors, 0 * vectors, 0 * vectors)
    assert found[0][5 * LANES] == 1
    assert sum(found).tobytes() == vectors.sum(axis=0).tobytes()


@pytest.mark.parametrize("exchange", range(4))
def test_with_a_quorum_error_feedback_keeps_what_the_union_lacks(exchange: int):
    vectors = two_blocks()
    late = [[1] if number == exchange else [] for number in range(4)]
    found = with_a_late_worker("int32+feedback+blocks", late, vectors, 0 * vectors)
    assert sum(found).tobytes() == vectors.sum(axis=0).tobytes()
