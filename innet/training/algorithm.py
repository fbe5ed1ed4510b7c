"""What all training algorithms have in common: a model, a torch optimizer, a transport, and `step`."""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Self

from torch import nn
from torch.optim import Optimizer

from innet.errors import UsageError
from innet.training.packing import Packing, segments
from innet.training.transports.base import Transport


@dataclass
class Times:
    """Seconds so far, without the user's forward and backward passes."""

    waiting: float = 0.0
    """For other workers, the network, or the server: communication that nothing hides."""
    updating: float = 0.0
    """In the optimizer, and in copying gradients and parameters."""


class Algorithm(ABC):
    """Data-parallel training in the user's own loop.

    Every worker makes one over its transport::

        with make("pipe-sgd", model, optimizer, transport) as algorithm:
            for images, labels in batches:
                algorithm.begin()
                optimizer.zero_grad()
                loss(model(images), labels).backward()
                algorithm.step()

    All workers start with worker 0's parameters. The trained parameters have to be float32.
    """

    def __init__(
        self, model: nn.Module, optimizer: Optimizer, transport: Transport, packing: Packing
    ) -> None:
        if not isinstance(transport, Transport):
            raise UsageError(
                f"the transport is a {type(transport).__name__}: use one of "
                "innet.training.transports, such as SwitchTransport(agent)"
            )
        self.optimizer, self.transport = optimizer, transport
        self.segments = segments(model, packing)
        self.times = Times()
        self.iteration = 0
        for segment in self.segments:
            segment.set_values(transport.broadcast(segment.values()))

    def begin(self) -> None:  # noqa: B027 - most do nothing here
        """Before a forward pass. Some algorithms wait here; who leaves it out loses nothing but that."""

    def step(self) -> None:
        """After a backward pass: exchange what the algorithm exchanges, and update the model."""
        self.iteration += 1
        self.update()

    @abstractmethod
    def update(self) -> None:
        """The algorithm."""

    def close(self) -> None:  # noqa: B027 - some have nothing under way
        """Finish what is under way. The transport stays open."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is None:
            self.close()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Time that passes in here is waiting."""
        began = time.perf_counter()
        yield
        self.times.waiting += time.perf_counter() - began

    @contextmanager
    def updating(self) -> Iterator[None]:
        """Time that passes in here is updating."""
        began = time.perf_counter()
        yield
        self.times.updating += time.perf_counter() - began


def rate(optimizer: Optimizer) -> float:
    """The step size of an optimizer. Raises UsageError if it has several."""
    rates = {float(group["lr"]) for group in optimizer.param_groups}
    if len(rates) > 1:
        raise UsageError(f"the optimizer has step sizes {sorted(rates)}: it has to have one")
    return rates.pop()


def momentum(optimizer: Optimizer) -> float:
    """The momentum of an optimizer; zero if it knows none."""
    return max(float(group.get("momentum", 0.0)) for group in optimizer.param_groups)
