"""All-reduces of tensors of any kind: what a caller asked for, and which exchanges carry it out."""

from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from innet.host.agreement import Collective
from innet.host.exchanges import Exchanges
from innet.host.portions import portion
from innet.host.quantizers.spec import QuantizerSpec
from innet.host.reducer import Reducer
from innet.host.sparse import rows_of, tensor_of
from innet.host.tensors import (
    ReduceOp,
    as_array,
    is_sparse,
    quantized_on_device,
    resolved,
)

if TYPE_CHECKING:
    import torch


@dataclass(slots=True)
class TensorCall:
    """A submitted all-reduce of a tensor; see :meth:`innet.Agent.submit`.

    `by_switch` tells whether the switch can sum it.
    """

    tensor: Any
    op: ReduceOp
    by_switch: bool
    spec: QuantizerSpec
    key: Hashable
    in_place: bool
    collective: Collective
    part: range | None

    def reduced(self, exchanges: Exchanges, reducer: Reducer) -> Any:
        """Return the result of the all-reduce, of the same kind and on the same device as the tensor."""
        if not self.by_switch:
            whole = self._reduce_by_fallback(exchanges)
            return whole if self.part is None else portion(whole.reshape(-1), self.part)
        shape = self.tensor.shape if self.part is None else (-1,)
        if isinstance(self.tensor, np.ndarray):
            return self._reduce_flat(self.tensor.ravel(), reducer).reshape(shape)
        import torch

        if is_sparse(self.tensor):
            return self._reduce_sparse(self.tensor.detach(), reducer)
        if self.tensor.device.type == "cpu":  # numpy's operations take less time than PyTorch's
            values = as_array(resolved(self.tensor.detach())).ravel()
            return torch.from_numpy(self._reduce_flat(values, reducer).reshape(shape))
        flat = resolved(self.tensor.detach()).reshape(-1)
        if quantized_on_device(flat, self.op):
            mean = self.op == "mean"
            on_gpu = reducer.on_device(
                flat, self.spec, self.key, mean=mean, collective=self.collective, part=self.part
            )
            return on_gpu.reshape(shape)
        reduced = torch.from_numpy(self._reduce_flat(flat.cpu().numpy(), reducer))
        return reduced.to(self.tensor.device).reshape(shape)

    def _reduce_flat(
        self, values: "np.ndarray[Any, Any]", reducer: Reducer
    ) -> "np.ndarray[Any, Any]":
        if self.op in ("max", "min"):
            return portion(reducer.extremes(values, self.op, self.collective), self.part)
        if values.dtype == np.float32:
            return reducer.floats(
                values, self.spec, self.key, mean=self.op == "mean", in_place=self.in_place,
                collective=self.collective, part=self.part,
            )  # fmt: skip
        return reducer.integers(values, self.collective, self.spec, self.part)

    def _reduce_sparse(self, tensor: "torch.Tensor", reducer: Reducer) -> "torch.Tensor":
        own, mean = rows_of(tensor), self.op == "mean"
        reduced = reducer.rows(own, self.spec, mean=mean, collective=self.collective)
        return tensor_of(reduced, tensor)

    def _reduce_by_fallback(self, exchanges: Exchanges) -> Any:
        import torch

        mean = self.op == "mean"
        if isinstance(self.tensor, np.ndarray):
            own = torch.from_numpy(self.tensor.copy())  # with positive strides
            return exchanges.combine(own, mean=mean).numpy()
        combined = exchanges.combine(self.tensor.detach().cpu(), mean=mean)
        return combined.to(self.tensor.device)
