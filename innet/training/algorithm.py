"""The base of all training algorithms: a model, a torch optimizer, a transport, and `step`."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from torch import nn
from torch.optim import Optimizer

from innet.errors import UsageError
from innet.training.packing import Packing, frozen, segments
from innet.training.transports.base import Transport


@dataclass
class Times:
    """Seconds spent so far, without the user's forward and backward passes."""

    waiting: float = 0.0
    """Waiting for other workers, the network, or the server: communication that nothing hides."""
    updating: float = 0.0
    """Running the optimizer, and copying gradients and parameters."""


class Algorithm(ABC):
    """Data-parallel training in the user's own loop.

    Every worker makes one over its transport::

        with make("pipe-sgd", model, optimizer, transport) as algorithm:
            for images, labels in batches:
                algorithm.begin()
                optimizer.zero_grad()
                loss(model(images), labels).backward()
                algorithm.step()

    All workers start with worker 0's parameters. The trained parameters must be float32. Other
    parameters are worker 0's only if they are float32.
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, transport: Transport, packing: Packing
    ) -> None:
        if not isinstance(transport, Transport):
            raise UsageError(
                f"the transport is a {type(transport).__name__}: use one of "
                "innet.training.transports, such as AgentTransport(agent)"
            )
        self.optimizer, self.transport = optimizer, transport
        self.segments = segments(model, packing)
        transport.check_sizes([segment.size for segment in self.segments])
        self.times = Times()
        self.iteration = 0
        for segment in (*self.segments, *frozen(model)):
            segment.set_values(transport.broadcast(segment.values()))

    def begin(self) -> None:  # noqa: B027 - most do nothing here
        """Prepare a forward pass. Some algorithms communicate here. Without this call, `step` does it."""

    def step(self) -> None:
        """Exchange the algorithm's vectors after a backward pass, and update the model."""
        self.iteration += 1
        self.update()

    @abstractmethod
    def update(self) -> None:
        """Run one iteration of the algorithm."""

    def close(self) -> None:  # noqa: B027 - some have nothing under way
        """Finish the exchanges under way. The transport stays open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Count the time that passes in this context as waiting."""
        began = time.perf_counter()
        yield
        self.times.waiting += time.perf_counter() - began

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Count the time that passes in this context as updating."""
        began = time.perf_counter()
        yield
        self.times.updating += time.perf_counter() - began


def rate(optimizer: Optimizer) -> float:
    """Return the step size of an optimizer. Raises UsageError if it has several."""
    rates = {float(group["lr"]) for group in optimizer.param_groups}
    if len(rates) > 1:
        raise UsageError(f"the optimizer has step sizes {sorted(rates)}: it has to have one")
    return rates.pop()


def momentum(optimizer: Optimizer) -> float:
    """Return the momentum of an optimizer, or zero if it has none."""
    return max(float(group.get("momentum", 0.0)) for group in optimizer.param_groups)
