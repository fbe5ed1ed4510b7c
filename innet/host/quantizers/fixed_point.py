"""float32 to int32 and back: fixed point with one power-of-two scale per block.

A block is the part of a vector that one packet carries. Its scale follows from the largest
magnitude that any worker has in it. The workers agree on it by an all-reduce with maximum before
they sum integers. So

* the sum of all workers cannot leave the int32 range,
* every worker scales alike, and scaling by a power of two rounds nothing.

Error bound. Let N be the number of workers, M the largest magnitude in a block over all workers,
and g = ceil(log2 N), or 1 more if N is a power of two above 128. Integers are multiples of ``step =
2**(e + g - 31)`` with ``2**(e - 1) <= M < 2**e``, or of 2**-126, float32's smallest normal number, if
that is larger. So ``step <= max(M * 2**(g - 30), 2**-126)``: numbers of 2**-127 and below become zeros.
Every element of the mean that comes back differs from the exact mean by at most

    step / 2  +  (|mean| + step / 2) * 2**-23  +  2**-150

(rounding to integers; the int32 to float32 conversion and the division by N; a denormal result). A
block in which any worker has a NaN or an infinity comes back as NaN throughout, since
mixed-precision training must see them.

**With a quorum** the workers may have agreed on the maximum without this worker, so that M does not
cover its values. Values beyond 2**31 / N steps, about ``2**e``, are then clamped to just below that
limit. The worker's part in the sum differs from its gradient by the clamped amount. :func:`clamped`
returns that amount, so that error feedback can add it to the worker's next gradient. For the other
workers the bound holds. If such a worker has a NaN or an infinity, it sets a flag, and the block is
NaN if the worker is in the result. The mean is over the workers in the result.
"""

from typing import TypeVar

import numpy as np
import numpy.typing as npt

from innet.host import fastpath, memory
from innet.host.integers import Counts, Flags, Integers, Wide
from innet.host.quantizers import scaling
from innet.host.quantizers.interface import Floats, Rounding
from innet.host.quantizers.rounding import nearest
from innet.wire.layout import Flag

Number = TypeVar("Number", np.float32, np.int32)

ZERO_BLOCK = -1000
"""Exponent of a block of zeros: below every float32's."""

NOT_FINITE = 1000
"""Exponent of a block with a NaN or an infinity: above every float32's, so it wins the maximum."""

_SMALLEST_STEP_EXPONENT = -126
_NEVER_ROUNDED_UP = 128
"""The most workers, if a power of two, whose largest number stays below 2**31 / N when it is rounded.

A float32 below 2**e is at most ``2**e - 2**(e - 24)``: that is an integer of steps if ``g <= 7``.
"""


def blocks(values: npt.NDArray[Number], lanes: int) -> npt.NDArray[Number]:
    """Cut a vector of n elements into an (ceil(n / lanes), lanes) array, padded with zeros.

    If no padding is needed, the result is a view of `values`.
    """
    if values.size % lanes == 0:
        return values.reshape(-1, lanes)
    padded = memory.empty((-(-values.size // lanes), lanes), values.dtype.type)
    flat = padded.reshape(-1)
    flat[: values.size] = values
    flat[values.size :] = 0
    return padded


def block_exponents(values: Floats) -> Integers:
    """Return the exponent e of every row of a (blocks, lanes) array, with ``max|row| < 2**e``.

    It is int32 of shape (blocks,), to be reduced with maximum over the workers.
    """
    if library := fastpath.compiled():
        return exponents_of(scaling.largest(library, values))
    return exponents_of(np.maximum(values.max(axis=1), -values.min(axis=1)))  # NaN stays NaN


def exponents_of(largest: Floats) -> Integers:
    """Return each block's exponent from its largest magnitude, (blocks,); a magnitude may be NaN."""
    with np.errstate(invalid="ignore"):  # frexp warns of a signalling NaN, which may be the largest
        exponents: Integers = np.frexp(largest)[1].astype(np.int32)
    exponents[largest == 0] = ZERO_BLOCK
    exponents[~np.isfinite(largest)] = NOT_FINITE
    return exponents


def step_exponents(exponents: Integers, workers: int) -> Integers:
    """Return the exponent of every block's `step`, (blocks,), from the agreed block exponents."""
    guard_bits = (workers if workers > _NEVER_ROUNDED_UP else workers - 1).bit_length()
    steps: Integers = np.maximum(exponents + guard_bits - 31, _SMALLEST_STEP_EXPONENT)
    return steps


def quantize(
    values: Floats, own: Integers, agreed: Integers, workers: int, rounding: Rounding = nearest
) -> Integers:
    """Round (blocks, lanes) float32 to multiples of each block's step. Returns int32, same shape.

    `own` are this worker's block exponents, and `agreed` those of all workers. The sum of `workers`
    such arrays fits int32. Blocks that are not finite become zeros; :func:`dequantize` ignores
    them.
    """
    steps = step_exponents(agreed, workers)
    finite = (agreed < NOT_FINITE) & (own < NOT_FINITE)
    scales = np.ldexp(np.float32(1), np.where(finite, -steps, 0))
    uncovered, largest = finite & (own > agreed), largest_integer(workers)
    if rounding is nearest and not uncovered.any() and (library := fastpath.compiled()):
        return scaling.quantize(library, values, scales, finite)
    with np.errstate(invalid="ignore", over="ignore"):
        scaled = values * scales[:, None]
        rounding(scaled, 0)
        scaled[~finite] = 0
        scaled[uncovered] = scaled[uncovered].clip(-largest, largest)
        return scaled.astype(np.int32)


def on_the_way(
    values: Floats,
    own: Integers,
    agreed: Integers,
    workers: int,
    *,
    mean: bool,
    in_place: bool = False,
    wanted: range | None = None,
) -> scaling.Scaling | None:
    """Return a Scaling with the results of :func:`quantize` and :func:`dequantize`, row by row.

    With `in_place` the Scaling may overwrite the values. Otherwise it has results for the `wanted` rows
    only, by default for all. It rounds to nearest. Returns None without a compiler, or if a value has to
    be clamped.
    """
    steps = step_exponents(agreed, workers)
    finite = agreed < NOT_FINITE
    fit = finite & (own < NOT_FINITE)
    library = fastpath.compiled()
    if not library or (fit & (own > agreed)).any():
        return None
    up = np.ldexp(np.float32(1), np.where(fit, -steps, 0))
    down = np.ldexp(np.float32(1), np.where(finite, steps, 0))
    return scaling.Scaling(
        library, values, up, fit, down, mean=mean, in_place=in_place, wanted=wanted
    )


def clamped(values: Floats, own: Integers, agreed: Integers, workers: int) -> Floats:
    """Return the amounts that :func:`quantize` clamps away, float32 of the values' shape; 0 elsewhere."""
    rest = np.zeros_like(values)
    uncovered = (own > agreed) & (own < NOT_FINITE)
    steps = step_exponents(agreed[uncovered], workers)
    with np.errstate(over="ignore"):  # where the limit overflows float32, nothing is clamped
        limits = np.ldexp(largest_integer(workers), steps)[:, None]
    rest[uncovered] = values[uncovered] - values[uncovered].clip(-limits, limits)
    return rest


def flags(own: Integers, agreed: Integers) -> Flags:
    """Return Flag.NOT_FINITE for blocks that are not finite here although the agreed exponent is."""
    hidden = (own == NOT_FINITE) & (agreed < NOT_FINITE)
    return np.where(hidden, Flag.NOT_FINITE, 0).astype(np.uint16)


def dequantize(
    sums: Integers | Wide,
    agreed: Integers,
    workers: int,
    counts: Counts | None = None,
    flagged: Flags | None = None,
) -> Floats:
    """Return the sums, or with `counts` the means, float32 of the sums' shape (blocks, lanes).

    `counts` is the number of contributions in every element; it broadcasts against the sums.
    `flagged` are the flags that came with the sums, (blocks,).
    """
    steps = step_exponents(agreed, workers)
    finite = is_finite(agreed, flagged)
    scales = np.ldexp(np.float32(1), np.where(finite, steps, 0))
    by_row = sums.dtype == np.int32 and (counts is None or counts.shape == (len(sums), 1))
    if by_row and (library := fastpath.compiled()):
        values = scaling.dequantize(library, np.asarray(sums, np.int32), scales, counts)
    else:
        values = sums.astype(np.float32)
        # Divide first: the sum of large floats may exceed float32 although their mean does not.
        if counts is not None:
            values /= counts.astype(np.float32)
        with np.errstate(over="ignore"):
            values *= scales[:, None]
    values[~finite] = np.nan
    return values


def is_finite(agreed: Integers, flagged: Flags | None) -> npt.NDArray[np.bool_]:
    """Return a mask of the finite blocks, (blocks,), from agreed exponents and the sums' flags."""
    finite = agreed < NOT_FINITE
    return finite if flagged is None else finite & (flagged & Flag.NOT_FINITE == 0)


def largest_integer(workers: int) -> np.float32:
    """Return the largest integer below 2**31 / `workers` that is a float32.

    No sum of `workers` such numbers overflows.
    """
    return np.float32(np.floor(np.nextafter(np.float32(2**31 / workers), np.float32(0))))
