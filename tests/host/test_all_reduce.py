"""All-reduces through the switch: workers contribute tensors, and get their exact or bounded result."""

import contextlib
from collections.abc import Iterator
from fractions import Fraction
from math import frexp, isfinite

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from racks import Rack, means, problem, rack, random_vectors
from waiting import WITHIN

from innet.controller.state.registry import Policy
from innet.errors import SumOverflow, UnsupportedTensor, UsageError, WorkersDisagree
from innet.host import fastpath
from innet.host.agent import Agent
from innet.local.faults import DOWN, UP, Faults, faulty

LANES = 64
LARGEST = float(np.finfo(np.float32).max)
SPECIAL = (np.nan, np.inf, -np.inf)


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    # As many ports as are in use at once. 32 workers in one process on a busy machine are often
    # silent, so leases are long.
    with rack(37, LANES, policy=Policy(lease_s=WITHIN)) as running:
        yield running


@pytest.fixture(scope="module")
def pair(tor: Rack) -> Iterator[list[Agent]]:
    with tor.workers(2) as agents:
        yield agents


@pytest.fixture(scope="module", params=[1, 2, 3, 8, 32])
def agents(tor: Rack, request: pytest.FixtureRequest) -> Iterator[list[Agent]]:
    with tor.workers(request.param) as found:
        yield found


@st.composite
def recipes(draw) -> tuple[int, int, int, int, int]:
    """Draw arguments of :func:`gradients`: elements, exponents, number not finite, and a seed."""
    low, high = sorted(draw(st.tuples(st.integers(-149, 128), st.integers(-149, 128))))
    return draw(st.integers(0, 300)), low, high, draw(st.integers(0, 2)), draw(st.integers(0, 999))


def gradients(workers: int, recipe: tuple[int, int, int, int, int]) -> np.ndarray:
    """Return (workers, elements) float32 of log-uniform magnitudes, some of them not finite."""
    elements, low, high, specials, seed = recipe
    rng = np.random.default_rng(seed)
    exponents = rng.integers(low, high, (workers, elements), endpoint=True)
    values = np.ldexp(rng.uniform(-1, 1, (workers, elements)), exponents)
    values = values.clip(-LARGEST, LARGEST).astype(np.float32)
    for _ in range(specials if elements else 0):
        values[rng.integers(workers), rng.integers(elements)] = rng.choice(SPECIAL)
    return values


def assert_within_the_stated_bound(block: np.ndarray, got: np.ndarray) -> None:
    """Check the bound of `innet.host.quantizers.fixed_point`. `block` is (workers, up to LANES)."""
    workers, two = len(block), Fraction(2)
    _, exponent = frexp(float(np.abs(block).max()))
    step = max(two ** (exponent + (workers - 1).bit_length() - 31), two**-126)
    for values, mean in zip(block.T, got, strict=True):
        exact = sum(Fraction(float(value)) for value in values) / workers
        bound = step / 2 + (abs(exact) + step / 2) / 2**23 + two**-150
        assert abs(Fraction(float(mean)) - exact) <= bound


def gathered(workers: int, elements: int) -> bool:
    """Return whether a float32 vector is gathered, in at most four chunks, and then summed."""
    return elements <= 4 * ((LANES - 4) // workers)


def assert_rounded_once(vectors: np.ndarray, got: np.ndarray, divisor: int = 1) -> None:
    """Check the bound of `innet.host.gathering`, element by element; NaN and infinity as IEEE does."""
    with np.errstate(over="ignore", invalid="ignore"):
        rough = vectors.astype(np.float64).sum(axis=0)
    for column, about, found in zip(vectors.T.tolist(), rough.tolist(), got.tolist(), strict=True):
        if not isfinite(about):
            np.testing.assert_equal(found, about)
            continue
        exact = sum(map(Fraction, column)) / divisor
        double = sum(abs(Fraction(each)) for each in column) * len(column) / 2**53
        largest = abs(exact) + double
        if isfinite(found):
            assert abs(Fraction(found) - exact) <= double + largest / 2**24 + Fraction(1, 2**150)
        else:
            assert largest * (1 + Fraction(1, 2**24)) >= LARGEST


@given(recipes())
@example((65, 128, 128, 0, 0))  # sums beyond float32
@example((65, -149, -120, 0, 0))  # denormal numbers
@example((300, -149, 128, 2, 0))
@example((0, 0, 0, 0, 0))
def test_every_worker_gets_the_mean_within_the_stated_bound(agents: list[Agent], recipe):
    given_ones = gradients(len(agents), recipe)
    first, *others = means(agents, *given_ones)
    assert first.dtype == np.float32
    assert {other.tobytes() for other in others} <= {first.tobytes()}
    if gathered(len(agents), first.size):
        assert_rounded_once(given_ones, first, len(agents))
        return
    for start in range(0, first.size, LANES):
        block, got = given_ones[:, start : start + LANES], first[start : start + LANES]
        if np.isfinite(block).all():
            assert_within_the_stated_bound(block, got)
        else:
            assert np.isnan(got).all()


@pytest.mark.parametrize("shape", [(), (0,), (1,), (4, 0, 2), (63,), (65,), (3, 5, 7), (100, 101)])
@pytest.mark.parametrize("kind", [np.asarray, torch.from_numpy], ids=["numpy", "torch"])
def test_the_mean_is_of_the_tensors_kind_and_shape_and_the_tensor_stays(pair, kind, shape):
    tensors = [kind(np.full(shape, rank * 2, np.float32)) for rank in (1, 2)]
    for mean in means(pair, *tensors):
        assert type(mean) is type(tensors[0])
        assert mean.dtype == tensors[0].dtype
        assert tuple(mean.shape) == shape
        assert (mean == 3).all()
    for rank, tensor in zip((1, 2), tensors, strict=True):
        assert (tensor == rank * 2).all()


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[::2],
        lambda a: a[:, 3:40],
        lambda a: a.T,
        lambda a: torch.from_numpy(a).t(),
        lambda a: torch.from_numpy(a)[:, ::3],
        lambda a: torch.from_numpy(a)[0].expand(70, -1),
        lambda a: torch.from_numpy(a).requires_grad_(),
        lambda a: a[::-1, ::-1],
        lambda a: torch.from_numpy(a * 1j).conj().imag,
    ],
)
def test_tensors_may_lie_anyhow_in_memory(pair: list[Agent], view):
    whole = np.arange(40 * 70, dtype=np.float32).reshape(40, 70)
    tensor = view(whole)
    for mean in means(pair, tensor, -3 * tensor):
        assert mean.shape == tensor.shape
        assert abs(mean + tensor).max() < 1e-5


def wide_and_empty() -> torch.Tensor:
    return torch.sparse_coo_tensor(
        torch.empty(2, 0), torch.empty(0), (2**30, 2), check_invariants=True
    )


@pytest.mark.parametrize(
    ("tensor", "why"),
    [
        (np.ones(3), "not float64: convert it first, or join with a fallback"),
        (np.ones(3, np.int32), "the mean of int32 has fractions: ask for op='sum'"),
        (np.ones(3, np.int16), "float32, int32 and int64 tensors, not int16: convert it first$"),
        (np.ones(3, np.float16), "not float16"),
        (np.ones(3, ">f4"), "not >f4"),
        (torch.ones(3, dtype=torch.float64), "not float64"),
        (torch.ones(3, dtype=torch.bfloat16), "not bfloat16"),
        (torch.ones(3, dtype=torch.int64), "the mean of int64 has fractions"),
        (torch.eye(3).double().to_sparse(), "sparse ones .*, not float64 of the layout"),
        (torch.eye(3).int().to_sparse(), "the mean of int32 has fractions"),
        (wide_and_empty(), "2147483648 rows are more than 2147483647"),
        (np.float32(3), "torch tensors and numpy arrays, not float32"),
        ([1.0, 2.0], "not list"),
        (torch.ones(3, device="meta"), "has no content"),
        (np.broadcast_to(np.float32(0), 2**31), "2147483648 elements are more than 2147483647"),
    ],
)
def test_what_cannot_be_summed_is_refused_before_anything_is_sent(pair, tensor, why: str):
    before = pair[0].traffic.packets_sent
    with pytest.raises(UnsupportedTensor, match=why):
        pair[0].submit(tensor)
    assert pair[0].traffic.packets_sent == before
    ones = np.ones(3, np.float32)
    assert means(pair, ones, ones)[0].tolist() == [1, 1, 1]


def sums(agents: list[Agent], vectors: np.ndarray) -> list[np.ndarray]:
    """Return the results of all workers, which sum at the same time."""
    running = [agent.submit(mine, "sum") for agent, mine in zip(agents, vectors, strict=True)]
    return [future.result(WITHIN) for future in running]


@st.composite
def integers(draw) -> tuple[np.dtype, int, int, int]:
    """Draw arguments of :func:`integer_vectors`: dtype, elements, used bits, and a seed."""
    dtype = np.dtype(draw(st.sampled_from([np.int32, np.int64])))
    bits = draw(st.integers(1, dtype.itemsize * 8))
    return dtype, draw(st.integers(0, 300)), bits, draw(st.integers(0, 999))


def integer_vectors(workers: int, recipe: tuple[np.dtype, int, int, int]) -> np.ndarray:
    """Return (workers, elements) of so many bits, a quarter of them the largest or smallest possible."""
    dtype, elements, bits, seed = recipe
    rng = np.random.default_rng(seed)
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    values = rng.integers(low, high, (workers, elements), np.int64, endpoint=True)
    extreme = rng.random(values.shape) < 0.25
    return np.where(extreme, rng.choice([low, high], values.shape), values).astype(dtype)


@given(integers())
@example((np.dtype(np.int32), 130, 32, 1))
@example((np.dtype(np.int64), 130, 64, 1))
def test_sums_of_integers_are_exact_or_an_error_and_the_job_goes_on(agents: list[Agent], recipe):
    vectors = integer_vectors(len(agents), recipe)
    exact = [sum(column) for column in vectors.T.tolist()]
    info = np.iinfo(vectors.dtype)
    if all(info.min <= total <= info.max for total in exact):
        for found in sums(agents, vectors):
            assert found.dtype == vectors.dtype
            assert found.tolist() == exact
    else:
        running = [agent.submit(mine, "sum") for agent, mine in zip(agents, vectors, strict=True)]
        for future in running:
            error = problem(future)
            assert isinstance(error, SumOverflow)
            assert f"do not fit {vectors.dtype}" in str(error)
        ones = np.ones((len(agents), 3), np.int32)
        assert sums(agents, ones)[0].tolist() == [len(agents)] * 3


def test_only_what_may_overflow_is_summed_again(pair: list[Agent]):
    small = np.full((2, 10 * LANES), 2**30 - 1, np.int32)
    chunks = []
    for number_of_large in (0, 1, 5):
        vectors = small.copy()
        vectors[0, : number_of_large * LANES] += 2
        vectors[1, : number_of_large * LANES] -= 10
        before = pair[0].traffic.chunks
        for found in sums(pair, vectors):
            assert (found == vectors.sum(axis=0)).all()
        chunks.append(pair[0].traffic.chunks - before)
    assert chunks == [11, 11 + 2, 11 + 10]


@given(recipes())
@example((65, 100, 128, 0, 0))
def test_the_sum_of_floats_is_the_mean_times_the_workers(pair: list[Agent], recipe):
    vectors = gradients(2, recipe)
    [mean, _], [total, again] = means(pair, *vectors), sums(pair, vectors)
    assert total.tobytes() == again.tobytes()
    if gathered(2, mean.size):
        assert_rounded_once(vectors, total)
        assert_rounded_once(vectors, mean, 2)
        return
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(total, 2 * mean)


@pytest.mark.parametrize(
    ("dtype", "op", "most"),
    [("float32", "mean", 30), ("int32", "sum", 30), ("int64", "sum", 15), ("float32", "max", 60)],
)
def test_a_small_vector_takes_one_round_trip(pair: list[Agent], dtype: str, op, most: int):
    vector = np.arange(most).astype(dtype)
    for elements in (0, 1, most):
        before = pair[0].traffic.chunks
        running = [agent.submit(vector[:elements], op) for agent in pair]
        for future in running:
            factor = 2 if op == "sum" else 1
            np.testing.assert_array_equal(future.result(WITHIN), factor * vector[:elements])
        assert pair[0].traffic.chunks - before == 1


@pytest.mark.skipif(not fastpath.compiled(), reason="needs a C compiler")
@pytest.mark.parametrize("elements", [1000, 64 * LANES])
def test_a_result_in_place_is_in_the_tensors_own_memory(pair: list[Agent], elements: int):
    chance = np.random.default_rng(elements)
    given = chance.standard_normal((2, elements), np.float32)
    tensors = [torch.from_numpy(mine.copy()) for mine in given]
    expected = [
        future.result(WITHIN)
        for future in [a.submit(t) for a, t in zip(pair, tensors, strict=True)]
    ]
    running = [a.submit(t, in_place=True) for a, t in zip(pair, tensors, strict=True)]
    for future, tensor, mean in zip(running, tensors, expected, strict=True):
        found = future.result(WITHIN)
        assert torch.equal(found, mean)
        if elements % LANES == 0:
            assert found.data_ptr() == tensor.data_ptr()


@pytest.mark.parametrize(
    ("calls", "why"),
    [
        ([(np.float32, "mean"), (np.float32, "sum")], "the sum of float32"),
        ([(np.int32, "sum"), (np.int64, "sum")], "the sum of int64"),
        ([(np.float32, "sum"), (np.int32, "sum")], "the sum of int32"),
    ],
)
def test_workers_that_call_for_different_things_are_all_told(tor: Rack, calls, why: str):
    with tor.workers(2) as agents:
        running = [
            agent.submit(np.ones(7, dtype), op)
            for agent, (dtype, op) in zip(agents, calls, strict=True)
        ]
        errors = [problem(future) for future in running]
        assert {type(error) for error in errors} == {WorkersDisagree}
        assert why in str(errors[1])


def test_an_operation_that_there_is_not_is_refused(pair: list[Agent]):
    with pytest.raises(UsageError, match="op 'product': it has to be one of sum, mean, max, min"):
        pair[0].submit(np.ones(3, np.float32), "product")


def test_all_reduces_in_flight_are_served_in_order(pair: list[Agent]):
    sizes = [1, 5000, 0, 64, 3, 20_000, 129] * 3
    running = [
        [agent.submit(np.full(size, number, np.float32)) for agent in pair]
        for number, size in enumerate(sizes)
    ]
    for number, (size, futures) in enumerate(zip(sizes, running, strict=True)):
        for future in futures:
            np.testing.assert_allclose(future.result(WITHIN), np.full(size, number), rtol=1e-6)


@pytest.mark.parametrize("sizes", [(100, 100, 101), (10, 50_000, 10), (0, 1, 0), (64, 65, 6400)])
def test_workers_that_disagree_about_the_size_are_all_told(tor: Rack, sizes: tuple[int, ...]):
    with tor.workers(3) as agents:
        first = [
            agent.submit(np.ones(n, np.float32)) for agent, n in zip(agents, sizes, strict=True)
        ]
        for size, future in zip(sizes, first, strict=True):
            error = problem(future)
            assert isinstance(error, WorkersDisagree)
            assert str(error) == (
                f"this worker's all-reduce has {size} elements, others have between {min(sizes)} "
                f"and {max(sizes)}"
            )
        for agent in agents:  # the workers' calls differ, so nothing may be summed any more
            assert isinstance(problem(agent.submit(np.ones(5, np.float32))), WorkersDisagree)


def test_two_runs_give_the_same_bits_and_another_order_of_workers_as_well(tor: Rack):
    vectors = random_vectors(3, 3, 10_000)
    results = set()
    for order in ([0, 1, 2], [0, 1, 2], [2, 0, 1]):
        with tor.workers(3) as agents:
            found = means(agents, *(vectors[rank] for rank in order))
            results |= {mean.tobytes() for mean in found}
    assert len(results) == 1


def test_losses_repetitions_and_overtaking_on_the_way_change_nothing(tor: Rack):
    vectors = [random_vectors(number, 3, 15_000) for number in (4, 5)]
    with tor.workers(3) as agents:
        wanted = [means(agents, *each)[0].tobytes() for each in vectors]
    faults = Faults(drop=0.05, duplicate=0.05, reorder=0.05)
    with contextlib.ExitStack() as stack:
        links = stack.enter_context(tor.cables(3))
        wiring = stack.enter_context(faulty(links, 1, up=faults, down=faults))
        job = stack.enter_context(tor.job(3, slots=64))
        agents = [
            stack.enter_context(tor.join(job, rank, link)) for rank, link in enumerate(wiring.links)
        ]
        for each, mean in zip(vectors, wanted, strict=True):
            assert [found.tobytes() for found in means(agents, *each)] == [mean] * 3
        for cable, agent in enumerate(agents):
            for direction in (UP, DOWN):
                counts = wiring.counts(cable, direction)
                assert min(counts.dropped, counts.duplicated, counts.reordered) > 10
            traffic = agent.traffic
            assert traffic.retransmissions > 10
            # An exchange that a new term has interrupted adds to the sent and completed chunks.
            assert traffic.packets_sent >= traffic.chunks + traffic.retransmissions
        counters = tor.show(job).counters
        assert counters.completed >= agents[0].traffic.chunks
        assert counters.answered > 0
