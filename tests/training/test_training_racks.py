"""Training at a parameter server above racks is that of one process with the mean gradient."""

import itertools
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from racks import WITHIN
from torch.nn.utils import vector_to_parameters
from training_problem import close, fresh_model, loss_of, mean_gradient, weights
from trees import Forest, forest

from innet.errors import UsageError
from innet.training import make
from innet.training.transports import threads
from innet.training.transports.switch import AgentTransport

AT = ["left", "left", "right"]
STEPS = 12


@pytest.fixture(scope="module")
def racks():
    parents = {"left": ["pbox"], "right": ["pbox"]}
    hosts = {"pbox": 0, "left": 2, "right": 1}
    with forest(hosts, parents, servers=["pbox"]) as made:
        yield made


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.1, momentum=0.9)


def adam(parameters):
    return torch.optim.Adam(parameters, lr=0.01, weight_decay=0.01)


@pytest.mark.parametrize("kind", [sgd, adam])
def test_it_is_one_process_with_the_mean_gradient(racks: Forest, kind):
    def work(rank: int, agent) -> torch.Tensor:
        model = fresh_model()
        optimizer = kind(model.parameters())
        with make("ps-racks", model, optimizer, AgentTransport(agent)) as algorithm:
            for step in range(STEPS):
                optimizer.param_groups[0]["lr"] = rate(step)
                optimizer.zero_grad()
                loss_of(model, rank, step).backward()
                algorithm.step()
        return weights(model)

    def rate(step: int) -> float:
        return 0.05 / (1 + step)

    with racks.workers("pbox", AT) as agents, ThreadPoolExecutor(len(AT)) as pool:
        found = list(pool.map(work, itertools.count(), agents, timeout=WITHIN))
    alone = fresh_model()
    optimizer = kind(alone.parameters())
    for step in range(STEPS):
        optimizer.param_groups[0]["lr"] = rate(step)
        whole = mean_gradient(weights(alone), step)
        gradients = fresh_model()
        vector_to_parameters(whole, gradients.parameters())
        for parameter, gradient in zip(alone.parameters(), gradients.parameters(), strict=True):
            parameter.grad = gradient.detach().clone()
        optimizer.step()
    assert all(torch.equal(each, found[0]) for each in found)
    assert close(found[0], weights(alone), within=1e-5)
    assert not close(found[0], weights(fresh_model()), within=1e-2)


def test_it_needs_switches():
    model = fresh_model()

    def work(transport):
        with pytest.raises(UsageError, match="AgentTransport"):
            make("ps-racks", model, sgd(model.parameters()), transport)

    threads.run(1, work)
