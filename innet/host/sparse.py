"""Sparse tensors as rows: PyTorch's COO tensors, such as the gradient of an embedding.

A sparse tensor has sparse dimensions in front of dense ones. Together the sparse ones number the
rows, in row-major order. A row has the elements of the dense dimensions. A row is present if the
tensor has an index for it, even if all of its elements are zero, as with Gloo.
"""

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from innet.host.blocks import Mask, Positions
from innet.host.tensors import as_array

if TYPE_CHECKING:
    import torch


@dataclass(frozen=True)
class Rows:
    """Some rows of a matrix of `count` rows: their positions, ascending, and their (n, width) values."""

    count: int
    positions: Positions
    values: npt.NDArray[Any]

    @property
    def occupied(self) -> Mask:
        """Return whether each row of the matrix is present, (count,)."""
        mask = np.zeros(self.count, bool)
        mask[self.positions] = True
        return mask

    def at(self, positions: Positions) -> npt.NDArray[Any]:
        """Return the rows at ascending positions, (n, width). Rows that are not present are zeros."""
        found = np.zeros((len(positions), self.values.shape[1]), self.values.dtype)
        places = np.searchsorted(positions, self.positions)
        wanted = places < len(positions)
        wanted[wanted] = positions[places[wanted]] == self.positions[wanted]
        found[places[wanted]] = self.values[wanted]
        return found


def rows_of(tensor: "torch.Tensor") -> Rows:
    """Return a sparse tensor's rows, on the CPU. Rows of the same index are added."""
    tensor = tensor.detach().coalesce()
    cut = tensor.sparse_dim()
    sizes, width = tuple(tensor.shape[:cut]), math.prod(tensor.shape[cut:])
    indices = as_array(tensor.indices().cpu())
    positions = np.ravel_multi_index(tuple(indices), sizes) if indices.size else indices[0]
    values = as_array(tensor.values().cpu())
    return Rows(math.prod(sizes), positions, values.reshape(len(positions), width))


def tensor_of(rows: Rows, like: "torch.Tensor") -> "torch.Tensor":
    """Return rows as a coalesced sparse tensor, with the shape and device of `like`."""
    import torch

    cut = like.sparse_dim()
    sizes = tuple(like.shape[:cut]) if rows.count else (1,) * cut
    indices = np.stack(np.unravel_index(rows.positions, sizes))
    values = rows.values.reshape(len(rows.positions), *like.shape[cut:])
    made = torch.sparse_coo_tensor(
        torch.from_numpy(indices),
        torch.from_numpy(values),
        like.shape,
        is_coalesced=True,
        check_invariants=False,  # they hold, and checking takes time
    )
    return made.to(like.device)
