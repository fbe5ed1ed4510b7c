"""Tensors as Gloo takes them: stand-ins for those that it would misread, refuse, or reduce wrongly.

Gloo takes a tensor's memory for its elements, whatever its strides. It has nine dtypes and no mean, and
its maximum may lose a NaN. A stand-in is a contiguous copy in a form that Gloo does carry. After the
collective, the tensor gets the stand-in's values.
"""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
import torch.distributed as dist

from innet.errors import UnsupportedTensor
from innet.host.tensors import dtype_name, resolved
from innet.torch.placing import put

_OF_GLOO = {
    *(torch.float64, torch.float32, torch.float16, torch.bfloat16),
    *(torch.int64, torch.int32, torch.int8, torch.uint8, torch.bool),
}
_WIDER = {torch.int16: torch.int32, torch.uint16: torch.int32, torch.uint32: torch.int64}
_ALL_BUT_SIGN, _SIGN = (1 << 63) - 1, -(1 << 63)  # of 64 bits


def _same(values: torch.Tensor) -> torch.Tensor:
    return values


@dataclass(frozen=True)
class Form:
    """A form of contiguous tensors for Gloo: `read` makes the stand-in, `write` the tensor's values."""

    read: Callable[[torch.Tensor], torch.Tensor] = _same
    write: Callable[[torch.Tensor], torch.Tensor] = _same


_AS_IT_IS = Form()


class StandIns:
    """The stand-ins of one collective's tensors."""

    def __init__(self, form: Form) -> None:
        self._form = form
        self._written: list[tuple[torch.Tensor, torch.Tensor]] = []

    def of(self, tensor: torch.Tensor, *, written: bool) -> torch.Tensor:
        """Return a tensor's stand-in, or the tensor itself if it needs none."""
        if tensor.layout != torch.strided:
            return tensor
        plain = resolved(tensor.detach()).contiguous()
        if self._form is _AS_IT_IS and plain.data_ptr() == tensor.data_ptr():
            return tensor
        made = self._form.read(plain)
        if written:
            self._written.append((tensor, made))
        return made

    @property
    def finish(self) -> Callable[[], None] | None:
        """Return the function that gives the tensors their values, or None if Gloo has done so."""
        return self._put_back if self._written else None

    def _put_back(self) -> None:
        for tensor, made in self._written:
            put(tensor, self._form.write(made))


def form_of_move(tensors: Iterable[torch.Tensor]) -> Form:
    """Return the form for a collective that moves bits: bytes, for dtypes that Gloo does not have."""
    dtypes = {each.dtype for each in tensors if each.layout == torch.strided}
    if len(dtypes) != 1 or dtypes <= _OF_GLOO:  # Gloo raises PyTorch's usual error for several
        return _AS_IT_IS
    [dtype] = dtypes
    return Form(_bytes, lambda values: values.view(dtype))


def form_of_reduction(tensors: Iterable[torch.Tensor], op: Any, size: int) -> tuple[Form, Any]:
    """Return the form for a reduction among `size` ranks, and the operation that Gloo has to carry out.

    Raises UnsupportedTensor if Gloo cannot carry it in any form.
    """
    dtypes = {each.dtype for each in tensors if each.layout == torch.strided}
    if len(dtypes) != 1:
        return _AS_IT_IS, op
    [dtype] = dtypes
    if op == dist.ReduceOp.AVG:
        return _mean(dtype, size), dist.ReduceOp.SUM
    # The operand on the left decides: the other one may be of another class.
    largest, smallest = op == dist.ReduceOp.MAX, op == dist.ReduceOp.MIN
    if dtype.is_floating_point and (largest or smallest):
        # A NaN has to win.
        return Form(partial(_keys, missing=_ALL_BUT_SIGN if largest else _SIGN), _of_keys), op
    if dtype == torch.uint64:
        flip = _SIGN if largest or smallest else 0
        return Form(partial(_signed, flip=flip), partial(_unsigned, flip=flip)), op
    if dtype.is_complex and op == dist.ReduceOp.SUM:
        return Form(_parts, torch.view_as_complex), op
    if wide := torch.float32 if _is_narrow(dtype) else _WIDER.get(dtype):
        return Form(lambda values: values.to(wide)), op
    if dtype not in _OF_GLOO:
        raise _unsupported(dtype, op)
    return _AS_IT_IS, op


def _mean(dtype: torch.dtype, size: int) -> Form:
    """Return the form of a mean. That of integers is rounded towards zero, as by other backends."""
    if dtype.is_complex:
        return Form(_parts, lambda values: torch.view_as_complex(values) / size)
    if dtype.is_floating_point:
        wide = dtype if dtype == torch.float64 else torch.float32
        return Form(lambda values: values.to(wide, copy=True), lambda values: values / size)
    if dtype == torch.uint64:
        raise _unsupported(dtype, dist.ReduceOp.AVG)
    return Form(
        lambda values: values.to(torch.int64, copy=True),
        lambda values: values.div(size, rounding_mode="trunc"),
    )


def _is_narrow(dtype: torch.dtype) -> bool:
    """Return whether a dtype is of floats that Gloo does not have, such as the kinds of float8."""
    return dtype.is_floating_point and dtype not in _OF_GLOO


def _unsupported(dtype: torch.dtype, op: Any) -> UnsupportedTensor:
    name = str(op).rpartition(".")[2] or str(op)
    return UnsupportedTensor(
        f"neither the switch nor Gloo has {name} of {dtype_name(dtype)}: convert the tensor first, for "
        "example to float32 or int64"
    )


def _bytes(values: torch.Tensor) -> torch.Tensor:
    """Return the bytes of a tensor. Its first dimension stays, as an all-to-all cuts along it."""
    rows, columns = values.shape[0] if values.dim() else 1, math.prod(values.shape[1:])
    return values.as_strided((rows, columns), (columns, 1)).view(torch.uint8)


def _parts(values: torch.Tensor) -> torch.Tensor:
    """Return the real and imaginary parts of complex numbers, in a dtype that Gloo has."""
    return torch.view_as_real(values.to(torch.promote_types(values.dtype, torch.complex64)))


def _signed(values: torch.Tensor, flip: int) -> torch.Tensor:
    return values.view(torch.int64) ^ flip


def _unsigned(values: torch.Tensor, flip: int) -> torch.Tensor:
    return (values ^ flip).view(torch.uint64)


def _keys(values: torch.Tensor, missing: int) -> torch.Tensor:
    """Return int64 in the order of floats."""
    bits = values.to(torch.float64).view(torch.int64)
    keys = torch.where(bits < 0, bits ^ _ALL_BUT_SIGN, bits)
    return torch.where(values.isnan(), missing, keys)


def _of_keys(keys: torch.Tensor) -> torch.Tensor:
    """Return the float64 of keys. Those of a NaN happen to be keys of the bits of one, too."""
    return torch.where(keys < 0, keys ^ _ALL_BUT_SIGN, keys).view(torch.float64)
