"""The kernels of :mod:`innet.host.quantizers.torch_kernels` in Triton, one pass over memory each.

With ``TRITON_INTERPRET=1`` Triton runs them on the CPU; the tests do so where there is no GPU. A
program handles a tile of several chunks or rows, so that each thread has several loads under way. The
number of lanes has to be a power of two.
"""

# mypy: ignore-errors
# ruff: noqa: ANN001, ANN202, N803 - Triton's language is not quite Python

import torch
import triton
import triton.language as tl

from innet.host.quantizers.packing import Packing
from innet.host.quantizers.rounding import halves

_TILE = 4096  # float32 of a program, as far as a chunk is not larger
_WHOLE: tl.constexpr = tl.constexpr(8388608.0)  # 2**23: from there on a float32 has no fraction


def magnitudes(rows: torch.Tensor) -> torch.Tensor:
    """See :func:`torch_kernels.magnitudes`."""
    count, lanes = rows.shape
    largest = torch.empty(count, dtype=torch.int32, device=rows.device)
    if count:
        tile = _tile(lanes)
        _magnitudes[(triton.cdiv(count, tile),)](
            rows.view(torch.int32), largest, count, lanes, tile
        )
    return largest


def pack(
    rows: torch.Tensor, steps: torch.Tensor, packing: Packing, limit: float, key: int | None
) -> torch.Tensor:
    """See :func:`torch_kernels.pack`."""
    chunks, lanes = len(rows) // packing.per_lane, rows.shape[1]
    words = torch.empty((chunks, lanes), dtype=torch.int32, device=rows.device)
    if chunks:
        tile = _tile(lanes * packing.per_lane)
        _pack[(triton.cdiv(chunks, tile),)](
            rows, steps, words, chunks, *halves(key or 0), limit, packing.limit,
            lanes, tile, packing.per_lane, packing.bits, key is not None,
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
        tile = _tile(lanes * packing.per_lane)
        _unpack[(triton.cdiv(chunks, tile),)](
            sums, counts, steps, values, chunks, packing.limit,
            lanes, tile, packing.per_lane, packing.bits, mean,
        )  # fmt: skip
    return values


def _tile(elements: int) -> int:
    """Return the number of rows or chunks of a program, given the elements of each."""
    return max(1, _TILE // elements)


@triton.jit(do_not_specialize=["count"])
def _magnitudes(rows, largest, count, LANES: tl.constexpr, TILE: tl.constexpr):
    first = tl.program_id(0).to(tl.int64) * TILE
    row, lane = tl.arange(0, TILE), tl.arange(0, LANES)
    here = first + row < count
    index = row[:, None] * LANES + lane[None, :]
    bits = tl.load(rows + first * LANES + index, mask=here[:, None], other=0) & 0x7FFFFFFF
    tl.store(largest + first + row, tl.max(bits, axis=1), mask=here)


@triton.jit(do_not_specialize=["chunks", "low", "high"])
def _pack(
    rows, steps, words, chunks, low, high, limit, bias,
    LANES: tl.constexpr, TILE: tl.constexpr, PER: tl.constexpr, BITS: tl.constexpr,
    STOCHASTIC: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * TILE
    chunk, lane = tl.arange(0, TILE), tl.arange(0, LANES)
    here = first + chunk < chunks
    word = tl.zeros([TILE, LANES], tl.int32)
    for j in tl.static_range(PER):
        row = chunk * PER + j
        index = row[:, None] * LANES + lane[None, :]
        values = tl.load(rows + first * PER * LANES + index, mask=here[:, None], other=0.0)
        step = tl.load(steps + first * PER + row, mask=here, other=1.0)
        scaled = tl.div_rn(values, tl.broadcast_to(step[:, None], [TILE, LANES]))
        scaled = tl.where(scaled == scaled, scaled, 0.0)  # noqa: PLR0124 - false for a NaN
        scaled = tl.minimum(tl.maximum(scaled, -limit), limit)
        if STOCHASTIC:
            bits = (first * PER * LANES + index).to(tl.uint32)
            bits = _mix(bits ^ low.to(tl.uint32, bitcast=True))
            bits = _mix(bits ^ high.to(tl.uint32, bitcast=True))
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
    index = chunk[:, None] * LANES + lane[None, :]
    tl.store(words + first * LANES + index, word, mask=here[:, None])


@triton.jit
def _mix(bits):
    """Mix as ``lowbias32`` does; see :data:`innet.host.quantizers.rounding.MIXING`."""
    bits = (bits ^ (bits >> 16)) * tl.full(bits.shape, 0x7FEB352D, tl.uint32)
    bits = (bits ^ (bits >> 15)) * tl.full(bits.shape, 0x846CA68B, tl.uint32)
    return bits ^ (bits >> 16)


@triton.jit(do_not_specialize=["chunks"])
def _unpack(
    sums, counts, steps, values, chunks, bias,
    LANES: tl.constexpr, TILE: tl.constexpr, PER: tl.constexpr, BITS: tl.constexpr,
    MEAN: tl.constexpr,
):  # fmt: skip
    first = tl.program_id(0).to(tl.int64) * TILE
    chunk, lane = tl.arange(0, TILE), tl.arange(0, LANES)
    here = first + chunk < chunks
    index = chunk[:, None] * LANES + lane[None, :]
    word = tl.load(sums + first * LANES + index, mask=here[:, None], other=0)
    count = tl.load(counts + first + chunk, mask=here, other=1)[:, None]
    for j in tl.static_range(PER):
        row = chunk * PER + j
        integer = word >> (BITS * j)
        if j < PER - 1:
            integer = (integer & ((1 << BITS) - 1)) - bias * count
        value = integer.to(tl.float32)
        if MEAN:
            value = tl.div_rn(value, tl.broadcast_to(count.to(tl.float32), [TILE, LANES]))
        step = tl.load(steps + first * PER + row, mask=here, other=1.0)
        index = row[:, None] * LANES + lane[None, :]
        tl.store(values + first * PER * LANES + index, value * step[:, None], mask=here[:, None])
