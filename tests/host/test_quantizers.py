"""Quantizers: each keeps the bound in its docstring, and no sum of its integers overflows."""

from fractions import Fraction

import numpy as np
import pytest
from gradients import LARGEST, SMALLEST, gradients, seeds
from hypothesis import example, given
from hypothesis import strategies as st
from quantizing import INT32, LANES, all_reduce, quantizer_names, rows_of, usable

from innet.errors import UsageError
from innet.host import fastpath
from innet.host.quantizers.narrow import Narrow
from innet.host.quantizers.packing import Packing
from innet.host.quantizers.residuals import Residuals
from innet.host.quantizers.rounding import Stochastic, nearest, random_bits
from innet.host.quantizers.spec import FEWEST_LEVELS, QuantizerSpec, most_workers

SPECIAL = (np.nan, np.inf, -np.inf)

narrow = st.sampled_from(["int16", "int8"])


def step_of(row: np.ndarray, spec: QuantizerSpec, workers: int) -> Fraction:
    """Return the largest step that a narrow quantizer may take for a row, (workers, up to LANES)."""
    limit = (2 ** (16 if spec.name == "int16" else 8) - 1) // (2 * workers)
    return max(Fraction(float(np.abs(row).max())) / limit, Fraction(2) ** -126)


@given(gradients(), narrow, st.booleans())
@example(np.full((18, 4), LARGEST), "int8", False)
@example(np.full((32, 4), -LARGEST), "int16", False)
@example(np.full((3, 5), SMALLEST), "int8", False)
@example(np.array([[LARGEST, 1, -1], [-LARGEST, 1, 1]], np.float32), "int8", True)
@example(np.zeros((7, 0), np.float32), "int16", False)
def test_means_are_within_the_stated_bound(gradient: np.ndarray, name: str, at_random: bool):
    spec = QuantizerSpec(name, stochastic=at_random)
    gradient = gradient[: usable(spec, len(gradient))]
    workers, elements = gradient.shape
    got = all_reduce(gradient, spec)
    most = Fraction(1) if at_random else Fraction(1, 2)
    for start in range(0, elements, LANES):
        row = gradient[:, start : start + LANES]
        step = step_of(row, spec, workers)
        for values, value in zip(row.T, got[start:], strict=False):
            exact = [Fraction(float(each)) for each in values]
            mean, magnitude = sum(exact) / workers, sum(map(abs, exact)) / workers
            error = most * step + magnitude / 2**24
            bound = error + (abs(mean) + error) / 2**22 + Fraction(2) ** -149
            assert abs(Fraction(float(value)) - mean) <= bound, (values, value)


@given(gradients(), quantizer_names)
def test_the_sum_is_as_many_times_the_mean_as_there_are_workers(gradient: np.ndarray, text: str):
    spec = QuantizerSpec.read(text)
    gradient = gradient[: usable(spec, len(gradient))]
    means = all_reduce(gradient, spec).astype(np.float64) * len(gradient)
    sums = all_reduce(gradient, spec, mean=False)
    with np.errstate(over="ignore"):
        clipped = means.astype(np.float32)
    np.testing.assert_allclose(sums, clipped, rtol=2**-20, atol=64 * float(SMALLEST))


@given(gradients(), quantizer_names, seeds)
def test_what_is_not_finite_comes_back_as_nan_and_leaves_other_rows_alone(gradient, text, seed):
    spec = QuantizerSpec.read(text)
    gradient = gradient[: usable(spec, len(gradient))]
    workers, elements = gradient.shape
    rng = np.random.default_rng(seed)
    poisoned, lost = gradient.copy(), np.zeros(elements, bool)
    for poison in SPECIAL if elements else ():
        element = rng.integers(elements)
        poisoned[rng.integers(workers), element] = poison
        lost |= np.arange(elements) // LANES == element // LANES
    got = all_reduce(poisoned, spec)
    assert np.isnan(got[lost]).all()
    assert got[~lost].tobytes() == all_reduce(gradient, spec)[~lost].tobytes()


@given(gradients(), st.sampled_from(["int32", "int16", "int8", "strom:0.01"]), seeds)
def test_with_a_quorum_no_sum_overflows_and_hidden_nans_are_told(gradient, text: str, seed: int):
    """Some workers agree on the scales, and the integers of others are summed."""
    spec = QuantizerSpec.read(text)
    gradient = gradient[: usable(spec, len(gradient))]
    workers, elements = gradient.shape
    rng = np.random.default_rng(seed)
    agreeing, contributing = rng.integers(2, size=(2, workers)) == 1
    agreeing[rng.integers(workers)] = contributing[rng.integers(workers)] = True
    inside = all_reduce(gradient, spec, agreeing=agreeing, contributing=contributing)
    assert np.isfinite(inside).all()
    if elements:
        gradient[np.flatnonzero(contributing)[0], 0] = np.nan
        poisoned = all_reduce(gradient, spec, agreeing=agreeing, contributing=contributing)
        assert np.isnan(poisoned[0])


@given(gradients(), st.sampled_from(["int32", "int16", "int8"]), seeds)
def test_the_order_of_workers_does_not_matter(gradient: np.ndarray, text: str, seed: int):
    spec = QuantizerSpec.read(text)
    gradient = gradient[: usable(spec, len(gradient))]
    once = all_reduce(gradient, spec)
    np.random.default_rng(seed).shuffle(gradient)
    assert all_reduce(gradient, spec).tobytes() == once.tobytes()


# Packing.


@st.composite
def packings(draw) -> tuple[Packing, np.ndarray]:
    """Draw a packing, and integers of all workers, (workers, chunks, per_lane, lanes)."""
    bits, workers = draw(st.sampled_from([4, 8, 16])), draw(st.integers(1, 32))
    most = ((1 << bits) - 1) // (2 * workers)
    if not most:
        bits, most = 8, 255 // (2 * workers)
    packing = Packing(bits, draw(st.integers(1, most)), workers)
    rng = np.random.default_rng(draw(seeds))
    shape = workers, 2, packing.per_lane, 5
    integers = rng.integers(-packing.limit, packing.limit, shape, np.int32, endpoint=True)
    for chunk, sign in enumerate(draw(st.tuples(*[st.sampled_from([-1, 0, 1])] * 2))):
        if sign:  # the largest magnitudes, all of one sign
            integers[:, chunk] = sign * packing.limit
    return packing, integers


@given(packings(), seeds)
def test_one_addition_adds_all_sub_lanes_whoever_takes_part(drawn, seed: int):
    packing, integers = drawn
    takes_part = np.random.default_rng(seed).integers(2, size=len(integers)) == 1
    total = np.zeros((2, 5), np.int64)
    for each in integers[takes_part]:
        words = np.empty((2, 5), np.int32)
        packing.pack(each, words, np.empty_like(words))
        total += words
        assert ((total > INT32.min) & (total < INT32.max)).all()
    sums = np.empty((2, packing.per_lane, 5), np.int32)
    counts = np.full((2, 1), takes_part.sum(), np.uint16)
    packing.unpack(total.astype(np.int32), counts, sums)
    np.testing.assert_array_equal(sums, integers[takes_part].sum(axis=0))


def test_one_level_more_would_not_fit():
    for bits in (4, 8, 16):
        for workers in range(1, 8):
            limit = Packing.widest(bits, workers).limit
            with pytest.raises(UsageError, match=rf"does not fit {bits} bits"):
                Packing(bits, limit + 1, workers)


# Stochastic rounding.


def test_random_bits_depend_on_key_and_place_only():
    whole = random_bits(2**63 + 5, 0, 1000)
    parts = [random_bits(2**63 + 5, start, 100) for start in range(0, 1000, 100)]
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    assert random_bits(2**63 + 6, 0, 1000).tobytes() != whole.tobytes()
    assert random_bits(5, 0, 1000).tobytes() != whole.tobytes()
    assert whole[:4].tolist() == EXPECTED_BITS


# Results of lowbias32, computed with Python's integers.
def lowbias32(x: int) -> int:
    x ^= x >> 16
    x = x * 0x7FEB352D % 2**32
    x ^= x >> 15
    x = x * 0x846CA68B % 2**32
    return x ^ x >> 16


EXPECTED_BITS = [lowbias32(lowbias32(place ^ 5) ^ 2**31) for place in range(4)]


@pytest.mark.parametrize("value", [0.5, 0.25, -0.25, -1.75, 3.999, 1e-3, -1e-3, 100.3, 4000.7])
def test_stochastic_rounding_keeps_the_mean(value: float):
    """The mean stays within five standard deviations of a coin with that probability."""
    count = 200_000
    scaled = np.full(count, value, np.float32)
    exact = float(scaled[0])
    Stochastic.of(7, 0, 0)(scaled, 0)
    below = np.floor(exact)
    assert set(np.unique(scaled)) <= {below, below + 1}
    share = exact - below
    assert abs(scaled.mean(dtype=np.float64) - exact) <= 5 * (share * (1 - share) / count) ** 0.5


def test_workers_and_steps_round_independently():
    roundings = [Stochastic.of(0, rank, step) for rank in range(4) for step in range(4)]
    ups = []
    for rounding in roundings:
        halves = np.full(20_000, 0.5, np.float32)
        rounding(halves, 0)
        ups.append(halves - 0.5)
    correlations = np.corrcoef(ups) - np.eye(len(ups))
    assert abs(correlations).max() < 5 / 20_000**0.5


@given(st.floats(-(2.0**24), 2.0**24, width=32), seeds)
def test_stochastic_rounding_goes_to_a_neighbour_and_leaves_whole_numbers(value: float, key: int):
    scaled = np.array([value], np.float32)
    exact = Fraction(float(scaled[0]))
    Stochastic(key)(scaled, key)
    assert abs(Fraction(float(scaled[0])) - exact) < 1
    assert scaled[0] == np.floor(scaled[0])


# Error feedback.


@pytest.mark.parametrize("text", ["int16+feedback", "int8+feedback", "int8+stochastic+feedback"])
def test_with_feedback_all_steps_together_are_off_by_one_step_of_rounding(text: str):
    spec, workers, elements = QuantizerSpec.read(text), 4, 10
    rng = np.random.default_rng(3)
    quantizer, kept = spec.bind(workers), [Residuals() for _ in range(workers)]
    scale = rng.uniform(0.01, 1, elements)
    exact, got, largest = np.zeros(elements), np.zeros(elements), 0.0
    for step in range(200):
        gradient = (scale * rng.standard_normal((workers, elements))).astype(np.float32)
        exact += gradient.astype(np.float64).sum(axis=0)
        given_ones = np.stack([kept[rank].added("w", gradient[rank]) for rank in range(workers)])
        largest = max(largest, float(abs(given_ones).max()))
        got += feedback_step(quantizer, spec, kept, given_ones, step)
    limit = Packing.widest({"int16": 16, "int8": 8}[spec.name], workers).limit
    rounding = 1 if spec.stochastic else 0.5
    bound = workers * largest / limit * rounding + 200 * workers * largest * 2**-22
    assert abs(got - exact).max() <= bound
    assert bound < 0.15 * abs(exact).max()


def feedback_step(quantizer, spec, kept, given_ones, step: int) -> np.ndarray:
    """Make one sum with error feedback."""
    elements = given_ones.shape[1]
    rows = [rows_of(each, quantizer) for each in given_ones]
    own = [quantizer.scales(each) for each in rows]
    agreed = np.max(own, axis=0)
    total = 0
    for rank, each in enumerate(rows):
        rounding = Stochastic.of(0, rank, step) if spec.stochastic else nearest
        integers, flags = quantizer.quantize(each, own[rank], agreed, rounding)
        once = np.ones((1, 1), np.uint16)
        alone = quantizer.dequantize(integers, once, agreed, flags, mean=False).reshape(-1)
        everything = np.ones(elements, bool)
        kept[rank].keep("w", given_ones[rank].copy(), alone[:elements], everything)
        total = total + integers
    counts = np.full((len(total), 1), len(rows), np.uint16)
    return quantizer.dequantize(total, counts, agreed, flags, mean=False).reshape(-1)[:elements]


@pytest.mark.parametrize("workers", [255, 4096])
@pytest.mark.parametrize("name", ["int32", "int16"])
def test_the_sum_of_many_workers_fits(name: str, workers: int):
    signs = np.array([1, -1, 0, 1], np.float32)
    gradients_of_all = np.tile(0.5 * signs, (workers, 1))
    got = all_reduce(gradients_of_all, QuantizerSpec.read(name), mean=True)
    np.testing.assert_allclose(got, 0.5 * signs, rtol=0.05)


def test_what_was_not_counted_stays_in_the_residual_and_what_is_not_finite_does_not():
    kept = Residuals()
    given_one = np.array([1, 2, 3, np.nan], np.float32)
    contributed = np.array([0.75, 2.5, 3, 0], np.float32)
    kept.keep("w", given_one, contributed, np.array([True, True, False, True]))
    assert kept.added("w", np.zeros(4, np.float32)).tolist() == [0.25, -0.5, 3, 0]
    assert kept.added("other", np.zeros(4, np.float32)).tolist() == [0, 0, 0, 0]
    assert kept.added("w", np.zeros(3, np.float32)).tolist() == [0, 0, 0]  # another size


# Strom's threshold.


@given(gradients(), st.sampled_from([1e-30, 0.01, 1.0, 1e20]))
def test_threshold_sends_tau_or_nothing_exactly(gradient: np.ndarray, tau: float):
    spec = QuantizerSpec.read(f"strom:{tau}")
    tau32 = np.float32(tau)
    signs = (gradient > tau32).astype(int) - (gradient < -tau32)
    sums = all_reduce(gradient, spec, mean=False)
    np.testing.assert_array_equal(sums, signs.sum(axis=0).astype(np.float32) * tau32)
    for poison in SPECIAL if gradient.size else ():
        gradient[-1, -1] = poison
        assert np.isnan(all_reduce(gradient, spec)[-1])


@pytest.mark.parametrize("workers", [1, 7, 8, 127, 128, 1024])
def test_threshold_counts_all_workers(workers: int):
    gradient = np.ones((workers, 40), np.float32) * np.where(np.arange(40) % 2, 1, -1)
    got = all_reduce(gradient.astype(np.float32), QuantizerSpec.read("strom:0.5"), mean=False)
    np.testing.assert_array_equal(got, gradient[0] * workers / 2)


# Names.


@pytest.mark.parametrize(
    "text",
    [
        "int32",
        "int16",
        "int8+stochastic",
        "int16+feedback",
        "int8+stochastic+feedback",
        "strom:0.25",
        "strom:1e+20",
        "strom:0.00123457",
        "int32+blocks",
        "int8+stochastic+feedback+blocks:64",
        "int16+topk:0.01",
        "int16+stochastic+blocks:1+topk:1e-05",
    ],
)
def test_a_choice_is_written_as_it_is_read(text: str):
    assert str(QuantizerSpec.read(text)) == text
    assert QuantizerSpec.read(text) == QuantizerSpec.read(text)


def test_choices_are_told_apart_and_the_default_is_zero():
    texts = ["int32", "int16", "int8", "int8+feedback", "int8+stochastic", "strom:1", "strom:2"]
    texts += ["int32+blocks", "int32+blocks:64", "int32+topk:0.5", "int32+topk:0.25"]
    identities = [QuantizerSpec.read(text).identity for text in texts]
    assert identities[0] == 0
    assert len(set(identities)) == len(texts)
    assert max(identities) < 2**28


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("int4", "one of int32, int16, int8 or strom:TAU"),
        ("int8+fast", r"may have \+stochastic, \+feedback, \+blocks"),
        ("int8+feedback+feedback", "one of int32"),
        ("int8+feedback:3", "stochastic and feedback have no parameter"),
        ("int32+blocks:0", "blocks have a positive number of elements"),
        ("int32+blocks:many", "blocks have a positive number of elements"),
        ("int32+blocks:4294967296", "blocks have a positive number of elements"),
        ("int32+blocks:" + 5000 * "9", "blocks have a positive number of elements"),
        ("int32+topk", "a share of the blocks between 0 and 1, as in topk:0.01"),
        ("int32+topk:0", "a share of the blocks"),
        ("int32+topk:1.5", "a share of the blocks"),
        ("int32+topk:nan", "a share of the blocks"),
        ("strom:1+topk:0.1", r"strom sends all blocks, use int8\+topk:0.01"),
        ("int8:3", "int8 has no parameter"),
        ("strom", "a positive threshold, as in strom:0.001"),
        ("strom:-1", "a positive threshold"),
        ("strom:nan", "a positive threshold"),
        ("strom:1e60", "a positive threshold"),
        ("strom:1+stochastic", "strom does not round"),
    ],
)
@pytest.mark.filterwarnings("ignore:overflow")
def test_what_makes_no_sense_is_refused(text: str, why: str):
    with pytest.raises(UsageError, match=why):
        QuantizerSpec.read(text)


def test_int8_is_refused_where_too_few_levels_are_left():
    most = most_workers(8)
    assert most == 18
    assert Packing.widest(8, most).levels >= FEWEST_LEVELS
    QuantizerSpec("int8").bind(most)
    with pytest.raises(
        UsageError, match=r"19 workers' .* levels, too few .* 18 workers.*: use int16"
    ):
        QuantizerSpec("int8").bind(most + 1)
    QuantizerSpec("int16").bind(32)


def test_levels_by_workers():
    levels = {n: Packing.widest(8, n).levels for n in (1, 2, 4, 8, 16)}
    assert levels == {1: 255, 2: 127, 4: 63, 8: 31, 16: 15}
    assert Packing.widest(16, 8).levels == 8191


@pytest.mark.parametrize("bits", [8, 16])
@pytest.mark.parametrize("scale", [1.0, 1e-39, 1e38])
@pytest.mark.parametrize(
    "late", [False, True]
)  # whether the maximum lacks the first worker's values
def test_c_packs_and_unpacks_the_same_bits_as_numpy(
    bits: int, scale: float, late: bool, monkeypatch: pytest.MonkeyPatch
):
    if not fastpath.compiled():
        pytest.skip("there is no C compiler")
    workers, chance = 3, np.random.default_rng(5)
    quantizer = Narrow(Packing.widest(bits, workers))
    shape = workers, quantizer.rows_per_chunk * 9, 64
    vectors = ((chance.random(shape) - 0.5) * scale).astype(np.float32)
    vectors[0, 3], vectors[0, 5, 7], vectors[1, 9, 1] = 0, np.inf, np.nan

    def found() -> list[bytes]:
        own = [quantizer.scales(rows) for rows in vectors]
        agreed = np.maximum.reduce(own[late:])
        packed = [
            quantizer.quantize(rows, each, agreed, nearest)
            for rows, each in zip(vectors, own, strict=True)
        ]
        sums = np.add.reduce([words for words, _ in packed], dtype=np.int32)
        flags = np.bitwise_or.reduce([each for _, each in packed])
        counts = np.full((len(sums), 1), workers, np.uint16)
        floats = [
            quantizer.dequantize(sums, counts, agreed, flags, mean=mean) for mean in (False, True)
        ]
        return [each.tobytes() for each in (*own, *(words for words, _ in packed), *floats)]

    compiled = found()
    monkeypatch.setattr(fastpath, "compiled", lambda: None)
    assert compiled == found()
