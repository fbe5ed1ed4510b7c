"""The kinds of tensors, and how each is summed."""

import math
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np

from innet.errors import UnsupportedTensor, UsageError

if TYPE_CHECKING:
    import torch

ReduceOp = Literal["sum", "mean", "max", "min"]
REDUCE_OPS: tuple[ReduceOp, ...] = get_args(ReduceOp)

MOST_ELEMENTS = 2**31 - 1
_INTEGERS = ("int32", "int64")
_FRACTIONS = ("float16", "bfloat16", "float32", "float64", "complex64", "complex128")
_DENSE, _SPARSE = "torch.strided", "torch.sparse_coo"


def summed_by_switch(tensor: Any, op: ReduceOp, *, fallback: bool) -> bool:
    """Return whether the switch can sum a tensor; if not, the fallback can.

    Raises UnsupportedTensor if neither can, or if only a fallback could and there is none. Raises
    UsageError for an unknown `op`.
    """
    if op not in REDUCE_OPS:
        raise UsageError(f"op {op!r}: it has to be one of {', '.join(REDUCE_OPS)}")
    check_is_tensor(tensor)
    dtype = dtype_name(tensor.dtype)
    layout = str(getattr(tensor, "layout", _DENSE))
    if (size := extent(tensor)) > MOST_ELEMENTS:
        unit = "rows" if layout == _SPARSE else "elements"
        raise UnsupportedTensor(f"{size} {unit} are more than {MOST_ELEMENTS}: split the tensor")
    if op in ("max", "min"):
        if layout == _DENSE and dtype in ("float32", "int32"):
            return True
        raise UnsupportedTensor(
            f"the switch finds the {op} of dense float32 and int32 tensors, not of {dtype}"
        )
    if layout == _DENSE or (layout == _SPARSE and tensor.sparse_dim()):
        if dtype == "float32":
            return True
        if dtype in _INTEGERS:
            if op == "sum":
                return True
            raise UnsupportedTensor(f"the mean of {dtype} has fractions: ask for op='sum'")
    return _check_fallback(dtype, layout, fallback=fallback)


def check_is_tensor(tensor: Any) -> None:
    """Raise UnsupportedTensor for anything but a torch tensor with content or a numpy array."""
    if not isinstance(tensor, np.ndarray) and not hasattr(tensor, "detach"):
        kind = type(tensor).__name__
        raise UnsupportedTensor(f"innet sums torch tensors and numpy arrays, not {kind}")
    if getattr(tensor, "is_meta", False):
        raise UnsupportedTensor("a tensor on the device meta has no content")


def check_has_bytes(tensor: Any) -> None:
    """Raise UnsupportedTensor unless a tensor's content is its bytes in memory."""
    check_is_tensor(tensor)
    layout = str(getattr(tensor, "layout", _DENSE))
    if layout != _DENSE or (isinstance(tensor, np.ndarray) and tensor.dtype.hasobject):
        kind = f"tensors of the layout {layout}" if layout != _DENSE else "arrays of objects"
        raise UnsupportedTensor(f"innet gathers and broadcasts dense tensors, not {kind}")


@lru_cache(maxsize=64)
def dtype_name(dtype: Any) -> str:
    """Return the name of a dtype of torch or numpy, such as ``float32``. Numpy takes long to make one."""
    return str(dtype).removeprefix("torch.")


def is_sparse(tensor: Any) -> bool:
    """Return whether a tensor is sparse, in PyTorch's layout of coordinates (COO)."""
    return str(getattr(tensor, "layout", _DENSE)) == _SPARSE


def extent(tensor: Any) -> int:
    """Return the number of a tensor's elements, or of a sparse tensor's rows, present or not."""
    if is_sparse(tensor):
        return math.prod(tensor.shape[: tensor.sparse_dim()])
    elements: int = tensor.size if isinstance(tensor, np.ndarray) else tensor.numel()
    return elements


def quantized_on_device(tensor: Any, op: ReduceOp) -> bool:
    """Return whether a torch tensor becomes integers on its own device.

    Only sums and means of float32 do. An extreme of float32 is exact and needs no quantizer.
    """
    on_gpu = tensor.device.type == "cuda" and dtype_name(tensor.dtype) == "float32"
    return on_gpu and op in ("sum", "mean")


def _check_fallback(dtype: str, layout: str, *, fallback: bool) -> bool:
    remedy = "convert it first"
    if dtype in _FRACTIONS and layout in (_DENSE, _SPARSE):
        if fallback:
            return False
        remedy += ", or join with a fallback"
    if layout != _DENSE:
        raise UnsupportedTensor(
            f"the switch sums dense float32, int32 and int64 tensors, and sparse ones of the layout "
            f"{_SPARSE}, not {dtype} of the layout {layout}: {remedy}"
        )
    raise UnsupportedTensor(
        f"the switch sums float32, int32 and int64 tensors, not {dtype}: {remedy}"
    )


def bytes_of(tensor: Any) -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """Return a tensor's bytes in order, (size,) uint8, which may share its memory."""
    if isinstance(tensor, np.ndarray):
        return np.ascontiguousarray(tensor).reshape(-1).view(np.uint8)
    return as_bytes(resolved(tensor.detach().cpu()).contiguous())


def resolved(tensor: Any) -> Any:
    """Return a torch tensor whose memory has its values. Views may leave out a conjugation or a sign."""
    return tensor.resolve_conj().resolve_neg()


def as_bytes(tensor: "torch.Tensor") -> "np.ndarray[Any, np.dtype[np.uint8]]":
    """Return a view of a contiguous CPU tensor's bytes, (size,) uint8."""
    import torch

    # A tensor of one element is contiguous whatever its strides are, but has no bytes to view.
    return as_array(tensor.detach().as_strided((tensor.numel(),), (1,)).view(torch.uint8))


def as_array(tensor: "torch.Tensor") -> "np.ndarray[Any, Any]":
    """Return a view of a dense CPU tensor of a dtype that numpy has.

    PyTorch's own ``Tensor.numpy()`` would leave the memory not resizable, and so FSDP unable to free it.
    """
    dtype = _numpys(tensor.dtype)
    if not tensor.numel():
        return np.empty(tuple(tensor.shape), dtype)
    return np.asarray(_Memory(tensor, dtype))


@lru_cache(maxsize=64)
def _numpys(dtype: "torch.dtype") -> "np.dtype[Any]":
    """Return the dtype of numpy that is called as one of PyTorch's."""
    return np.dtype(dtype_name(dtype))


class _Memory:
    """A tensor's memory, in a form that numpy reads. Arrays of it keep the tensor."""

    def __init__(self, tensor: "torch.Tensor", dtype: "np.dtype[Any]") -> None:
        self._tensor = tensor
        self.__array_interface__ = {
            "version": 3,
            "typestr": dtype.str,
            "shape": tuple(tensor.shape),
            "strides": None
            if tensor.is_contiguous()
            else tuple(dtype.itemsize * each for each in tensor.stride()),
            "data": (tensor.data_ptr(), False),  # not read-only
        }


def from_bytes(content: "np.ndarray[Any, np.dtype[np.uint8]]", like: Any, shape: Any) -> Any:
    """Return a new tensor with this content and shape, of the kind, dtype and device of `like`."""
    if isinstance(like, np.ndarray):
        return np.array(content, order="C").reshape(-1).view(like.dtype).reshape(shape)
    return flat_from_bytes(content, like.dtype).reshape(shape).to(like.device)


def flat_from_bytes(
    content: "np.ndarray[Any, np.dtype[np.uint8]]", dtype: "torch.dtype"
) -> "torch.Tensor":
    """Return a new flat tensor with this content on the CPU."""
    import torch

    if not content.size:  # PyTorch cannot change the dtype of an empty tensor that was an array
        return torch.empty(0, dtype=dtype, device="cpu")
    return torch.from_numpy(np.array(content, order="C").reshape(-1)).view(dtype)
