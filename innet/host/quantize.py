"""float32 to int32 and back: fixed point with one power-of-two scale per block.

A block is what one packet carries. Its scale follows from the largest magnitude that any worker has
in it, agreed on by an all-reduce with maximum before the integers are summed, so that

* the sum of all workers cannot leave the int32 range,
* every worker scales alike, and scaling by a power of two rounds nothing.

Error bound. Let N be the number of workers, M the largest magnitude in a block over all workers, and
g = ceil(log2 N). Integers are multiples of ``step = 2**(e + g - 31)`` with ``2**(e - 1) <= M < 2**e``,
so ``step <= M * 2**(g - 30)``; it is never below 2**-126, float32's smallest normal number. Every
element of the mean that comes back differs from the exact mean by at most

    step / 2  +  (|mean| + step / 2) * 2**-23  +  2**-150

(rounding to integers; the int32 to float32 conversion and the division by N; a denormal result).
A block in which any worker has a NaN or an infinity comes back as NaN throughout: mixed-precision
training must see them.
"""

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int32]

ZERO_BLOCK = -1000
"""Exponent of a block of zeros: below every float32's."""

NOT_FINITE = 1000
"""Exponent of a block with a NaN or an infinity: above every float32's, so it wins the maximum."""

_SMALLEST_STEP_EXPONENT = -126


def blocks(values: Floats, lanes: int) -> Floats:
    """Cut a float32 vector of n elements into an (ceil(n / lanes), lanes) array, padded with zeros.

    Without padding to add, the result is a view of `values`.
    """
    missing = -values.size % lanes
    if missing:
        values = np.concatenate([values, np.zeros(missing, np.float32)])
    return values.reshape(-1, lanes)


def block_exponents(values: Floats) -> Integers:
    """The exponent e of every row of a (blocks, lanes) array, with ``max|row| < 2**e``.

    Returns int32 of shape (blocks,), to be reduced with maximum over the workers.
    """
    largest = np.maximum(values.max(axis=1), -values.min(axis=1))  # NaN stays NaN
    exponents: Integers = np.frexp(largest)[1].astype(np.int32)
    exponents[largest == 0] = ZERO_BLOCK
    exponents[~np.isfinite(largest)] = NOT_FINITE
    return exponents


def step_exponents(exponents: Integers, workers: int) -> Integers:
    """The exponent of every block's `step`, for the agreed block exponents. Shape (blocks,)."""
    guard_bits = (workers - 1).bit_length()
    steps: Integers = np.maximum(exponents + guard_bits - 31, _SMALLEST_STEP_EXPONENT)
    return steps


def quantize(values: Floats, exponents: Integers, workers: int) -> Integers:
    """Round (blocks, lanes) float32 to multiples of each block's step. Returns int32, same shape.

    `exponents` are the agreed ones, so the sum over `workers` such arrays fits int32. Blocks that
    are not finite become zeros; :func:`dequantize` does not look at them.
    """
    steps = step_exponents(exponents, workers)
    finite = exponents < NOT_FINITE
    scales = np.ldexp(np.float32(1), np.where(finite, -steps, 0))[:, None]
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = np.rint(values * scales)
        scaled[~finite] = 0
        return scaled.astype(np.int32)


def dequantize(sums: Integers, exponents: Integers, workers: int) -> Floats:
    """The mean over the workers, float32 of the sums' shape (blocks, lanes)."""
    steps = step_exponents(exponents, workers)
    finite = exponents < NOT_FINITE
    scales = np.ldexp(np.float32(1), np.where(finite, steps, 0))[:, None]
    # Divide first: the sum of large floats may exceed float32 where their mean does not.
    means = sums.astype(np.float32)
    means /= np.float32(workers)
    means *= scales
    means[~finite] = np.nan
    return means
