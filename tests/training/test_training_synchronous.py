"""D-Sync, PS-Sync, Pipe-SGD and local SGD follow their equations, on every transport and packing."""

import importlib
import inspect
import re

import pytest
import torch
from paths import ROOT
from torch import nn
from training_problem import (
    RATE,
    STEPS,
    WORKERS,
    close,
    fresh_model,
    gradient,
    initialized,
    loss_of,
    mean_gradient,
    train,
    weights,
)

from innet.errors import UsageError
from innet.training import ALGORITHMS, make
from innet.training.transports import threads
from innet.training.transports.ring import Ring
from innet.training.transports.tree import Tree

DOCS = ROOT / "docs" / "training.md"


def synchronous(momentum: float = 0.0, workers: int = WORKERS) -> torch.Tensor:
    """Return the result of W ← W - η mean(ΔW), or of equations (3) and (4) with momentum."""
    vector, velocity = weights(fresh_model()), torch.zeros(())
    for step in range(STEPS):
        velocity = momentum * velocity - RATE * mean_gradient(vector, step, workers)
        vector = vector + velocity
    return vector


def pipelined(depth: int, warmup: int = 0) -> torch.Tensor:
    """Return the result of Algorithm 1: w[t] = w[t-1] - γ g[t-K], where g[1-K] to g[0] are zero.

    Steps count from 0 here.
    """
    vector = weights(fresh_model())
    gradients = []
    for step in range(STEPS):
        gradients.append(mean_gradient(vector, step))
        if step < warmup:
            vector = vector - RATE * gradients[step]
        elif step - (depth - 1) >= warmup:
            vector = vector - RATE * gradients[step - (depth - 1)]
    return vector


@pytest.mark.parametrize("name", ["d-sync", "ps-sync"])
@pytest.mark.parametrize("momentum", [0.0, 0.5])
def test_synchronous_sgd_is_one_process_with_the_mean_gradient(name: str, momentum: float):
    found = train(name, momentum=momentum)
    assert close(found[0], synchronous(momentum))
    assert not close(found[0], weights(fresh_model()), 1e-2), "nothing was learned"
    assert all(torch.equal(each, found[0]) for each in found)


@pytest.mark.parametrize("depth", [1, 2, 3, 5])
def test_pipe_sgd_is_its_algorithm_for_any_depth(depth: int):
    found = train("pipe-sgd", K=depth)
    assert close(found[0], pipelined(depth))
    assert all(torch.equal(each, found[0]) for each in found)


def test_gradients_are_one_iteration_old_unless_something_else_is_asked_for():
    [found, *_] = train("pipe-sgd")
    assert close(found, pipelined(2))
    assert not close(found, pipelined(1), 1e-4)
    assert not close(found, pipelined(3), 1e-4)


def test_pipe_sgd_warms_up_as_d_sync():
    assert torch.equal(train("pipe-sgd", warmup=STEPS)[0], train("d-sync")[0])
    assert close(train("pipe-sgd", warmup=5)[0], pipelined(2, warmup=5))


@pytest.mark.parametrize("packing", ["packed", "layers", 2, 100])
@pytest.mark.parametrize("overlap", [False, True])
def test_how_gradients_are_packed_and_when_they_leave_changes_nothing(packing, overlap):
    [found, *_] = train("pipe-sgd", packing=packing, overlap=overlap)
    assert close(found, pipelined(2))


def test_the_parts_of_the_backward_pass_leave_while_it_goes_on():
    """With overlap, the first segment is sent before the backward pass has reached the last one."""
    seen = []

    def work(transport):
        model = fresh_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        submit = transport.all_reduce
        transport.all_reduce = lambda vector: seen.append(vector.numel()) or submit(vector)
        with make("d-sync", model, optimizer, transport, packing="layers", overlap=True) as it:
            model[0].weight.register_hook(lambda _: seen.append("first layer"))
            loss_of(model, 0, 0).backward()
            it.step()

    threads.run(1, work)
    assert seen.index("first layer") == 2  # after two layers and before the third
    assert [each for each in seen if each != "first layer"] == [3, 18, 56]


def test_a_second_backward_pass_is_refused_where_the_first_has_left_already():
    def work(transport):
        model = fresh_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        with make("d-sync", model, optimizer, transport, overlap=True):
            loss_of(model, 0, 0).backward()
            loss_of(model, 0, 0).backward()

    with pytest.raises(UsageError, match="only one"):
        threads.run(1, work)


@pytest.mark.parametrize("wrap", [Ring, lambda over: Ring(over, parts=3), Tree])
def test_rings_and_trees_train_the_same(wrap):
    found = train("pipe-sgd", wrap=wrap)
    assert close(found[0], pipelined(2))
    assert all(torch.equal(each, found[0]) for each in found)


def test_local_sgd_averages_what_k_steps_alone_have_come_to():
    k = 4
    vector = weights(fresh_model())
    for first in range(0, STEPS, k):
        ends = []
        for worker in range(WORKERS):
            mine = vector.clone()
            for step in range(first, first + k):
                mine = mine - RATE * gradient(mine, worker, step)
            ends.append(mine - vector)
        vector = vector + sum(ends) / WORKERS
    found = train("local-sgd", k=k)
    assert close(found[0], vector)
    assert all(torch.equal(each, found[0]) for each in found)


def test_one_local_step_is_synchronous_sgd():
    assert close(train("local-sgd", k=1)[0], synchronous())


def test_all_workers_begin_with_worker_0s_parameters():
    def work(transport):
        model = fresh_model()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(transport.rank)
        make("d-sync", model, torch.optim.SGD(model.parameters(), lr=RATE), transport)
        return weights(model)

    assert all(torch.equal(each, weights(fresh_model())) for each in threads.run(3, work))


@pytest.mark.parametrize(
    ("name", "options", "complaint"),
    [
        ("pipe", {}, "it has to be one of d-sync, ps-sync, ps-racks, pipe-sgd"),
        ("pipe-sgd", {"k": 2}, "no option k: it has K, warmup, packing, overlap"),
        ("pipe-sgd", {"K": 0}, "K is 0"),
        ("pipe-sgd", {"warmup": -1}, "a number of steps"),
        ("pipe-sgd", {"packing": "tight"}, "'packed', 'layers', or a number"),
        ("local-sgd", {"k": 0}, "k is 0"),
        ("softsync-sgd", {}, "needs n"),
        ("softsync-sgd", {"n": 2}, "it has to be 1 to 1"),
        ("backup-workers", {"backups": 1}, "must not be a backup"),
        ("async-msgd", {}, "needs an optimizer with momentum"),
        ("async-measgd", {}, "needs an optimizer with momentum"),
        ("easgd", {"rho": -1.0}, "has to be positive"),
    ],
)
def test_what_makes_no_sense_is_refused(name, options, complaint):
    def work(transport):
        model = fresh_model()
        make(name, model, torch.optim.SGD(model.parameters(), lr=RATE), transport, **options)

    with pytest.raises(UsageError, match=complaint):
        threads.run(1, work)


@pytest.mark.parametrize("name", ["async-sgd", "hogwild-sgd", "easgd", "sync-easgd-2"])
def test_momentum_is_refused_where_the_equations_have_none(name: str):
    with pytest.raises(UsageError, match="momentum"):
        train(name, workers=1, momentum=0.9)


@pytest.mark.parametrize("name", ["d-sync", "ps-sync", "sync-easgd-2"])
def test_parameters_that_are_not_trained_are_worker_0s_too(name: str):
    """Otherwise each worker would compute the gradients of a model of its own."""

    def work(transport):
        model = initialized(nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1)), seed=transport.rank)
        model[0].requires_grad_(False)
        optimizer = torch.optim.SGD(model[1].parameters(), lr=RATE)
        with make(name, model, optimizer, transport):
            return weights(model[0])

    first, second = threads.run(2, work)
    assert torch.equal(first, second)
    frozen = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
    assert torch.equal(first, weights(initialized(frozen, seed=0)[0]))


def test_a_server_does_not_train_what_the_optimizer_lacks():
    """The optimizer of d-sync leaves such parameters alone. A server would update them."""

    def work(transport):
        model = nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 1))
        make("ps-sync", model, torch.optim.SGD(model[1].parameters(), lr=RATE), transport)

    with pytest.raises(UsageError, match="the optimizer lacks 2 of the 4 trained parameters"):
        threads.run(1, work)


def test_sparse_gradients_are_refused():
    def work(transport):
        model = nn.Embedding(4, 2, sparse=True)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        with make("d-sync", model, optimizer, transport) as algorithm:
            model(torch.tensor([1])).sum().backward()
            algorithm.step()

    with pytest.raises(UsageError, match="a gradient is sparse"):
        threads.run(1, work)


def test_models_that_cannot_be_exchanged_are_refused():
    def work(transport):
        model = fresh_model().double()
        make("d-sync", model, torch.optim.SGD(model.parameters(), lr=RATE), transport)

    with pytest.raises(UsageError, match="only float32"):
        threads.run(1, work)


def test_every_name_is_of_a_class_of_its_own():
    assert len(set(ALGORITHMS.values())) == len(ALGORITHMS)


def test_the_documentation_names_every_algorithm_with_its_options():
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (.*?) \|", DOCS.read_text(), re.MULTILINE)
    assert [name for name, _ in rows] == list(ALGORITHMS)
    for name, options in rows:
        if options != "as `async-sgd`":
            module, kind = ALGORITHMS[name]
            found = getattr(importlib.import_module(f"innet.training.{module}"), kind)
            known = list(inspect.signature(found).parameters)[3:]
            assert {each.split("=")[0] for each in re.findall(r"`(.*?)`", options)} == set(known)
