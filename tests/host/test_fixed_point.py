"""The int32 quantizer: it keeps the bound in its docstring, and never leaves int32."""

from fractions import Fraction
from math import frexp

import numpy as np
import pytest
from gradients import LARGEST, SIGNALLING_NAN, SMALLEST, gradients, seeds
from hypothesis import example, given
from hypothesis import strategies as st

from innet.host.limbs import overflow_flags
from innet.host.quantizers.fixed_point import (
    NOT_FINITE,
    ZERO_BLOCK,
    block_exponents,
    blocks,
    clamped,
    dequantize,
    flags,
    quantize,
    step_exponents,
)
from innet.wire.layout import Flag

INT32 = np.iinfo(np.int32)


def agreed(gradient: np.ndarray, lanes: int) -> np.ndarray:
    return np.max([block_exponents(blocks(worker, lanes)) for worker in gradient], axis=0)


def all_reduce(gradient: np.ndarray, lanes: int) -> np.ndarray:
    """Return the workers' result: quantized, summed exactly as integers, dequantized."""
    workers, elements = gradient.shape
    exponents = agreed(gradient, lanes)
    sums = sum_of(gradient, exponents, lanes, workers)
    counts = np.full((len(sums), 1), workers, np.uint16)
    means = dequantize(sums, exponents, workers, counts)
    assert means.dtype == np.float32
    assert means.shape == (-(-elements // lanes), lanes)
    return means.reshape(-1)[:elements]


def sum_of(gradient: np.ndarray, exponents: np.ndarray, lanes: int, workers: int) -> np.ndarray:
    """Return the sum of the integers of some of the `workers`, which cannot overflow."""
    integers = []
    for each in gradient:
        cut = blocks(each, lanes)
        part = quantize(cut, block_exponents(cut), exponents, workers)
        assert part.dtype == np.int32
        assert not overflow_flags(part, workers).any()
        integers.append(part)
    sums = np.sum(integers, axis=0, dtype=np.int64)
    assert np.all((sums >= INT32.min) & (sums <= INT32.max))
    return sums.astype(np.int32)


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


@pytest.mark.parametrize("workers", [128, 129, 255, 256, 257, 512, 1024, 4096])
def test_no_sum_overflows_where_every_worker_has_the_largest_number(workers: int):
    below = np.nextafter(np.float32(1), np.float32(0))
    rows = np.array([[below, -below], [LARGEST, -LARGEST]], np.float32)
    own = block_exponents(rows)
    for agreed_on in (own, own - 1):  # a worker that others lack when they agree clamps its values
        integers = quantize(rows, own, agreed_on, workers).astype(np.int64)
        clamped_by = (rows - clamped(rows, own, agreed_on, workers)).astype(np.float64)
        steps = np.ldexp(1.0, step_exponents(agreed_on, workers))[:, None]
        assert np.all(np.abs(workers * integers) <= INT32.max)
        assert np.all(np.abs(clamped_by - integers * steps) <= steps / 2)


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


@given(gradients(), st.sampled_from([3, 8]))
def test_the_sum_is_as_many_times_the_mean_as_there_are_workers(gradient, lanes: int):
    workers, elements = gradient.shape
    exponents = agreed(gradient, lanes)
    sums = sum_of(gradient, exponents, lanes, workers)
    whole = dequantize(sums, exponents, workers).reshape(-1)[:elements]
    steps = step_exponents(exponents, workers)
    exact = np.ldexp(sums.astype(np.float64), steps[:, None]).reshape(-1)[:elements]
    with np.errstate(over="ignore"):
        assert whole.tobytes() == exact.astype(np.float32).tobytes()


def some_of(gradient: np.ndarray, seed: int) -> np.ndarray:
    """Return a random mask of the workers in a result, (workers,) bool, at least one of them set."""
    rng = np.random.default_rng(seed)
    members = rng.integers(2, size=len(gradient)) == 1
    members[rng.integers(len(gradient))] = True
    return members


@given(gradients(), st.sampled_from([3, 8]), seeds)
def test_with_a_quorum_the_mean_is_of_what_is_left_after_clamping(gradient, lanes: int, seed: int):
    """Some workers agree on the exponents, and the integers of others are summed."""
    workers, elements = gradient.shape
    exponents = agreed(gradient[some_of(gradient, seed)], lanes)
    members = some_of(gradient, seed + 1)
    sums = sum_of(gradient[members], exponents, lanes, workers)
    counts = np.full((len(sums), 1), members.sum(), np.uint16)
    got = dequantize(sums, exponents, workers, counts).reshape(-1)
    left = []
    for values in gradient[members]:
        cut = blocks(values, lanes)
        rest = clamped(cut, block_exponents(cut), exponents, workers)
        assert ((rest == 0) | (np.sign(rest) == np.sign(cut))).all()
        left.append((cut.astype(np.float64) - rest).reshape(-1))
    two = Fraction(2)
    for column, whole, mean, exponent in zip(
        np.transpose(left)[:elements],
        gradient[members].T,
        got,
        np.repeat(exponents, lanes),
        strict=False,
    ):
        step = two ** int(step_exponents(np.array([exponent], np.int32), workers)[0])
        exact = sum(Fraction(value) for value in column) / len(column)
        # To the usual bound comes that the clamped part is itself rounded to float32.
        rounded = sum(abs(Fraction(float(value))) for value in whole) / len(column) / 2**24
        bound = step / 2 + (abs(exact) + step / 2) / 2**23 + rounded + two**-149
        assert abs(Fraction(float(mean)) - exact) <= bound


def test_who_is_covered_by_what_was_agreed_on_is_not_clamped():
    rows = np.array([[1, -3], [0, 0.5], [LARGEST / 8, -LARGEST / 8]], np.float32)
    own = block_exponents(rows)
    assert not clamped(rows, own, own, 4).any()
    assert not clamped(rows, own, own + 3, 4).any()
    assert clamped(rows, own, own - 1, 1)[0].tolist() == [0, pytest.approx(-1)]


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_who_is_not_finite_says_so_where_the_others_have_not_noticed(value: float):
    rows = np.array([[1, value], [2, 3], [value, 0]], np.float32)
    own = block_exponents(rows)
    agreed_on = np.array([1, 2, NOT_FINITE], np.int32)
    raised = flags(own, agreed_on)
    assert raised.tolist() == [Flag.NOT_FINITE, 0, 0]
    integers = quantize(rows, own, agreed_on, 2)
    assert integers[0].tolist() == [0, 0]
    reduced = dequantize(integers, agreed_on, 2, np.full((3, 1), 2, np.uint16), raised)
    assert np.isnan(reduced).all(axis=1).tolist() == [True, False, True]
    assert reduced[1].tolist() == [1, 1.5]


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
