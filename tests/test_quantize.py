"""The quantizer keeps the bound that its docstring states, and never leaves int32."""

from fractions import Fraction
from math import frexp

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from innet.host.quantize import (
    NOT_FINITE,
    ZERO_BLOCK,
    block_exponents,
    blocks,
    dequantize,
    quantize,
)

LARGEST = np.finfo(np.float32).max
SMALLEST = np.finfo(np.float32).smallest_subnormal
INT32 = np.iinfo(np.int32)
SIGNALLING_NAN = np.array([0x7F800001], np.uint32).view(np.float32)[0]


def between(low: int, high: int) -> st.SearchStrategy[list[int]]:
    """The exponents of a smallest and a largest magnitude."""
    return st.tuples(st.integers(low, high), st.integers(low, high)).map(sorted)


# All of float32, and its two ends by themselves: denormal numbers, and close to overflow.
magnitudes = between(-149, 128) | between(-149, -95) | between(120, 128)
seeds = st.integers(0, 2**32 - 1)
extremes = st.sampled_from([LARGEST, -LARGEST, SMALLEST, -SMALLEST, np.float32(-0.0)])


@st.composite
def gradients(draw) -> np.ndarray:
    """(workers, elements) float32: log-uniform magnitudes, with extreme values strewn in."""
    workers, elements = draw(st.integers(1, 32)), draw(st.integers(0, 20))
    low, high = draw(magnitudes)
    rng = np.random.default_rng(draw(seeds))
    exponents = rng.integers(low, high, (workers, elements), endpoint=True)
    values = np.ldexp(rng.uniform(-1, 1, (workers, elements)), exponents)
    values = values.clip(-float(LARGEST), float(LARGEST)).astype(np.float32)
    for extreme in draw(st.lists(extremes, max_size=3)) if elements else []:
        values[rng.integers(workers), rng.integers(elements)] = extreme
    return values


def agreed(gradient: np.ndarray, lanes: int) -> np.ndarray:
    return np.max([block_exponents(blocks(worker, lanes)) for worker in gradient], axis=0)


def all_reduce(gradient: np.ndarray, lanes: int) -> np.ndarray:
    """What every worker gets: quantized, summed exactly as integers, dequantized."""
    workers, elements = gradient.shape
    exponents = agreed(gradient, lanes)
    integers = [quantize(blocks(worker, lanes), exponents, workers) for worker in gradient]
    assert all(part.dtype == np.int32 for part in integers)
    sums = np.sum(integers, axis=0, dtype=np.int64)
    assert np.all((sums >= INT32.min) & (sums <= INT32.max))
    means = dequantize(sums.astype(np.int32), exponents, workers)
    assert means.dtype == np.float32
    assert means.shape == (-(-elements // lanes), lanes)
    return means.reshape(-1)[:elements]


def assert_within_stated_bound(gradient: np.ndarray, lanes: int) -> None:
    workers, elements = gradient.shape
    means = all_reduce(gradient, lanes)
    two = Fraction(2)
    for start in range(0, elements, lanes):
        block = gradient[:, start : start + lanes]
        _, exponent = frexp(float(np.abs(block).max()))  # 2**(e - 1) <= M < 2**e
        guard_bits = next(g for g in range(6) if 2**g >= workers)
        step = max(two ** (exponent + guard_bits - 31), two**-126)
        for values, got in zip(block.T, means[start:], strict=False):
            mean = sum(Fraction(float(value)) for value in values) / workers
            bound = step / 2 + (abs(mean) + step / 2) / 2**23 + two**-150
            assert abs(Fraction(float(got)) - mean) <= bound, (values, got)


@given(gradients(), st.sampled_from([1, 3, 8]))
@example(np.full((32, 4), LARGEST), 4)
@example(np.full((31, 4), -LARGEST), 4)
@example(np.full((3, 5), SMALLEST), 4)
@example(np.zeros((7, 0), np.float32), 4)
def test_mean_is_within_the_stated_bound(gradient: np.ndarray, lanes: int):
    assert_within_stated_bound(gradient, lanes)


@pytest.mark.parametrize("workers", range(2, 33))
def test_bound_holds_where_every_worker_rounds_half_a_step_upwards(workers: int):
    step = 2.0 ** (1 + (workers - 1).bit_length() - 31)
    up, down = np.float32(1.5 * step), np.float32(-0.5 * step)  # to 2 and to 0 steps
    gradient = np.where(np.arange(workers) <= np.arange(workers)[:, None], up, down)
    assert_within_stated_bound(np.insert(gradient, 0, 1, axis=1), workers + 1)


@given(gradients(), st.sampled_from([3, 8]), seeds)
def test_same_values_give_the_same_bits_in_any_order_of_workers(gradient, lanes: int, seed: int):
    once = all_reduce(gradient, lanes)
    np.random.default_rng(seed).shuffle(gradient)
    assert all_reduce(gradient, lanes).tobytes() == once.tobytes()


@given(gradients(), st.sampled_from([3, 8]), seeds)
def test_blocks_that_are_not_finite_are_nan_and_leave_others_alone(gradient, lanes: int, seed: int):
    workers, elements = gradient.shape
    rng = np.random.default_rng(seed)
    poisoned = gradient.copy()
    lost = np.zeros(elements, bool)
    for poison in (np.nan, np.inf, -np.inf, SIGNALLING_NAN) if elements else ():
        element = rng.integers(elements)
        poisoned[rng.integers(workers), element] = poison
        lost |= np.arange(elements) // lanes == element // lanes
    gradient[:, lost] = 0
    means = all_reduce(poisoned, lanes)
    assert np.isnan(means[lost]).all()
    assert means[~lost].tobytes() == all_reduce(gradient, lanes)[~lost].tobytes()


@given(gradients(), st.sampled_from([3, 8]), seeds)
def test_blocks_of_zeros_are_exactly_zero(gradient, lanes: int, seed: int):
    zeros = np.random.default_rng(seed).integers(2, size=gradient.shape[1]) == 0
    zeros = zeros[np.arange(zeros.size) // lanes * lanes]
    gradient[:, zeros] *= 0
    assert not all_reduce(gradient, lanes)[zeros].any()


@given(gradients())
def test_exponent_is_the_next_power_of_two_above_the_largest(gradient: np.ndarray):
    rows = blocks(gradient.reshape(-1), 4)
    rows = rows[rows.any(axis=1)]
    largest = np.abs(rows).max(axis=1, initial=0)
    for exponent, value in zip(block_exponents(rows), largest, strict=True):
        assert (
            Fraction(2) ** int(exponent - 1)
            <= Fraction(float(value))
            < Fraction(2) ** int(exponent)
        )


@given(gradients(), st.sampled_from([3, 8]))
def test_agreed_exponents_are_those_of_all_workers_values_together(gradient, lanes: int):
    if gradient.size:
        gradient[0, 0] = np.nan
        gradient[:, -1] = 0
    together = np.concatenate([blocks(worker, lanes) for worker in gradient], axis=1)
    assert agreed(gradient, lanes).tolist() == block_exponents(together).tolist()


def test_special_exponents_lie_outside_those_of_numbers():
    rows = np.array([[0, -0.0], [SMALLEST, 0], [0, -LARGEST], [1, np.inf], [np.nan, 0]], np.float32)
    assert block_exponents(rows).tolist() == [ZERO_BLOCK, -148, 128, NOT_FINITE, NOT_FINITE]
    assert ZERO_BLOCK < -148
    assert NOT_FINITE > 128


@given(st.integers(0, 50), st.integers(1, 9))
def test_blocks_hold_the_values_in_order_then_zeros(elements: int, lanes: int):
    values = np.arange(1, elements + 1, dtype=np.float32)
    cut = blocks(values, lanes)
    assert cut.shape == (-(-elements // lanes), lanes)
    assert cut.dtype == np.float32
    np.testing.assert_array_equal(cut.reshape(-1)[:elements], values)
    assert not cut.reshape(-1)[elements:].any()
    assert np.shares_memory(cut, values) == (elements > 0 and elements % lanes == 0)
