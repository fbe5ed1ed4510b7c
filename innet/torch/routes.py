"""The choice between switch and Gloo for an all-reduce, the same on every rank.

It depends only on the operation and the tensors, which are alike on all ranks. The switch adds what
it can add exactly, or within the bound of :mod:`innet.host.quantizers.fixed_point`. It finds maxima of
32-bit integers, and so of floats in the order of their bits.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.distributed import ReduceOp

from innet.host.tensors import MOST_ELEMENTS, How

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_BY_SWITCH: Mapping[Any, tuple[How, Sequence[torch.dtype]]] = {
    ReduceOp.SUM: ("sum", (*_FLOATS, torch.int32, torch.int64)),
    ReduceOp.AVG: ("mean", _FLOATS),
    ReduceOp.MAX: ("max", (*_FLOATS, torch.int32)),
    ReduceOp.MIN: ("min", (*_FLOATS, torch.int32)),
}


def how_by_switch(tensors: Sequence[torch.Tensor], op: ReduceOp) -> tuple[How | None, str]:
    """Return the switch's operation, or None and the reason why it cannot."""
    how, dtypes = next((way for each, way in _BY_SWITCH.items() if op == each), (None, ()))
    if how is None:
        return None, "operation"
    if len({tensor.dtype for tensor in tensors}) != 1 or tensors[0].dtype not in dtypes:
        return None, "dtype"
    if any(tensor.layout != torch.strided for tensor in tensors):
        return None, "layout"
    if sum(tensor.numel() for tensor in tensors) > MOST_ELEMENTS:
        return None, "size"
    return how, ""
