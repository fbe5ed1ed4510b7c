"""The kernels of :mod:`innet.host.quantizers.torch_kernels` in Triton, one pass over memory each.

With ``TRITON_INTERPRET=1`` Triton runs them on the CPU; the tests do so where there is no GPU. A
program of `pack` and `unpack` handles a chunk, one of `magnitudes` a row. The number of lanes has
to be a power of two.
"""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN202, N803 - Triton's language is not quite Python

import torch
import triton
import triton.language as tl

from innet.host.quantizers.packing import Packing

_WHOLE: tl.constexpr = tl.constexpr(8388608.0)  # 2**23: from there on a float32 has no fraction


def magnitudes(rows: torch.Tensor) -> torch.Tensor:
    """See :func:`torch_kernels.magnitudes`."""
    largest = torch.empty(len(rows), dtype=torch.int32, device=rows.device)
    if len(rows):
        _magnitudes[(len(rows),)](rows.view(torch.int32), largest, rows.shape[1])
    return largest


def pack(
    rows: torch.Tensor, steps: torch.Tensor, packing: Packing, limit: float, key: int | None
) -> torch.Tensor:
    """See :func:`torch_kernels.pack`; here the words are in network byte order."""
    chunks, lanes = len(rows) // packing.per_lane, rows.shape[1]
    words = torch.empty((chunks, lanes), dtype=torch.int32, device=rows.device)
    halves = torch.tensor([key or 0], dtype=torch.uint64).view(torch.int32).to(rows.device)
    if chunks:
        _pack[(chunks,)](
            rows, steps, words, halves, limit, packing.limit,
            lanes, packing.per_lane, packing.bits, key is not None,
        )  # fmt: skip
    return words


def unpack(
    sums: torch.Tensor, counts: torch.Tensor, steps: torch.Tensor, packing: Packing, *, mean: bool
) -> torch.Tensor:
    """See :func:`torch_kernels.unpack`."""
    chunks, lanes = sums.shape
    values = torch.empty(
        (chunks * packing.per_lane, lanes), dtype=torch.float32, device=sums.device
    )
    if chunks:
        _unpack[(chunks,)](
            sums, counts, steps, values, packing.limit,
            lanes, packing.per_lane, packing.bits, mean,
        )  # fmt: skip
    return values


@triton.jit
def _magnitudes(rows, largest, LANES: tl.constexpr):
    row = tl.program_id(0).to(tl.int64)
    bits = tl.load(rows + row * LANES + tl.arange(0, LANES)) & 0x7FFFFFFF
    tl.store(largest + row, tl.max(bits, axis=0))


@triton.jit
def _pack(
    rows, steps, words, halves, limit, bias,
    LANES: tl.constexpr, PER: tl.constexpr, BITS: tl.constexpr, STOCHASTIC: tl.constexpr,
):  # fmt: skip
    chunk = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    word = tl.zeros([LANES], tl.int32)
    for j in tl.static_range(PER):
        row = chunk * PER + j
        index = row * LANES + lane
        step = tl.load(steps + row) + tl.zeros([LANES], tl.float32)
        scaled = tl.div_rn(tl.load(rows + index), step)
        scaled = tl.where(scaled == scaled, scaled, 0.0)  # noqa: PLR0124 - false for a NaN
        scaled = tl.minimum(tl.maximum(scaled, -limit), limit)
        if STOCHASTIC:
            bits = index.to(tl.uint32)
            for half in tl.static_range(2):
                bits = _mix(bits ^ tl.load(halves + half).to(tl.uint32, bitcast=True))
            below = tl.floor(scaled)
            up = (bits >> 8).to(tl.float32) * 5.9604644775390625e-08 < scaled - below
            scaled = below + up.to(tl.float32)
        else:
            size = tl.abs(scaled)
            near = tl.where(size < _WHOLE, (size + _WHOLE) - _WHOLE, size)  # halves to even
            scaled = tl.where(scaled < 0, -near, near)
        integer = scaled.to(tl.int32)
        if j < PER - 1:
            integer += bias
        word += integer << (BITS * j)
    native = word.to(tl.uint32, bitcast=True)
    swapped = (native >> 24) | (native >> 8 & 0xFF00) | (native << 8 & 0xFF0000) | (native << 24)
    tl.store(words + chunk * LANES + lane, swapped.to(tl.int32, bitcast=True))


@triton.jit
def _mix(bits):
    """Mix as ``lowbias32`` does; see :data:`innet.host.quantizers.rounding.MIXING`."""
    bits = (bits ^ (bits >> 16)) * tl.full(bits.shape, 0x7FEB352D, tl.uint32)
    bits = (bits ^ (bits >> 15)) * tl.full(bits.shape, 0x846CA68B, tl.uint32)
    return bits ^ (bits >> 16)


@triton.jit
def _unpack(
    sums, counts, steps, values, bias,
    LANES: tl.constexpr, PER: tl.constexpr, BITS: tl.constexpr, MEAN: tl.constexpr,
):  # fmt: skip
    chunk = tl.program_id(0).to(tl.int64)
    lane = tl.arange(0, LANES)
    word = tl.load(sums + chunk * LANES + lane)
    count = tl.load(counts + chunk)
    for j in tl.static_range(PER):
        row = chunk * PER + j
        integer = word >> (BITS * j)
        if j < PER - 1:
            integer = (integer & ((1 << BITS) - 1)) - bias * count
        value = integer.to(tl.float32)
        if MEAN:
            value = tl.div_rn(value, count.to(tl.float32) + tl.zeros([LANES], tl.float32))
        tl.store(values + row * LANES + lane, value * tl.load(steps + row))
