"""Every algorithm's accuracy on scikit-learn's digits is within 0.01 of synchronous SGD's.

For an asynchronous algorithm this holds for the median of three trainings.
"""

import functools
import itertools

import pytest
import torch
from training_problem import Digits

from innet.training import ALGORITHMS, make
from innet.training.easgd import Elastic
from innet.training.message_codecs import message_codec
from innet.training.transports import threads
from innet.training.transports.ring import Ring

WORKERS = 3
BATCH = 32
STEPS = 400
RATE, LAST_RATE = 0.5, 0.02
WITHIN = 0.01

OPTIONS = {
    "pipe-sgd": {"warmup": 10},
    "softsync-sgd": {"n": 2},
    "backup-workers": {"backups": 1},
    "async-sgd": {"staleness_aware": True},
}
# In one synchronous step's time an asynchronous server makes three updates, each of them late.
MOMENTUM = {"async-msgd": (0.9, 0.1), "async-measgd": (0.9, 0.2)}
"""The momentum, and the factor of the step size."""


@functools.cache
def problem() -> Digits:
    """Return the problem, which is loaded once."""
    return Digits(WORKERS, BATCH)


def accuracy(name: str, compression: str | None = None, **options) -> float:
    """Return the accuracy of the workers' common result."""
    digits = problem()
    momentum, factor = MOMENTUM.get(name, (0.0, 1.0))

    def work(transport):
        if compression:
            transport = Ring(transport, message_codec(compression))
        model = digits.model()
        first = RATE * factor
        optimizer = torch.optim.SGD(model.parameters(), lr=first, momentum=momentum)
        with make(name, model, optimizer, transport, **options) as algorithm:
            for step in range(STEPS):
                rate = RATE + (LAST_RATE - RATE) * step / STEPS
                optimizer.param_groups[0]["lr"] = rate * factor
                optimizer.zero_grad()
                digits.loss(model, transport.rank, step).backward()
                algorithm.step()
        if isinstance(algorithm, Elastic):
            algorithm.load_centre()
        if compression:
            transport.close()
        return digits.accuracy(model)

    return threads.run(WORKERS, work)[-1]


@functools.cache
def synchronous() -> float:
    """Return the accuracy of D-Sync, with which the others are compared."""
    return accuracy("d-sync")


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Give PyTorch one thread: the workers are threads already."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def test_synchronous_sgd_learns():
    assert synchronous() >= 0.95


@pytest.mark.parametrize("name", sorted(ALGORITHMS.keys() - {"d-sync", "ps-racks", "deadline-sgd"}))
def test_it_learns_as_much_as_synchronous_sgd(name: str):
    def learns() -> bool:
        return accuracy(name, **OPTIONS.get(name, {})) >= synchronous() - WITHIN

    if name.startswith(("async", "hogwild")):  # the result depends on the threads' timing
        assert sum(itertools.islice(filter(None, (learns() for _ in range(3))), 2)) == 2
    else:
        assert learns()


@pytest.mark.parametrize("name", ["d-sync", "pipe-sgd"])
@pytest.mark.parametrize("compression", ["T", "Q"])
def test_compression_in_the_ring_costs_no_accuracy(name: str, compression: str):
    assert accuracy(name, compression) >= synchronous() - WITHIN
