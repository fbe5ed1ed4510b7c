"""PyTorch's collectives, translated into collectives of an agent.

PyTorch has several forms of each collective. A form takes lists of tensors, or one tensor that
joins them, and may combine several collectives in one call. Here all forms become lists of flat
tensors. `None` means that the arguments are not as the switch needs them. Gloo then carries the
call, or raises PyTorch's usual error.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from innet.host.agent import Agent
from innet.host.agreement import ALL_GATHER, REDUCE_SCATTER, Collective
from innet.host.coalesced import submit
from innet.host.integers import Bytes
from innet.host.tensors import ReduceOp, as_array, as_bytes, bytes_of, flat_from_bytes
from innet.torch.placing import may_overlap, put

if TYPE_CHECKING:
    from concurrent.futures import Future

Tensors = Sequence[torch.Tensor]

_AS_IN_NUMPY = (torch.float32, torch.int32, torch.int64)
"""The dtypes that the switch sums as they are."""


@dataclass(frozen=True)
class Gather:
    """An all-gather: `outputs[i][rank]` gets the bits of a rank's `inputs[i]`.

    In `copies`, a tensor of the caller comes before the one that stands in for it.
    """

    inputs: Tensors
    outputs: Sequence[Tensors]
    copies: Sequence[tuple[torch.Tensor, torch.Tensor]] = ()

    @classmethod
    def into_lists(cls, outputs: Sequence[Tensors], inputs: Tensors, ranks: int) -> "Gather | None":
        """Return the all-gather of tensors into a list for each of them."""
        made = cls(list(inputs), [list(each) for each in outputs])
        return made if made._fits(ranks) else None

    @classmethod
    def into_tensors(cls, outputs: Tensors, inputs: Tensors, ranks: int) -> "Gather | None":
        """Return the all-gather of tensors into one tensor for each of them."""
        if any(
            out.numel() != ranks * own.numel() for out, own in zip(outputs, inputs, strict=True)
        ):
            return None
        # Elements that share memory may be of different ranks, so they are compared as a whole.
        into = [
            torch.empty_like(out, memory_format=torch.contiguous_format)
            if may_overlap(out)
            else out
            for out in outputs
        ]
        copies = [(out, one) for out, one in zip(outputs, into, strict=True) if out is not one]
        made = cls.into_lists(cut, inputs, ranks) if (cut := _cut(into, ranks)) else None
        return made and replace(made, copies=copies)

    def _fits(self, ranks: int) -> bool:
        if len(self.outputs) != len(self.inputs) or not self.inputs:
            return False
        return all(
            len(parts) == ranks
            and all(part.numel() == own.numel() and part.dtype == own.dtype for part in parts)
            for own, parts in zip(self.inputs, self.outputs, strict=True)
        )

    @property
    def tensors(self) -> Tensors:
        """Return all tensors of the call."""
        return [*self.inputs, *(part for parts in self.outputs for part in parts)]

    def run(self, agent: Agent, **options: Any) -> "Future[None]":
        """Gather through the switch, in the background; options are those of :meth:`Agent.perform`."""
        joined = _Joined(self.inputs)
        ends = np.cumsum([own.numel() * own.element_size() for own in self.inputs])[:-1]

        def fill(found: Bytes) -> None:
            for rank, row in enumerate(found):
                for parts, content in zip(self.outputs, np.split(row, ends), strict=True):
                    put_bytes(parts[rank], content)
            for tensor, values in self.copies:
                put(tensor, values)

        return agent.submit_move(  # type: ignore[type-var]
            joined, ALL_GATHER, fill, self._memory, **options
        )

    @property
    def _memory(self) -> Bytes | None:
        """Return the bytes of the outputs if they follow each other in memory, as in one tensor."""
        if len(self.inputs) != 1:
            return None
        [parts] = self.outputs
        first, size = parts[0], parts[0].numel() * parts[0].element_size()
        places = [part.data_ptr() - first.data_ptr() for part in parts]
        one = (
            all(map(_is_its_memory, parts))
            and len({part.untyped_storage().data_ptr() for part in parts}) == 1
        )
        if not (one and size and places == [rank * size for rank in range(len(parts))]):
            return None
        whole = torch.as_strided(first, (len(parts) * first.numel(),), (1,))
        return as_bytes(whole)


@dataclass(frozen=True)
class Scatter:
    """A reduce-scatter of flat `inputs`, by rank. The outputs get the elements from `first` on."""

    inputs: Tensors
    outputs: Tensors
    first: int

    @classmethod
    def of_lists(
        cls, outputs: Tensors, inputs: Sequence[Tensors], rank: int, ranks: int
    ) -> "Scatter | None":
        """Return the reduce-scatter of a list of tensors, one for each rank."""
        if len(outputs) != 1 or len(inputs) != 1 or len(inputs[0]) != ranks:
            return None
        [output], [parts] = outputs, inputs
        made = cls(list(parts), [output], sum(part.numel() for part in parts[:rank]))
        return made if parts[rank].numel() == output.numel() else None

    @classmethod
    def of_tensors(
        cls, outputs: Tensors, inputs: Tensors, rank: int, ranks: int
    ) -> "Scatter | None":
        """Return the reduce-scatter of tensors that hold the parts of all ranks."""
        if len(outputs) != len(inputs) or not inputs:
            return None
        pairs = list(zip(outputs, inputs, strict=True))
        if any(given.numel() != ranks * out.numel() for out, given in pairs):
            return None
        first = rank * sum(out.numel() for out in outputs)
        if len(inputs) == 1:
            return cls(list(inputs), list(outputs), first)
        # Views, because the tensors are read when the call begins.
        if not (cut := _cut(inputs, ranks)):
            return None
        by_rank = zip(*cut, strict=True)
        return cls([part for parts in by_rank for part in parts], list(outputs), first)

    @property
    def tensors(self) -> Tensors:
        """Return all tensors of the call."""
        return [*self.inputs, *self.outputs]

    def run(self, agent: Agent, op: ReduceOp, **options: Any) -> "Future[None]":
        """Reduce through the switch, in the background; options are those of :meth:`Agent.submit`."""

        def fill(result: torch.Tensor) -> None:
            parts = result.split([output.numel() for output in self.outputs])
            for output, part in zip(self.outputs, parts, strict=True):
                put(output, part)

        size = sum(output.numel() for output in self.outputs)
        return submit(
            agent,
            self.inputs,
            op,
            fill,
            in_place=False,
            collective=REDUCE_SCATTER,
            part=range(self.first, self.first + size),
            **options,
        )


def all_reduce(agent: Agent, tensors: Tensors, op: ReduceOp, **options: Any) -> "Future[Any]":
    """Combine tensors in place through the switch, in the background.

    The options are those of :meth:`Agent.submit`.
    """
    if (values := _memory_of(tensors)) is None:
        return submit(agent, tensors, op, partial(put_all, tensors), **options)

    def fill(result: "np.ndarray[Any, Any]") -> None:
        if not np.may_share_memory(values, result):
            np.copyto(values, result)

    return agent.submit(values, op, in_place=True, finish=fill, **options)


def broadcast(agent: Agent, tensor: torch.Tensor, root: int, **options: Any) -> "Future[None]":
    """Broadcast a tensor in the background. The options are those of :meth:`Agent.perform`."""
    collective = Collective("broadcast", root)
    into = as_bytes(tensor) if _is_its_memory(tensor) else None

    def fill(content: Bytes) -> None:
        if agent.info.rank != root:
            put_bytes(tensor, content)

    return agent.submit_move(tensor, collective, fill, into, **options)


def reduce(
    agent: Agent, tensor: torch.Tensor, op: ReduceOp, root: int, **options: Any
) -> "Future[None]":
    """Reduce a tensor through the switch, in the background. Only the root's tensor changes.

    The options are those of :meth:`Agent.submit`.
    """

    def fill(result: torch.Tensor) -> None:
        if agent.info.rank == root:
            put(tensor, result)

    part = range(tensor.numel() if agent.info.rank == root else 0)
    collective = Collective("reduce", root)
    return submit(
        agent, [tensor], op, fill, in_place=False, collective=collective, part=part, **options
    )


def put_sparse(tensor: torch.Tensor, values: torch.Tensor) -> None:
    """Give a sparse tensor another's indices and values."""
    with torch.no_grad():  # a sparse tensor's `data` has indices and values of its own
        tensor.copy_(values.to(tensor.dtype))


def put_all(tensors: Tensors, result: torch.Tensor) -> torch.Tensor | None:
    """Copy the result of one all-reduce into its tensors: dense ones in turn, or a single sparse one.

    Returns the sparse tensor, which has new memory, so that the agent hands it over.
    """
    if result.layout != torch.strided:
        put_sparse(tensors[0], result)
        return tensors[0]
    parts = result.reshape(-1).split([tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        if part.data_ptr() != tensor.data_ptr():
            put(tensor, part)
    return None


def put_bytes(tensor: torch.Tensor, content: Bytes) -> None:
    """Copy bytes into a tensor of any strides."""
    if _is_its_memory(tensor):
        if content.ctypes.data != tensor.data_ptr():  # they may have been received there
            np.copyto(as_bytes(tensor), content)
        return
    put(tensor, flat_from_bytes(content, tensor.dtype))


def _is_its_memory(tensor: torch.Tensor) -> bool:
    """Return whether the CPU's memory has the values in order, with no sign or conjugation left out."""
    as_it_is = tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj()
    return tensor.device.type == "cpu" and as_it_is


def _cut(tensors: Tensors, count: int) -> Sequence[Tensors] | None:
    """Return equal parts of each tensor, as views in the order of its elements, or None."""
    if any(not each.is_contiguous() and each.shape[0] % count for each in tensors):
        return None
    return [
        each.view(count, each.numel() // count).unbind()
        if each.is_contiguous()
        else each.chunk(count)
        for each in tensors
    ]


def _memory_of(tensors: Tensors) -> "np.ndarray[Any, Any] | None":
    """Return a view of a tensor that numpy can have as it is, or None.

    Other tensors need PyTorch's operations, which take longer for a few numbers than their
    exchange.
    """
    [tensor, *others] = tensors
    if others or tensor.dtype not in _AS_IN_NUMPY or tensor.layout != torch.strided:
        return None
    return as_array(tensor.detach()) if _is_its_memory(tensor) else None


class _Joined:
    """Several tensors as one. They are read when the agent asks for their bytes."""

    def __init__(self, tensors: Tensors) -> None:
        self._tensors = tensors
        self.device = tensors[0].device

    def detach(self) -> torch.Tensor:
        """Return the present bytes of all tensors."""
        parts = [bytes_of(each) for each in self._tensors]
        whole: Any = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return torch.from_numpy(whole)
