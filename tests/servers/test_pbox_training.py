"""Training with the optimizer on the servers is that of the same PyTorch optimizer on one worker."""

import copy

import numpy as np
import pytest
import torch
from pbox_workers import together

from innet.servers import pbox

STEPS, BATCH = 30, 64
CASES = {
    "SGD": (pbox.SGD(lr=0.5), lambda p: torch.optim.SGD(p, lr=0.5)),
    "Momentum": (
        pbox.Momentum(lr=0.05, weight_decay=1e-4),
        lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=1e-4),
    ),
    "Adam": (pbox.Adam(lr=1e-2), lambda p: torch.optim.Adam(p, lr=1e-2)),
}


@pytest.fixture(autouse=True)
def _one_thread_each():
    """Give PyTorch one thread: the workers are threads already."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def digits():
    from sklearn.datasets import load_digits  # not in the test processes that do not need it

    data = load_digits()
    return torch.tensor(data.data / 16, dtype=torch.float32), torch.tensor(data.target)


def network():
    torch.manual_seed(5)
    return torch.nn.Sequential(torch.nn.Linear(64, 48), torch.nn.ReLU(), torch.nn.Linear(48, 10))


def gradients(model, digits, step, rank):
    """Return the mean loss of one worker's part of a step, and its gradients."""
    images, labels = digits
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(step))
    mine = order[rank * BATCH : (rank + 1) * BATCH]
    model.zero_grad()
    loss = torch.nn.functional.cross_entropy(model(images[mine]), labels[mine])
    loss.backward()
    return loss.item(), [each.grad.numpy().reshape(-1) for each in model.parameters()]


def arrays(model):
    """Return the parameters' own memory, as flat arrays."""
    return [each.detach().numpy().reshape(-1) for each in model.parameters()]


@pytest.mark.parametrize("name", CASES)
def test_training_is_that_of_the_same_optimizer_on_a_worker(digits, name):
    """After 30 steps of two workers parameters agree within 1e-5, and losses within 1e-4.

    SGD and momentum agree bit by bit: the mean of two gradients has one value.
    """
    optimizer, torchs = CASES[name]
    alone = network()
    reference, expected = torchs(alone.parameters()), []
    for step in range(STEPS):
        shares = [gradients(alone, digits, step, rank) for rank in range(2)]
        shares = [(loss, [each.copy() for each in found]) for loss, found in shares]
        expected.append(shares[0][0])
        for parameter, one, other in zip(
            alone.parameters(), shares[0][1], shares[1][1], strict=True
        ):
            parameter.grad = torch.from_numpy((one + other) / np.float32(2)).reshape(
                parameter.shape
            )
        reference.step()

    initial = arrays(network())

    def work(client):
        # Each has a network of its own: PyTorch's generator is shared, and the servers have the
        # parameters.
        model, losses = copy.deepcopy(alone), []
        client.pull(arrays(model))
        for step in range(STEPS):
            loss, found = gradients(model, digits, step, client.rank)
            client.push_pull(found, arrays(model))
            losses.append(loss)
        return losses, arrays(model)

    with pbox.Server(cores=2) as first, pbox.Server() as second:
        (losses, parameters), (_, others) = together(
            [first.address, second.address], 2, work,
            keys=[each.size for each in initial], initial=initial,
            optimizer=optimizer, chunk_bytes=1024,
        )  # fmt: skip
    for one, other, torch_one in zip(parameters, others, arrays(alone), strict=True):
        np.testing.assert_array_equal(one, other)
        if name == "Adam":
            np.testing.assert_allclose(one, torch_one, atol=1e-5)
        else:
            np.testing.assert_array_equal(one, torch_one)
    np.testing.assert_allclose(losses, expected, atol=1e-4)
    assert losses[-1] < 0.9 * losses[0]
