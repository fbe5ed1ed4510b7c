"""Synchronous SGD at a rack server: the switches below it sum the gradients.

This is the hybrid of Luo et al., "Parameter Box: High Performance Parameter Servers for Efficient
Distributed Deep Neural Network Training" (2018), section 3 and figure 5. The switch of a rack
aggregates the gradients inside the rack, and a single stream goes up from there.
"""

import torch
from torch import nn
from torch.optim import Optimizer

from innet.errors import UsageError
from innet.host.parameters import RackedParameters
from innet.training.algorithm import Algorithm, rate
from innet.training.served_optimizers import served
from innet.training.server import check_complete
from innet.training.transports.base import Transport
from innet.training.transports.switch import AgentTransport


class PSRacks(Algorithm):
    """Synchronous SGD at a rack server: one update with the gradients of all workers.

    `optimizer` names the server's rule. Its learning rate may change from step to step; its own
    state is not used. The transport must be an AgentTransport of a job whose topmost switch keeps
    parameters.
    """

    def __init__(self, model: nn.Module, optimizer: Optimizer, transport: Transport) -> None:
        if not isinstance(transport, AgentTransport):
            raise UsageError(
                "ps-racks needs switches: use AgentTransport(agent), or the algorithm ps-sync"
            )
        rule = served(optimizer)
        check_complete(model, optimizer)
        super().__init__(model, optimizer, transport, "packed")
        [self._segment] = self.segments
        values = self._segment.values().numpy()
        self._parameters = RackedParameters(transport.agent, [values], rule)

    def update(self) -> None:
        """Push the gradient and pull the parameters."""
        self._parameters.lr = rate(self.optimizer)
        with self.waiting():
            self._parameters.step([self._segment.gradients().numpy()])
        with self.updating():
            [values] = self._parameters.values
            self._segment.set_values(torch.from_numpy(values))
