"""Synchronous SGD at a rack server: the switches below it sum the gradients.

This is the hybrid of Luo et al., "Parameter Box: High Performance Parameter Servers for Efficient
Distributed Deep Neural Network Training" (2018), section 3 and figure 5. The switch of a rack
aggregates the gradients inside the rack, and a single stream goes up from there.
"""

from dataclasses import fields
from typing import Any

import torch
from torch import nn
from torch.optim import Optimizer

from innet.errors import UsageError
from innet.host.parameters import RackedParameters
from innet.servers import pbox
from innet.training.algorithm import Algorithm, rate
from innet.training.server import check_complete
from innet.training.transports.base import Transport
from innet.training.transports.switch import AgentTransport

_BETAS = ("beta1", "beta2")


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


def served(optimizer: Optimizer) -> pbox.Optimizer:
    """Return the server's rule for a torch optimizer. Raises UsageError if there is none."""
    if len(optimizer.param_groups) != 1:
        raise UsageError("the optimizer has several groups of parameters: a rack server takes one")
    [group] = optimizer.param_groups
    if beyond := [name for name in pbox.optimizers.PYTORCH_ONLY if group.get(name)]:
        raise UsageError(f"the rack server's optimizers have no {', '.join(beyond)}")
    kind = type(optimizer).__name__
    if kind == "SGD":
        kind = "Nesterov" if group["nesterov"] else "Momentum" if group["momentum"] else "SGD"
    name = {"RMSprop": "RMSProp"}.get(kind, kind)
    if name not in pbox.optimizers.BY_NAME or (name == "RMSProp" and group["momentum"]):
        raise UsageError(
            f"the rack server has {', '.join(pbox.optimizers.BY_NAME)}, and not this {kind}"
        )
    rule = pbox.optimizers.BY_NAME[name]
    names = [field.name for field in fields(rule)]
    settings: dict[str, Any] = {**group, **dict(zip(_BETAS, group.get("betas", ()), strict=False))}
    return rule(**{each: float(settings[each]) for each in names})
