"""PyTorch tensors that an agent reads when their all-reduce begins, not when it is submitted."""

from collections.abc import Sequence

import torch

NARROW = (torch.float16, torch.bfloat16)
"""Dtypes that travel as float32, which holds all their values; the result is rounded once, at the end."""


class Coalesced:
    """One or several tensors of one dtype and device as a single tensor, for :meth:`Agent.submit`.

    Several tensors become a flat one, and float16 and bfloat16 become float32. This happens in
    :meth:`detach`, which the agent calls when the all-reduce begins. The values therefore include
    what earlier all-reduces have written into the same tensors, as the order of the calls promises.
    """

    def __init__(self, tensors: Sequence[torch.Tensor]) -> None:
        first = tensors[0]
        summed = first.layout in (torch.strided, torch.sparse_coo)
        self._tensors = tensors
        self.dtype = torch.float32 if summed and first.dtype in NARROW else first.dtype
        self.layout, self.device = first.layout, first.device
        self.shape = first.shape if len(tensors) == 1 else torch.Size([self.numel()])

    def numel(self) -> int:
        """Return the number of elements of all tensors."""
        return sum(tensor.numel() for tensor in self._tensors)

    def sparse_dim(self) -> int:
        """Return the number of sparse dimensions. Only a single tensor has some."""
        return self._tensors[0].sparse_dim()

    def detach(self) -> torch.Tensor:
        """Return the tensors' present values. The result may share memory with a single tensor."""
        parts = [tensor.detach() for tensor in self._tensors]
        whole = parts[0] if len(parts) == 1 else torch.cat([part.reshape(-1) for part in parts])
        return whole.to(self.dtype)
