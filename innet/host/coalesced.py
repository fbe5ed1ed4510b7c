"""PyTorch tensors through an agent: the common part of innet's hook and process group."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import torch

from innet.host.agent import Agent
from innet.host.tensors import ReduceOp

if TYPE_CHECKING:
    from concurrent.futures import Future

Value = TypeVar("Value")
Result = TypeVar("Result")

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


def submit(
    agent: Agent,
    tensors: Sequence[torch.Tensor],
    op: ReduceOp,
    finish: Callable[[torch.Tensor], Result],
    *,
    in_place: bool = True,
    **options: Any,
) -> "Future[Result]":
    """Reduce tensors of one dtype in one all-reduce, in place where that is wanted and saves a copy.

    float16 and bfloat16 go through the switch too, as float32. `finish` turns the reduced tensor
    into the future's result, before any later all-reduce begins. It gets one flat tensor if there
    were several or if only a `part` is wanted, and float32 instead of narrower floats. The `options` and
    the errors are those of :meth:`Agent.submit`.
    """
    whole = cast("torch.Tensor", Coalesced(tensors))
    return agent.submit(whole, op, in_place=in_place, finish=finish, **options)


def torch_future(
    future: "Future[Value]", device: torch.device, finish: Callable[[Value], Result]
) -> torch.futures.Future[Result]:
    """Turn a future of Python's into a future of PyTorch's, with `finish` applied to its result."""
    on_gpu = device.type != "cpu"
    done: torch.futures.Future[None] = torch.futures.Future(devices=[device] if on_gpu else None)
    future.add_done_callback(lambda _: done.set_result(None))
    # backward() shows an error's message only if a callback has raised it.
    return done.then(lambda _: finish(future.result()))
