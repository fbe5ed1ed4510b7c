"""Parameters as flat vectors: one for the whole model, or one for each layer.

"Allocate the neural networks in a contiguous way and pack all the layers together and conduct one
communication each time" (You, Buluç and Demmel, "Scaling Deep Learning on GPU and Knights Landing
clusters", section 5.2). A packed vector pays the latency once; a vector for each layer pays it once
per layer.
"""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from innet.errors import UsageError

Packing = Literal["packed", "layers"] | int
"""One vector, one for each layer, or a number of vectors of about the same size."""


class Segment:
    """Parameters that travel as one flat vector: float32, on the CPU, of `size` elements."""

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self.parameters = tuple(parameters)
        self._sizes = [parameter.numel() for parameter in self.parameters]
        self.size = sum(self._sizes)

    def values(self) -> Tensor:
        """Return a copy of the parameters, float32 (size,)."""
        return _flat([parameter.detach() for parameter in self.parameters])

    def gradients(self) -> Tensor:
        """Return a copy of the gradients, float32 (size,). A missing gradient is zero.

        Raises UsageError for a sparse gradient.
        """
        for parameter in self.parameters:
            if parameter.grad is not None and parameter.grad.layout != torch.strided:
                raise UsageError(
                    "a gradient is sparse: make it dense, as with Embedding(sparse=False)"
                )
        return _flat(
            [
                torch.zeros_like(parameter) if parameter.grad is None else parameter.grad
                for parameter in self.parameters
            ]
        )

    def set_values(self, vector: Tensor) -> None:
        """Set the parameters to `vector`, (size,)."""
        with torch.no_grad():
            for parameter, part in self._parts(vector):
                parameter.copy_(part)

    def add_values(self, vector: Tensor) -> None:
        """Add `vector`, (size,), to the parameters."""
        with torch.no_grad():
            for parameter, part in self._parts(vector):
                parameter.add_(part.to(parameter.device))

    def set_gradients(self, vector: Tensor) -> None:
        """Set the gradients to `vector`, (size,)."""
        for parameter, part in self._parts(vector):
            if parameter.grad is None:
                parameter.grad = torch.empty_like(parameter)
            parameter.grad.copy_(part)

    def _parts(self, vector: Tensor) -> list[tuple[nn.Parameter, Tensor]]:
        parts = vector.split(self._sizes)
        return [
            (parameter, part.view(parameter.shape))
            for parameter, part in zip(self.parameters, parts, strict=True)
        ]


def segments(model: nn.Module, packing: Packing) -> list[Segment]:
    """Return the trained parameters of `model` as segments, in the order of the backward pass.

    Raises UsageError if there are none, or if one is not float32.
    """
    layers = [
        trained
        for module in model.modules()
        if (trained := [p for p in module.parameters(recurse=False) if p.requires_grad])
    ]
    layers = _each_once(layers)[::-1]
    parameters = [parameter for layer in layers for parameter in layer]
    if not parameters:
        raise UsageError("the model has no parameter that requires a gradient")
    for parameter in parameters:
        if parameter.dtype != torch.float32:
            raise UsageError(f"a parameter is {parameter.dtype}: only float32 can be exchanged")
    if packing == "packed":
        return [Segment(parameters)]
    if packing == "layers":
        return [Segment(layer) for layer in layers]
    if not isinstance(packing, int) or packing < 1:
        raise UsageError(f"packing {packing!r}: use 'packed', 'layers', or a number of at least 1")
    return [Segment(part) for part in _cut(parameters, packing)]


def frozen(model: nn.Module) -> list[Segment]:
    """Return the float32 parameters of `model` that are not trained, as a segment if there are any."""
    kept = [p for p in model.parameters() if not p.requires_grad and p.dtype == torch.float32]
    return [Segment(kept)] if kept else []


def _each_once(layers: list[list[nn.Parameter]]) -> list[list[nn.Parameter]]:
    """Leave each parameter only in the first of the modules that share it."""
    seen: set[int] = set()
    kept = []
    for layer in layers:
        new = [parameter for parameter in layer if id(parameter) not in seen]
        seen.update(map(id, new))
        if new:
            kept.append(new)
    return kept


def _cut(parameters: list[nn.Parameter], most: int) -> list[list[nn.Parameter]]:
    """Cut the parameters into at most `most` runs with about the same number of elements."""
    total = sum(parameter.numel() for parameter in parameters)
    runs: list[list[nn.Parameter]] = [[] for _ in range(most)]
    before = 0
    for parameter in parameters:
        middle = before + parameter.numel() / 2
        runs[min(most - 1, int(middle * most / total))].append(parameter)
        before += parameter.numel()
    return [run for run in runs if run]


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors]).cpu()
