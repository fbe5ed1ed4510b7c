"""Codecs: every one keeps the bound in its docstring."""

from fractions import Fraction

import numpy as np
import pytest
from gradients import LARGEST, SIGNALLING_NAN, SMALLEST, gradients
from hypothesis import example, given
from hypothesis import strategies as st

from innet.errors import UsageError
from innet.training.codecs.dynamic_tree import value_of
from innet.training.codecs.names import codec
from innet.training.codecs.residual import WithResidual

NAMES = ("truncation", "max8", "tree8", "strom:0.01")
TINY = Fraction(2) ** -149
SPECIAL = (np.nan, np.inf, -np.inf, SIGNALLING_NAN)

vectors = gradients().map(lambda gradient: gradient[0])


def exact(value: np.float32) -> Fraction:
    return Fraction(float(value))


def decoded(name: str, values: np.ndarray) -> np.ndarray:
    before = values.tobytes()
    encoded = codec(name).encode(values)
    back = codec(name).decode(encoded)
    assert values.tobytes() == before
    assert encoded.codes.ndim == 1
    assert encoded.codes.flags.c_contiguous
    assert (back.dtype, back.shape) == (np.float32, values.shape)
    return back


@given(vectors)
@example(np.array([LARGEST, -LARGEST, SMALLEST, -SMALLEST, -0.0], np.float32))
def test_truncation_keeps_seven_bits_and_never_grows(values: np.ndarray):
    for value, got in zip(
        map(exact, values), map(exact, decoded("truncation", values)), strict=True
    ):
        assert abs(got) <= abs(value)
        assert value * got >= 0
        assert abs(value - got) <= max(abs(value) / 2**7, Fraction(2) ** -133)


@given(vectors)
@example(np.array([LARGEST, -LARGEST, SMALLEST], np.float32))
@example(np.array([SMALLEST, 0], np.float32))
def test_max_scaled_is_off_by_half_a_level(values: np.ndarray):
    scale = max(map(abs, map(exact, values)), default=Fraction(0))
    for value, got in zip(map(exact, values), map(exact, decoded("max8", values)), strict=True):
        bound = max(scale, Fraction(2) ** -100) / 254 + abs(value) / 2**22 + TINY
        assert abs(value - got) <= bound


@given(vectors)
@example(np.array([LARGEST, -LARGEST, SMALLEST], np.float32))
@example(np.float32([1, 0.1, 0.01, 1e-3, 1e-4, 1e-5, 1e-6, 1e-7, 1e-8, -1]))
def test_dynamic_tree_is_off_by_half_a_cell_of_the_decade(values: np.ndarray):
    scale = max(map(abs, map(exact, values)), default=Fraction(0))
    scale = max(scale, Fraction(2) ** -100)
    for value, got in zip(map(exact, values), map(exact, decoded("tree8", values)), strict=True):
        share = abs(value) / scale
        zeros = next((z for z in range(7) if share >= Fraction(1, 10 ** (z + 1))), None)
        cell = Fraction(1, 10**7)
        if zeros is not None:
            cell = Fraction(45, 100) / 10**zeros / 2 ** (6 - zeros)
        assert abs(value - got) <= cell * scale + scale / 2**22 + TINY


def test_dynamic_tree_has_256_values():
    values = sorted(value_of(code) for code in range(256))
    assert len(set(values)) == 256
    assert (values[-1], value_of(0)) == (1.0, 0.0)
    # Sign, one zero, the one, and 5 bits. The value is the middle of the last cell.
    assert value_of(0b1_01_11111) == pytest.approx(-(0.1 + 0.9 * 31.5 / 32) / 10)
    assert value_of(0b0_0000001) == pytest.approx(0.55e-6)
    assert -values[0] == values[-2]


@given(vectors, st.sampled_from([0.01, 1.0, 1e20]))
def test_threshold_sends_the_sign_of_what_is_beyond_it(values: np.ndarray, tau: float):
    encoded = codec(f"strom:{tau}").encode(values)
    beyond = np.abs(values) > np.float32(tau)
    assert encoded.codes.size == beyond.sum()
    assert encoded.nbytes == 4 * beyond.sum() + 4
    expected = np.where(beyond, np.sign(values) * np.float32(tau), 0)
    np.testing.assert_array_equal(decoded(f"strom:{tau}", values), expected)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("poison", SPECIAL)
def test_what_is_not_finite_is_not_finite_again(name: str, poison: float):
    values = np.array([1, poison, -2, 0], np.float32)
    back = decoded(name, values)
    assert not np.isfinite(back[1])
    if name == "truncation":
        assert back[[0, 2, 3]].tolist() == [1, -2, 0]
        assert np.isnan(back[1]) == np.isnan(poison)


@pytest.mark.parametrize(("name", "each"), [("truncation", 2), ("max8", 1), ("tree8", 1)])
def test_bytes_per_element(name: str, each: int):
    values = np.random.default_rng(1).standard_normal(1000, np.float32)
    assert codec(name).encode(values).nbytes == 1000 * each + 4


@pytest.mark.parametrize("name", NAMES)
def test_with_a_residual_nothing_is_lost_for_long(name: str):
    """All sent values differ from all given values by the last residual only."""
    keeping, rng = WithResidual(codec(name)), np.random.default_rng(2)
    sent, given_ones = np.zeros(50), np.zeros(50)
    for _ in range(300):
        values = (0.005 * rng.standard_normal(50)).astype(np.float32)
        sent += keeping.decode(keeping.encode("w", values))
        given_ones += values
    assert abs(sent - given_ones).max() <= 0.011
    assert abs(given_ones).max() > 0.1


def test_names_that_make_no_sense_are_refused():
    with pytest.raises(
        UsageError, match="codec 'zip': it has to be one of truncation, max8, tree8"
    ):
        codec("zip")
    with pytest.raises(UsageError, match="positive threshold"):
        codec("strom")
