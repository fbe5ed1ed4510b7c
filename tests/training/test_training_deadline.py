"""Deadline SGD follows its equations with late workers, and all end with the same parameters."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from racks import Rack, rack
from scripted_lateness import Late, ScriptedLateness
from torch import nn
from training_problem import (
    RATE,
    STEPS,
    WORKERS,
    close,
    fresh_model,
    initialized,
    loss_of,
    weights,
)
from waiting import WITHIN

from innet.errors import UsageError
from innet.host.agent import Agent
from innet.training import make
from innet.training.transports import threads
from innet.training.transports.switch import AgentTransport

LANES = 64
NOBODY: Late = (set(), 1)
SCRIPT = [*[NOBODY] * 2, *[({1}, 2)] * 3, *[({1}, 4)] * 5, NOBODY, ({0}, 2)]
assert len(SCRIPT) == STEPS


def wide_model() -> nn.Module:
    """Return a model with more than one chunk of parameters."""
    return initialized(
        nn.Sequential(nn.Linear(6, 40), nn.Tanh(), nn.Linear(40, 8), nn.Linear(8, 1)), seed=5
    )


def expected() -> torch.Tensor:
    """Return the parameters in the end, by a plain loop over flat vectors."""
    order = nn.utils.parameters_to_vector
    models = [wide_model() for _ in range(WORKERS)]
    vector = order(reversed_parameters(models[0])).detach()
    size = len(vector)
    chunk = torch.arange(size) // LANES
    views = [vector.clone() for _ in models]
    left = [torch.zeros(size) for _ in models]
    for step, (late, stride) in enumerate(SCRIPT):
        now = chunk % stride == step % stride
        total = torch.zeros(size)
        for rank, model in enumerate(models):
            # left[rank] is not zero on workers that were late until now, too.
            own = views[rank] - RATE * left[rank] / WORKERS
            nn.utils.vector_to_parameters(own, reversed_parameters(model))
            model.zero_grad()
            loss_of(model, rank, step).backward()
            gradient = order([each.grad for each in reversed_parameters(model)])
            left[rank] += gradient
            sends = now if rank in late else torch.ones(size, dtype=torch.bool)
            total += torch.where(sends, left[rank], 0.0)
            left[rank][sends] = 0
            if rank in late:
                before = chunk % stride == (step - 1) % stride
                views[rank] = torch.where(before, vector, views[rank])
        vector = vector - RATE * total / WORKERS
        views = [views[rank] if rank in late else vector.clone() for rank in range(WORKERS)]
    return vector - RATE * sum(left) / WORKERS


def reversed_parameters(model: nn.Module) -> list[nn.Parameter]:
    """Return the parameters in the order of the exchanged vector."""
    return [each for layer in list(model)[::-1] for each in layer.parameters()]


def train(agent: Agent) -> torch.Tensor:
    rank, model = agent.info.rank, wide_model()
    optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
    with make("deadline-sgd", model, optimizer, AgentTransport(agent)) as algorithm:
        algorithm.sums.late = ScriptedLateness(WORKERS, SCRIPT)
        for step in range(STEPS):
            optimizer.zero_grad()
            loss_of(model, rank, step).backward()
            algorithm.step()
    return nn.utils.parameters_to_vector(reversed_parameters(model)).detach()


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(WORKERS, LANES) as running:
        yield running


def trained(agents: Sequence[Agent]) -> list[torch.Tensor]:
    with ThreadPoolExecutor(len(agents)) as pool:
        return [each.result(WITHIN) for each in [pool.submit(train, agent) for agent in agents]]


def test_it_follows_its_equations_and_all_end_with_the_same_bits(tor: Rack):
    with tor.workers(WORKERS) as agents:
        found = trained(agents)
    assert all(torch.equal(each, found[0]) for each in found)
    assert close(found[0], expected(), 1e-5)
    start = nn.utils.parameters_to_vector(reversed_parameters(wide_model())).detach()
    assert not close(found[0], start, 1e-2), "nothing was learned"


def test_a_transport_without_a_switch_is_refused():
    def work(transport):
        model = fresh_model()
        with pytest.raises(UsageError, match="deadline-sgd needs the switch"):
            make("deadline-sgd", model, torch.optim.SGD(model.parameters(), lr=RATE), transport)
        return weights(model)

    threads.run(1, work)


def test_an_optimizer_with_a_state_is_refused(tor: Rack):
    with tor.workers(1) as [agent]:
        for kind, more in ((torch.optim.SGD, {"momentum": 0.9}), (torch.optim.Adam, {})):
            model = fresh_model()
            optimizer = kind(model.parameters(), lr=RATE, **more)
            with pytest.raises(UsageError, match=f"state, as this {kind.__name__} has: use"):
                make("deadline-sgd", model, optimizer, AgentTransport(agent))
