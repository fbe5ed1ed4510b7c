"""The device's part of a quantizer, in PyTorch operations, with the same bits as numpy.

:mod:`innet.host.quantizers.triton_kernels` does the same with one pass over memory each.
"""

from typing import Any

import torch

from innet.host.quantizers.packing import Packing
from innet.host.quantizers.rounding import MIXING, halves, signed


def magnitudes(rows: torch.Tensor) -> torch.Tensor:
    """Return the bits of every row's largest magnitude, (rows,) int32; a NaN or an infinity wins."""
    return (rows.view(torch.int32) & 0x7FFFFFFF).amax(dim=1)


def pack(
    rows: torch.Tensor, steps: torch.Tensor, packing: Packing, limit: float, key: int | None
) -> torch.Tensor:
    """Divide rows by their steps, round, and pack them into words.

    Takes (rows, lanes) and (rows,) float32, and returns (chunks, lanes) int32. Rows whose step is
    NaN become zeros. With a `key` rounding is stochastic.
    """
    per, lanes = packing.per_lane, rows.shape[1]
    scaled = rows / steps[:, None]
    scaled = scaled.masked_fill_(scaled.isnan(), 0).clamp_(-limit, limit)
    if key is None:
        scaled.round_()
    else:
        bits = random_bits(key, scaled.numel(), rows.device).view_as(scaled)
        uniform = (bits >> 8 & 0xFFFFFF).to(torch.float32) * 2.0**-24
        below = scaled.floor()
        scaled = below + (uniform < scaled - below)
    integers = scaled.to(torch.int32).view(-1, per, lanes)
    words = integers[:, -1] << packing.bits * (per - 1)
    for j in range(per - 1):
        words += integers[:, j] + packing.limit << packing.bits * j
    return words


def unpack(
    sums: torch.Tensor, counts: torch.Tensor, steps: torch.Tensor, packing: Packing, *, mean: bool
) -> torch.Tensor:
    """Unpack sums of (chunks,) int32 contributions: (chunks, lanes) int32 to (rows, lanes) float32."""
    per, lanes = packing.per_lane, sums.shape[1]
    integers = torch.empty((len(sums), per, lanes), dtype=torch.int32, device=sums.device)
    integers[:, -1] = sums >> packing.bits * (per - 1)
    for j in range(per - 1):
        lower = sums >> packing.bits * j & (1 << packing.bits) - 1
        integers[:, j] = lower - packing.limit * counts[:, None]
    values = integers.to(torch.float32)
    if mean:
        values /= counts[:, None, None].to(torch.float32)
    return values.view(-1, lanes).mul_(steps[:, None])


def random_bits(key: int, count: int, device: Any) -> torch.Tensor:
    """Return :func:`innet.host.quantizers.rounding.random_bits` from position 0 on, as int32."""
    bits = torch.arange(count, dtype=torch.int32, device=device)
    for half in halves(key):
        bits ^= half
        for shift, factor in MIXING:
            bits ^= bits >> shift & (1 << 32 - shift) - 1  # shifts zeros in, as if it were unsigned
            bits *= signed(factor)
    return bits
