"""Sums that need more than 32 bits: the flags that lead to them, and the limbs that make them."""

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from innet.host.limbs import HALVES, QUARTERS, THIRDS, Limbs, int64_limbs, overflow_flags
from innet.wire.layout import MOST_WORKERS, Flag

INT32, INT64 = np.iinfo(np.int32), np.iinfo(np.int64)
workers_counts = st.integers(1, 32)


def integers(info: np.iinfo) -> st.SearchStrategy[int]:
    near = st.sampled_from([0, info.min, info.max]).flatmap(
        lambda middle: st.integers(max(info.min, middle - 3), min(info.max, middle + 3))
    )
    return st.integers(info.min, info.max) | near


@st.composite
def vectors(draw, info: np.iinfo) -> np.ndarray:
    """Draw (workers, elements) int64 within a dtype's range."""
    size = draw(st.integers(0, 12))
    rows = st.lists(integers(info), min_size=size, max_size=size)
    drawn = draw(st.lists(rows, min_size=1, max_size=32))
    return np.array(drawn, np.int64).reshape(len(drawn), size)


def summed(values: np.ndarray, limbs: Limbs, lanes: int) -> tuple[list[int], list[bool]]:
    """Return the joined sum of all workers' limbs, which never leave 32 bits."""
    parts = [limbs.split(each, lanes) for each in values]
    assert all(part.dtype == np.int32 for part in parts)
    assert not any(overflow_flags(part, 32).any() for part in parts)
    total = np.sum(parts, axis=0, dtype=np.int64)
    assert not total.size or INT32.min <= total.min() <= total.max() <= INT32.max
    sums, lost = limbs.join(total.astype(np.int32), values.shape[1])
    return sums.tolist(), lost.tolist()


def exact(values: np.ndarray) -> list[int]:
    return [sum(column) for column in values.T.tolist()]


@given(vectors(INT32), st.sampled_from([2, 3, 8, 64]))
@example(np.full((32, 3), INT32.min), 4)
@example(np.full((32, 3), INT32.max), 4)
def test_halves_give_the_exact_sums_of_int32(values: np.ndarray, lanes: int):
    assert summed(values, HALVES, lanes) == (exact(values), [False] * values.shape[1])


@given(vectors(INT64), st.sampled_from([4, 5, 8, 64]))
@example(np.full((32, 3), INT64.min), 4)
@example(np.full((32, 3), INT64.max), 4)
@example(np.array([[INT64.min], [-1]]), 4)
@example(np.array([[INT64.max], [1]]), 4)
@example(np.array([[INT64.min], [INT64.max]]), 4)
@pytest.mark.parametrize("limbs", [THIRDS, QUARTERS])
def test_thirds_and_quarters_give_the_exact_sums_of_int64_or_tell_what_does_not_fit(
    limbs: Limbs, values: np.ndarray, lanes: int
):
    sums, lost = summed(values, limbs, lanes)
    for got, wrong, right in zip(sums, lost, exact(values), strict=True):
        assert wrong == (not INT64.min <= right <= INT64.max)
        assert wrong or got == right


@pytest.mark.parametrize("workers", [1, 2, 511, 512, 513, 1024, MOST_WORKERS])
@pytest.mark.parametrize("value", [-1, 1 - INT64.max // MOST_WORKERS, INT64.max // MOST_WORKERS])
def test_so_many_workers_have_exact_sums_of_int64(workers: int, value: int):
    limbs, values = int64_limbs(workers), np.array([value, -value, 0])
    total = workers * limbs.split(values, 4).astype(np.int64)
    assert INT32.min <= total.min() <= total.max() <= INT32.max
    sums, lost = limbs.join(total.astype(np.int32), len(values))
    assert sums.tolist() == [workers * each for each in values.tolist()]
    assert not lost.any()


def test_the_largest_job_can_add_halves():
    assert HALVES.most_workers >= MOST_WORKERS


@given(st.integers(0, 100), st.sampled_from([HALVES, THIRDS, QUARTERS]), st.integers(4, 16))
def test_all_limbs_of_a_value_travel_in_one_chunk(size: int, limbs: Limbs, lanes: int):
    values = -1 - np.arange(size, dtype=np.int64)  # all of their limbs are nonzero
    chunks = limbs.split(values, lanes)
    each = lanes // limbs.count
    assert chunks.shape == (-(-size // each), lanes)
    for number, chunk in enumerate(chunks):
        alone, _ = limbs.join(chunk[None], each)
        mine = values[number * each : (number + 1) * each]
        assert alone.tolist() == mine.tolist() + [0] * (each - len(mine))


@given(workers_counts, vectors(INT32))
def test_a_sum_of_chunks_without_the_flag_never_overflows(workers: int, values: np.ndarray):
    chunks = np.resize(values, (workers, 1, max(1, values.shape[1]))).astype(np.int32)
    flags = np.array([overflow_flags(chunk, workers) for chunk in chunks])
    sums = chunks.sum(axis=0, dtype=np.int64)
    assert flags.any() or INT32.min <= sums.min() <= sums.max() <= INT32.max
    large = np.abs(chunks.astype(np.int64)).max(axis=2) * workers >= 2**31
    assert (flags == np.where(large, Flag.OVERFLOW, 0)).all()


@pytest.mark.parametrize("workers", range(1, 33))
def test_the_flag_begins_with_the_first_magnitude_that_may_overflow(workers: int):
    bound = next(n for n in range(2**31 // workers - 1, 2**31 + 1) if n * workers >= 2**31)
    flagged = [Flag.OVERFLOW] if bound <= INT32.max else []
    assert overflow_flags(np.array([[0, bound - 1]], np.int32), workers) == [0]
    assert overflow_flags(np.array([[0, 1 - bound]], np.int32), workers) == [0]
    assert overflow_flags(np.array([[1, -bound]], np.int32), workers) == [Flag.OVERFLOW]
    if flagged:
        assert overflow_flags(np.array([[bound, 1]], np.int32), workers) == flagged
