"""PyTorch's optimizers at parameter servers: each has its equivalent, or is refused."""

import pytest
import torch

from innet.errors import UsageError
from innet.servers import pbox
from innet.training.served_optimizers import served


def test_every_optimizer_of_the_servers_has_its_counterpart():
    parameters = [torch.nn.Parameter(torch.zeros(1))]
    for rule, theirs in {
        pbox.SGD(lr=0.2, weight_decay=0.1): torch.optim.SGD(parameters, 0.2, weight_decay=0.1),
        pbox.Momentum(lr=0.2, momentum=0.8): torch.optim.SGD(parameters, 0.2, 0.8),
        pbox.Nesterov(momentum=0.8): torch.optim.SGD(parameters, 1e-3, 0.8, nesterov=True),
        pbox.Adagrad(lr_decay=0.1): torch.optim.Adagrad(parameters, lr_decay=0.1),
        pbox.RMSProp(alpha=0.8): torch.optim.RMSprop(parameters, alpha=0.8),
        pbox.Adadelta(rho=0.8): torch.optim.Adadelta(parameters, rho=0.8),
        pbox.Adam(beta1=0.8, beta2=0.9): torch.optim.Adam(parameters, betas=(0.8, 0.9)),
    }.items():
        assert served(theirs) == rule


class Adam(torch.optim.Adam):
    """An optimizer whose steps are its own, although it is derived from one that the servers have."""


@pytest.mark.parametrize(
    "unlike",
    [
        Adam,
        torch.optim.AdamW,
        lambda p: torch.optim.SGD(p, 0.1, 0.9, dampening=0.5),
        lambda p: torch.optim.Adam(p, amsgrad=True),
        lambda p: torch.optim.Adam(p, decoupled_weight_decay=True),
        lambda p: torch.optim.Adagrad(p, initial_accumulator_value=0.1),
        lambda p: torch.optim.RMSprop(p, momentum=0.5),
        lambda p: torch.optim.SGD(p, float("inf")),
    ],
)
def test_what_the_servers_do_not_have_is_refused(unlike):
    with pytest.raises(UsageError, match=r"the parameter servers|has to be finite"):
        served(unlike([torch.nn.Parameter(torch.zeros(1))]))


def test_groups_of_parameters_are_refused():
    first, second = torch.nn.Parameter(torch.zeros(1)), torch.nn.Parameter(torch.zeros(1))
    with pytest.raises(UsageError, match="groups"):
        served(torch.optim.SGD([{"params": first}, {"params": second, "lr": 1.0}], 0.1))
