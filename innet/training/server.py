"""The parameter server: a centre vector, and its updates when workers push.

A server is called by one thread for each worker. A call blocks for as long as the algorithm lets
the worker wait. :mod:`innet.training.transports` brings the calls over a network.
"""

import inspect
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from innet.errors import PeerFailed, UsageError

WITHIN = 600.0
"""The longest time that a worker waits at a server for the others, in seconds."""

LOST = (
    "another worker broke down, or has been silent for too long: see its error, and start all again"
)


@dataclass(frozen=True)
class Rule:
    """A server's treatment of gradients, in terms that other parameter servers understand.

    With `asynchronous` every gradient is an update. Otherwise the mean of all workers' gradients
    makes one update. An update is a step of `like`, with the step size that comes with the
    gradients.
    """

    like: Optimizer
    asynchronous: bool


class CentreServer(ABC):
    """A centre, float32 (n,), for `workers` workers. `updates` counts its changes.

    With `one_at_a_time` each worker gets its answer before the next one is served, in the order of
    arrival. Otherwise the transfers of several workers overlap.
    """

    def __init__(self, initial: Tensor, workers: int, *, one_at_a_time: bool = False) -> None:
        self.centre = initial.detach().clone()
        self.workers = workers
        self.one_at_a_time = one_at_a_time
        self.conversation = threading.Lock() if one_at_a_time else nullcontext()
        self.updates = 0
        self.present = set(range(workers))
        self.changed = threading.Condition()
        self._failed = False

    def pull(self, worker: int) -> Tensor:
        """Return a copy of the centre."""
        del worker
        with self.changed:
            return self.centre.clone()

    @abstractmethod
    def push_pull(self, worker: int, vector: Tensor, rate: float) -> Tensor:
        """Take a worker's vector, (n,), and its step size. Return the answer, (n,)."""

    def rule(self) -> Rule:
        """Return the server's rule, for a server of another kind. Raises UsageError if there is none."""
        raise UsageError(
            f"{type(self).__name__} is more than gradients and an optimizer: use a transport with "
            "parameter servers of innet.training, such as ProcessGroupTransport"
        )

    def push(self, worker: int, vector: Tensor, rate: float) -> None:
        """Take a worker's vector as :meth:`push_pull` does, without an answer."""
        self.push_pull(worker, vector, rate)

    def leave(self, worker: int) -> None:
        """Remove a worker that will not push again: nobody waits for it any more."""
        with self.changed:
            self.present.discard(worker)
            self.left(worker)
            self.changed.notify_all()

    def fail(self) -> None:
        """Raise PeerFailed in all waiting calls, because a worker broke down."""
        with self.changed:
            self._failed = True
            self.changed.notify_all()

    def left(self, worker: int) -> None:  # noqa: B027 - most need nothing
        """React to a worker's departure. Called with the lock held."""

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds. Call it with the lock held. Raises PeerFailed."""
        done = self.changed.wait_for(lambda: self._failed or condition(), WITHIN)
        if self._failed or not done:
            raise PeerFailed(LOST)


class CentreOptimizer:
    """A torch optimizer of the workers' kind and options, over a server's centre.

    ``torch.optim.SGD(lr=η)`` is W ← W - η ΔW. With ``momentum=μ`` it is equations (3) and (4) of
    You et al.: V ← μ V - η ΔW, W ← W + V. PyTorch keeps -V/η, so η may change from step to step.
    """

    def __init__(self, centre: Tensor, like: Optimizer) -> None:
        self._parameter = torch.nn.Parameter(centre)  # shares its memory with the centre
        accepted = inspect.signature(type(like)).parameters
        group = {name: value for name, value in only_group(like).items() if name != "params"}
        options = {name: value for name, value in group.items() if name in accepted}
        self._optimizer = type(like)([self._parameter], **options)
        only_group(self._optimizer).update(group)  # also what its signature does not name

    def apply(self, gradient: Tensor, rate: float) -> None:
        """Make one step with `gradient`, (n,), and step size `rate`."""
        self._parameter.grad = gradient
        for group in self._optimizer.param_groups:
            group["lr"] = rate
        self._optimizer.step()


def only_group(optimizer: Optimizer) -> dict[str, Any]:
    """Return the options of an optimizer with one group of parameters. Raises UsageError."""
    if len(optimizer.param_groups) != 1:
        raise UsageError(
            f"the optimizer has {len(optimizer.param_groups)} groups of parameters: a centre has "
            "one step size for all, so give it one group"
        )
    group: dict[str, Any] = optimizer.param_groups[0]
    return group


def check_complete(model: torch.nn.Module, optimizer: Optimizer) -> None:
    """Raise UsageError if the optimizer lacks trained parameters: a server would update them too."""
    known = set(map(id, only_group(optimizer)["params"]))
    trained = [id(each) for each in model.parameters() if each.requires_grad]
    if missing := [each for each in trained if each not in known]:
        raise UsageError(
            f"the optimizer lacks {len(missing)} of the {len(trained)} trained parameters: give it all, "
            "or let the others not require gradients"
        )
