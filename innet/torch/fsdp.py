"""FSDP2's hook for reduce-scatters: a quantizer of its own for each module, also with error feedback."""

from collections.abc import Sequence
from typing import Any
from weakref import ref

import torch
import torch.distributed as dist

from innet.errors import UsageError
from innet.host.quantizers.spec import QuantizerSpec
from innet.torch.group import backend_of


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
        if (backend := backend_of(group)) is None:
            raise UsageError(
                "innet's ReduceScatter is for groups of the backend innet, and this "
                f"{type(group).__name__} has another"
            )
        # PyTorch 2.13 has another name for it, and warns of the old one.
        reduce_scatter = getattr(dist, "reduce_scatter_single", dist.reduce_scatter_tensor)
        with backend.quantized(self._quantizer, (ref(self),)):
            return reduce_scatter(output_tensor, input_tensor, op, group, async_op)  # type: ignore[no-any-return]
