"""FSDP2's hook for reduce-scatters: a quantizer of its own for each module, also with error feedback."""

from collections.abc import Sequence
from typing import Any
from weakref import ref

import torch
import torch.distributed as dist

from innet.errors import UsageError
from innet.host.quantizers.spec import QuantizerSpec
from innet.torch.group import InnetGroup


class ReduceScatter:
    """A reduce-scatter for ``module.set_custom_reduce_scatter(ReduceScatter("int8+feedback"))``.

    The module's gradients travel in this quantizer's format instead of the group's. Error feedback
    keeps an error for each gradient of this rank, in float32. So each module needs an object of its
    own. Raises UsageError if there is no such quantizer.
    """

    def __init__(self, quantizer: str) -> None:
        QuantizerSpec.read(quantizer)
        self._quantizer = quantizer

    def allocate(
        self, size: Sequence[int], *, dtype: torch.dtype, device: torch.device
    ) -> torch.Tensor:
        """Return memory for gradients, as FSDP2 asks for it."""
        return torch.empty(*size, dtype=dtype, device=device)

    def __call__(
        self,
        output_tensor: torch.Tensor,
        input_tensor: torch.Tensor,
        group: Any,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work | None:
        """Reduce gradients; the arguments are FSDP2's. Raises UsageError for another backend's group."""
        if not isinstance(group, InnetGroup):
            raise UsageError(
                f"innet's ReduceScatter is for groups of the backend innet, not {type(group).__name__}"
            )
        work = group.reduce_scatter_with(
            output_tensor, input_tensor, op, quantizer=self._quantizer, key=(ref(self),)
        )
        if async_op:
            return work
        work.wait()
        return None
