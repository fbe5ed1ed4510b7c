"""Synchronous SGD that does not wait for stragglers, but uses their gradients in later steps.

:mod:`innet.host.deadline_sums` describes the sums. A late worker adds the part of its gradient that
it has not sent to its next one, as in Seide, Fu, Droppo, Li and Yu, "1-Bit Stochastic Gradient
Descent", Interspeech 2014.
"""

import torch
from torch import nn
from torch.optim import SGD, Optimizer

from innet.errors import UsageError
from innet.host.deadline_sums import DeadlineSums, Vector
from innet.training.algorithm import Algorithm, momentum
from innet.training.transports.base import Transport
from innet.training.transports.switch import AgentTransport


class DeadlineSGD(Algorithm):
    """W ← W - η mean(ΔW), where ΔW of a late worker may be of earlier iterations.

    A late worker's parameters are some iterations old. Before it computes a gradient, it makes a
    step of its own with those of its gradients that are in no sum so far. Without that step it
    would compute the same gradient again and again, and the sum of them could be much too long.
    These are the local steps of Basu, Data, Karakus and Diggavi, "Qsparse-local-SGD", NeurIPS 2019.

    :meth:`close` makes a last step with all gradients that have not been used so far. After it, all
    workers have the same parameters.

    `deadline` is the time that a chunk waits for a worker, in seconds, before the worker counts as
    late. By default it adapts. The transport must be an AgentTransport, and the optimizer SGD
    without momentum, because a late worker receives the parameters only, and no state of the
    optimizer.
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
                f"deadline-sgd has no momentum or other state, as this {type(optimizer).__name__} has: "
                "use SGD with momentum=0, or the algorithm d-sync"
            )
        super().__init__(model, optimizer, transport, "packed")
        [self._segment] = self.segments
        self._values = self._segment.values()  # without this worker's own steps
        self.sums = DeadlineSums(transport.agent, deadline)
        """The sums, which tell who is late."""

    def update(self) -> None:
        """Give the gradient. Update the parameters, or receive a part of them if this worker is late."""
        with self.updating():
            gradient = self._segment.gradients().numpy()
        with self.waiting():
            mean = self.sums.all_reduce(gradient, self._values.numpy())
        self._segment.set_values(self._values)
        if mean is not None:
            self._apply(mean)
            self._values = self._segment.values()
        elif self.sums.rest is not None:
            self._apply(self.sums.rest / self.transport.workers)

    def close(self) -> None:
        """Make a last step with the gradients that are left over, on all workers."""
        nothing = torch.zeros_like(self._values)
        with self.waiting():
            mean = self.sums.settle(nothing.numpy(), self._values.numpy())
        self._segment.set_values(self._values)
        self._apply(mean)

    def _apply(self, mean: Vector) -> None:
        with self.updating():
            self._segment.set_gradients(torch.from_numpy(mean))
            self.optimizer.step()
