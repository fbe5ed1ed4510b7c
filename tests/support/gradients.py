"""Gradients for quantizers: log-uniform magnitudes, mixed with extreme values."""

import numpy as np
from hypothesis import strategies as st

LARGEST = np.finfo(np.float32).max


SMALLEST = np.finfo(np.float32).smallest_subnormal


SIGNALLING_NAN = np.array([0x7F800001], np.uint32).view(np.float32)[0]


def between(low: int, high: int) -> st.SearchStrategy[list[int]]:
    """Return a strategy for the exponents of a smallest and a largest magnitude."""
    return st.tuples(st.integers(low, high), st.integers(low, high)).map(sorted)


# All of float32, and its two ends separately: denormal numbers, and close to overflow.
magnitudes = between(-149, 128) | between(-149, -95) | between(120, 128)


seeds = st.integers(0, 2**32 - 1)


extremes = st.sampled_from([LARGEST, -LARGEST, SMALLEST, -SMALLEST, np.float32(-0.0)])


@st.composite
def gradients(draw) -> np.ndarray:
    """Return (workers, elements) float32: log-uniform magnitudes, mixed with extreme values."""
    workers, elements = draw(st.integers(1, 32)), draw(st.integers(0, 20))
    low, high = draw(magnitudes)
    rng = np.random.default_rng(draw(seeds))
    exponents = rng.integers(low, high, (workers, elements), endpoint=True)
    values = np.ldexp(rng.uniform(-1, 1, (workers, elements)), exponents)
    values = values.clip(-float(LARGEST), float(LARGEST)).astype(np.float32)
    for extreme in draw(st.lists(extremes, max_size=3)) if elements else []:
        values[rng.integers(workers), rng.integers(elements)] = extreme
    return values
