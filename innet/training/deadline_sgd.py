"""Synchronous SGD that does not wait for stragglers, with their gradients in later steps.

:mod:`innet.host.deadline_sums` describes the sums. A late worker adds the part of its gradient that
it has not sent to its next one, as in Seide, Fu, Droppo, Li and Yu, "1-Bit Stochastic Gradient
Descent", Interspeech 2014.
"""

import torch
from torch import nn
from torch.optim import SGD, Optimizer

from innet.errors import UsageError
from innet.host.deadline_sums import DeadlineSums
from innet.training.algorithm import Algorithm, momentum
from innet.training.transports.base import Transport
from innet.training.transports.switch import AgentTransport


class DeadlineSGD(Algorithm):
    """W ← W - η mean(ΔW), where ΔW of a late worker may be of earlier iterations.

    A late worker computes its gradients with parameters that are some iterations old. :meth:`close`
    makes a last step with all gradients that have not been used so far. After it, all workers have the
    same parameters.

    `deadline` is the time that a chunk waits for a worker, in seconds, before the worker counts as late.
    By default it adapts. The transport must be an AgentTransport, and the optimizer SGD without momentum,
    because a late worker knows the parameters only.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        transport: Transport,
        *,
        deadline: float | None = None,
    ) -> None:
        if not isinstance(transport, AgentTransport):
            raise UsageError(
                "deadline-sgd needs the switch: use AgentTransport(agent), or the algorithm d-sync"
            )
        if not isinstance(optimizer, SGD) or momentum(optimizer):
            raise UsageError(
                f"deadline-sgd has no momentum or other state, and the optimizer is {optimizer!r}: use "
                "SGD with momentum=0, or the algorithm d-sync"
            )
        super().__init__(model, optimizer, transport, "packed")
        [self._segment] = self.segments
        self.sums = DeadlineSums(transport.agent, deadline)
        """The sums, which tell who is late."""

    def update(self) -> None:
        """Give the gradient. Update the parameters, or take a part of them if this worker is late."""
        with self.updating():
            gradient, values = self._segment.gradients().numpy(), self._segment.values().numpy()
        with self.waiting():
            mean = self.sums.all_reduce(gradient, values)
        with self.updating():
            # They are newer on a worker that is late, or was so until now.
            self._segment.set_values(torch.from_numpy(values))
            if mean is not None:
                self._apply(torch.from_numpy(mean))

    def close(self) -> None:
        """Make a last step with the gradients that are left over, on all workers."""
        values = self._segment.values()
        nothing = torch.zeros_like(values)
        with self.waiting():
            mean = self.sums.settle(nothing.numpy(), values.numpy())
        with self.updating():
            self._segment.set_values(values)
            self._apply(torch.from_numpy(mean))

    def _apply(self, mean: torch.Tensor) -> None:
        self._segment.set_gradients(mean)
        self.optimizer.step()
