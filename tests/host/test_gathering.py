"""Small vectors: every worker receives the values of all, and sums them exactly."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.host.agreement import Call
from innet.host.gathering import Gathering, float_sums, integer_sums
from innet.host.integers import Reduction
from innet.host.job import WorkerInfo

FLOAT = np.dtype(np.float32)


def layouts(workers: int, lanes: int, size: int, dtype: np.dtype) -> list[Gathering]:
    """Return the layout of each worker."""
    call = Call(size, dtype.name, "sum")
    return [
        Gathering(call, WorkerInfo(1, rank, workers, workers, lanes), dtype)
        for rank in range(workers)
    ]


def switched(
    vectors: np.ndarray, lanes: int, absent: dict[int, int]
) -> tuple[Gathering, Reduction]:
    """Return the switch's maximum of (workers, size) vectors; `absent` gives a chunk's missing worker."""
    made = layouts(*vectors.shape[:1], lanes, vectors.shape[1], vectors.dtype)
    sent = np.stack(
        [each.contribution(each.words(mine)) for each, mine in zip(made, vectors, strict=True)]
    )
    members = np.full(sent.shape[1], (1 << len(vectors)) - 1, np.uint64)
    for chunk, rank in absent.items():
        members[chunk] ^= 1 << rank
        sent[rank, chunk] = np.iinfo(np.int32).min
    flags, counts = np.zeros((2, sent.shape[1]), np.uint16)
    return made[0], Reduction(sent.max(axis=0), flags, counts.astype(np.uint16), members)


@st.composite
def vectors(draw, dtype: str) -> tuple[np.ndarray, int]:
    """Draw (workers, size) numbers of any bits that are gathered, and the lanes of a packet."""
    workers, lanes = draw(st.integers(1, 32)), draw(st.sampled_from([64, 128, 256]))
    kind = np.dtype(dtype)
    most = 4 * ((lanes - 4) // (workers * (kind.itemsize // 4)))
    shape = workers, draw(st.integers(0, most))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    return rng.integers(0, 256, (*shape, kind.itemsize), np.uint8).view(kind)[..., 0], lanes


@given(vectors("float32") | vectors("int32") | vectors("int64"))
def test_every_bit_of_every_value_arrives(drawn):
    values, lanes = drawn
    layout, result = switched(values, lanes, {})
    assert layout.fits
    found, present = layout.gathered(result)
    assert found.tobytes() == values.tobytes()
    assert present.all()
    layout.call.check(result.lanes[0])


def test_minus_zero_is_not_taken_for_an_absent_worker():
    layout, result = switched(np.full((3, 2), -0.0, np.float32), 64, {})
    assert np.signbit(layout.gathered(result)[0]).all()


@given(vectors("float32"), st.randoms(use_true_random=False))
def test_a_sum_of_floats_is_within_its_bound_and_the_order_of_ranks_does_not_matter(drawn, random):
    values, _ = drawn
    values = np.where(abs(values) < 2.0**122, values, np.float32(1))  # no sum of 32 overflows
    present, order = np.ones(values.shape, bool), list(range(len(values)))
    random.shuffle(order)
    total = float_sums(values, present, mean=False)
    assert total.tobytes() == float_sums(values[order], present, mean=False).tobytes()
    for column, found in zip(values.T.tolist(), total.tolist(), strict=True):
        exact = sum(map(Fraction, column))
        double = sum(abs(Fraction(each)) for each in column) * len(column) / 2**53
        assert abs(found - exact) <= double + (abs(exact) + double) / 2**24 + Fraction(1, 2**150)


@pytest.mark.parametrize("mean", [True, False])
def test_an_absent_worker_does_not_count(mean: bool):
    values = np.arange(3 * 40, dtype=np.float32).reshape(3, 40)
    layout, result = switched(values, 64, {1: 2})  # 20 elements in a chunk
    found, present = layout.gathered(result)
    reduced = float_sums(found, present, mean=mean)
    expected = np.concatenate([values[:, :20].sum(axis=0), values[:2, 20:].sum(axis=0)])
    assert reduced.tolist() == (expected / np.repeat([3, 2], 20) if mean else expected).tolist()


def test_integers_are_summed_without_a_limit():
    values = np.full((32, 1), np.iinfo(np.int64).max)
    assert integer_sums(values, np.ones((32, 1), bool)).tolist() == [32 * (2**63 - 1)]


def test_nan_and_infinity_concern_their_own_element():
    values = np.array([[1, np.inf, np.inf, np.nan], [2, 3, -np.inf, 0]], np.float32)
    found = float_sums(values, np.ones(values.shape, bool), mean=False)
    np.testing.assert_array_equal(found, np.array([3, np.inf, np.nan, np.nan], np.float32))


@pytest.mark.parametrize(("workers", "most"), [(1, 240), (2, 120), (8, 28), (32, 4)])
def test_a_vector_is_gathered_if_four_packets_are_enough(workers: int, most: int):
    assert layouts(workers, 64, most, FLOAT)[0].fits
    assert not layouts(workers, 64, most + 1, FLOAT)[0].fits
