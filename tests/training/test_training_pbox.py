"""Over separate parameter servers the algorithms reach the results of a plain loop."""

import itertools
import threading

import pytest
import torch
from training_problem import (
    RATE,
    STEPS,
    WORKERS,
    close,
    fresh_model,
    gradient,
    loss_of,
    mean_gradient,
    train,
    weights,
)
from waiting import WITHIN

from innet.errors import UsageError
from innet.rpc.certificates import make as make_certificates
from innet.servers import pbox
from innet.training import make
from innet.training.transports import threads
from innet.training.transports.pbox import PBoxTransport

MOMENTUM = 0.5


@pytest.fixture(scope="module")
def addresses():
    """Yield the addresses of two servers that share every vector."""
    with pbox.Server(cores=2) as first, pbox.Server() as second:
        yield [first.address, second.address]


@pytest.fixture
def over(addresses, request):
    """Return a function that makes the transport of a rank, in a job of this test."""

    def wrap(transport) -> PBoxTransport:
        name = request.node.name
        return PBoxTransport(
            addresses, job=name, rank=transport.rank, workers=transport.workers, timeout=WITHIN
        )

    return wrap


def synchronous(momentum: float, workers: int = WORKERS) -> torch.Tensor:
    """Return the result of one process, one loop: V ← μ V - η mean(ΔW), W ← W + V."""
    vector, velocity = weights(fresh_model()), torch.zeros(())
    for step in range(STEPS):
        velocity = momentum * velocity - RATE * mean_gradient(vector, step, workers)
        vector = vector + velocity
    return vector


@pytest.mark.parametrize(
    ("name", "momentum", "options"),
    [
        ("ps-sync", 0.0, {}),
        ("ps-sync", MOMENTUM, {"packing": "layers"}),
        ("softsync-sgd", MOMENTUM, {"n": WORKERS}),
        ("backup-workers", 0.0, {"backups": 0}),
        ("d-sync", MOMENTUM, {}),
        ("d-sync", 0.0, {"packing": "layers"}),
    ],
)
def test_synchronous_training_is_plain_sgd(over, name, momentum, options):
    for found in train(name, momentum=momentum, wrap=over, **options):
        assert close(found, synchronous(momentum))


@pytest.mark.parametrize(
    ("name", "momentum", "options"),
    [
        ("async-sgd", 0.0, {}),
        ("async-msgd", MOMENTUM, {}),
        ("hogwild-sgd", 0.0, {}),
        ("softsync-sgd", MOMENTUM, {"n": 1}),
    ],
)
def test_one_asynchronous_worker_is_plain_sgd(over, name, momentum, options):
    [found] = train(name, workers=1, momentum=momentum, wrap=over, **options)
    assert close(found, synchronous(momentum, workers=1))


@pytest.mark.parametrize("name", ["async-sgd", "hogwild-sgd"])
def test_in_whatever_order_every_gradient_counts_once(over, name):
    """The loss is linear here, so the order of updates does not matter."""

    def work(transport):
        model = torch.nn.Linear(5, 1, bias=False)
        torch.nn.init.zeros_(model.weight)
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE)
        wrapped = over(transport)
        with make(name, model, optimizer, wrapped) as algorithm:
            for step in range(STEPS):
                optimizer.zero_grad()
                model(torch.full((1, 5), 1.0 + transport.rank + step)).sum().backward()
                algorithm.step()
            transport.all_reduce(torch.zeros(1)).result()  # all have taken their last step
            [centre] = [client.pull() for client in algorithm._clients]
        wrapped.close()
        return -centre

    steps = itertools.product(range(WORKERS), range(STEPS))
    expected = RATE * sum(1.0 + rank + step for rank, step in steps)
    for moved in threads.run(WORKERS, work):
        assert close(moved, torch.full((5,), expected), 1e-4)


@pytest.mark.parametrize(
    ("name", "options"),
    [
        ("easgd", {}),
        ("async-easgd", {}),
        ("softsync-sgd", {"n": 2}),
        ("backup-workers", {"backups": 1}),
        ("async-sgd", {"staleness_aware": True}),
    ],
)
def test_what_these_servers_cannot_do_is_said_at_once(over, name, options):
    with pytest.raises(UsageError, match=r"parameter servers of innet\.training"):
        train(name, wrap=over, **options)


@pytest.mark.parametrize(
    "kind",
    [
        lambda p: torch.optim.SGD(p, lr=0.1, weight_decay=0.1),
        lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9, nesterov=True),
        lambda p: torch.optim.Adam(p, lr=0.01, betas=(0.8, 0.99), eps=1e-6),
        lambda p: torch.optim.Adagrad(p, lr=0.1, lr_decay=0.1),
        lambda p: torch.optim.RMSprop(p, lr=0.01, alpha=0.9),
        lambda p: torch.optim.Adadelta(p, lr=0.5),
    ],
)
def test_every_optimizer_is_torchs(over, kind):
    model = fresh_model()
    plain = kind([torch.nn.Parameter(weights(model))])
    [parameter] = plain.param_groups[0]["params"]
    for step in range(STEPS):
        parameter.grad = gradient(parameter.detach(), 0, step)
        plain.step()

    def work(transport):
        model = fresh_model()
        wrapped = over(transport)
        with make("ps-sync", model, kind(model.parameters()), wrapped) as algorithm:
            for step in range(STEPS):
                model.zero_grad()
                loss_of(model, 0, step).backward()
                algorithm.step()
        wrapped.close()
        return weights(model)

    for found in threads.run(2, work):
        assert close(found, parameter.detach(), 1e-5)


def test_training_over_tls_takes_the_same_steps(tmp_path):
    make_certificates(tmp_path, [])
    with pbox.Server(tls=tmp_path) as server:

        def wrap(transport) -> PBoxTransport:
            return PBoxTransport(
                server.address, job="tls", rank=transport.rank, workers=transport.workers,
                timeout=WITHIN, tls=tmp_path,
            )  # fmt: skip

        for found in train("ps-sync", momentum=MOMENTUM, wrap=wrap):
            assert close(found, synchronous(MOMENTUM))


def test_a_broadcast_is_worker_0s_very_bits(over):
    given = torch.tensor([1.5, -0.0, 3e-39, 1e38, float("inf")])

    def work(transport):
        wrapped = over(transport)
        found = wrapped.broadcast(given if transport.rank == 0 else torch.zeros(5))
        wrapped.close()
        return found

    for found in threads.run(WORKERS, work):
        assert torch.equal(found.view(torch.int32), given.view(torch.int32))


def test_a_broadcast_does_not_meet_a_mean_that_a_worker_begins_late(addresses, request):
    """A mean is computed in the background, and a broadcast is not. So their order may differ."""

    def work(transport):
        own = PBoxTransport(
            addresses, job=request.node.name, rank=transport.rank, workers=2, timeout=WITHIN
        )
        late = threading.Event()
        if transport.rank:
            own._background.run(lambda given: (late.wait(WITHIN), given)[1], torch.ones(1))
        mean = own.all_reduce(torch.full((3,), float(transport.rank)))
        started = own.broadcast(torch.full((5,), float(transport.rank)))
        late.set()
        found = mean.result(WITHIN)
        own.close()
        return started.tolist(), found.tolist()

    assert threads.run(2, work) == [([0.0] * 5, [0.5] * 3)] * 2
