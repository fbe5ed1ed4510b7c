"""The choice between switch and Gloo for a collective, the same on every rank.

It depends only on the operation and on what the tensors of all ranks have in common. Strides are not
among that. The switch adds what it can add exactly, or within the bound of
:mod:`innet.host.quantizers.fixed_point`. It finds maxima of 32-bit integers, and so of floats in the
order of their bits. It moves the bits of any dtype.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
import torch.distributed as dist

from innet.host.tensors import MOST_ELEMENTS, ReduceOp, extent

_FLOATS = (torch.float32, torch.float16, torch.bfloat16)
_BY_SWITCH: Mapping[Any, tuple[ReduceOp, Sequence[torch.dtype]]] = {
    dist.ReduceOp.SUM: ("sum", (*_FLOATS, torch.int32, torch.int64)),
    dist.ReduceOp.AVG: ("mean", _FLOATS),
    dist.ReduceOp.MAX: ("max", (*_FLOATS, torch.int32)),
    dist.ReduceOp.MIN: ("min", (*_FLOATS, torch.int32)),
}


def switch_op(
    tensors: Sequence[torch.Tensor], op: dist.ReduceOp, *, sparse: bool = False
) -> tuple[ReduceOp | None, str]:
    """Return the switch's operation, or None and the reason why the switch cannot carry the call.

    With `sparse`, the collective may be of a sparse tensor.
    """
    for each, (found, dtypes) in _BY_SWITCH.items():  # noqa: B007 - the loop ends with those of `op`
        if op == each:
            break
    else:
        return None, "operation"
    if not tensors or tensors[0].dtype not in dtypes:
        return None, "dtype"
    if not _one_device(tensors):
        return None, "device"
    if sparse and tensors[0].layout == torch.sparse_coo:
        return _sparse_op(tensors, found)
    elements = 0
    for tensor in tensors:
        if tensor.dtype != tensors[0].dtype:
            return None, "dtype"
        if tensor.layout != torch.strided:
            return None, "layout"
        elements += tensor.numel()
    return (None, "size") if elements > MOST_ELEMENTS else (found, "")


def _sparse_op(
    tensors: Sequence[torch.Tensor], found: ReduceOp | None
) -> tuple[ReduceOp | None, str]:
    [first, *others] = tensors
    if others or not first.sparse_dim():
        return None, "layout"
    if found not in ("sum", "mean"):
        return None, "operation"
    if extent(first) > MOST_ELEMENTS:
        return None, "size"
    return found, ""


def _one_device(tensors: Sequence[torch.Tensor]) -> bool:
    """Return whether the tensors are on one device, and have content there."""
    [device, *others] = {tensor.device for tensor in tensors}
    return not others and device.type in ("cpu", "cuda")


def move_reason(tensors: Sequence[torch.Tensor]) -> str:
    """Return the reason why the switch cannot move these tensors' bits, or "" if it can."""
    if any(tensor.layout != torch.strided for tensor in tensors):
        return "layout"
    if not _one_device(tensors):
        return "device"
    if sum(tensor.numel() * tensor.element_size() for tensor in tensors) > MOST_ELEMENTS:
        return "size"
    return ""
