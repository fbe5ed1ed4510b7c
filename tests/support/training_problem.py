"""A small problem for the training algorithms, and a plain loop that solves it as a reference.

The reference does not use `innet.training`: it has flat vectors, and the gradient as a function of
them.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from innet.training import make
from innet.training.algorithm import Algorithm
from innet.training.transports import threads
from innet.training.transports.base import Transport

WORKERS = 3
STEPS = 12
RATE = 0.1


def fresh_model() -> nn.Module:
    """Return the same small network in every call: 3 layers, 77 parameters."""
    model = nn.Sequential(nn.Linear(6, 8), nn.Tanh(), nn.Linear(8, 2), nn.Linear(2, 1))
    return initialized(model, seed=5)


def initialized(model: nn.Module, seed: int) -> nn.Module:
    """Initialize a model with a generator of its own, since threads share torch's."""
    random = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            width = parameter.shape[-1] ** -0.5
            parameter.uniform_(-width, width, generator=random)
    return model


def batch(worker: int, step: int) -> tuple[Tensor, Tensor]:
    """Return a worker's batch of a step, from 0 on."""
    random = torch.Generator().manual_seed(1000 * worker + step)
    images = torch.randn(4, 6, generator=random)
    return images, images.sum(dim=1, keepdim=True).tanh()


def loss_of(model: nn.Module, worker: int, step: int) -> Tensor:
    """Return the loss whose gradient is trained with."""
    images, labels = batch(worker, step)
    return ((model(images) - labels) ** 2).mean()


def weights(model: nn.Module) -> Tensor:
    """Return the parameters as one vector, in the model's order."""
    return parameters_to_vector(model.parameters()).detach().clone()


def gradient(vector: Tensor, worker: int, step: int) -> Tensor:
    """Return the gradient at `vector`, for a worker's batch of a step."""
    model = fresh_model()
    vector_to_parameters(vector.clone(), model.parameters())
    loss_of(model, worker, step).backward()
    return torch.cat([parameter.grad.reshape(-1) for parameter in model.parameters()])


def mean_gradient(vector: Tensor, step: int, workers: int = WORKERS) -> Tensor:
    """Return the mean gradient over the workers."""
    return sum(gradient(vector, worker, step) for worker in range(workers)) / workers


Wrap = Callable[[Transport], Transport]


def train(
    name: str,
    *,
    workers: int = WORKERS,
    steps: int = STEPS,
    momentum: float = 0.0,
    wrap: Wrap = lambda transport: transport,
    finish: Callable[[Algorithm, nn.Module], Any] = lambda _, model: weights(model),
    **options: Any,
) -> list[Any]:
    """Train in threads, on a transport that `wrap` may wrap. Return the results of `finish`, by rank."""

    def work(transport: Transport) -> Any:
        model = fresh_model()
        optimizer = torch.optim.SGD(model.parameters(), lr=RATE, momentum=momentum)
        wrapped = wrap(transport)
        with make(name, model, optimizer, wrapped, **options) as algorithm:
            for step in range(steps):
                algorithm.begin()
                optimizer.zero_grad()
                loss_of(model, transport.rank, step).backward()
                algorithm.step()
        found = finish(algorithm, model)
        wrapped.close()
        return found

    return threads.run(workers, work)


def close(left: Tensor, right: Tensor, within: float = 1e-6) -> bool:
    """Return whether two vectors differ by at most `within`."""
    return bool((left - right).abs().max() <= within)


class Digits:
    """scikit-learn's digits in a small network, with batches by worker and step."""

    def __init__(self, workers: int, size: int = 16) -> None:
        from innet.demo.training import digits

        (images, self.labels), (test_images, self.test_labels) = digits()
        mean, deviation = images.mean(), images.std()
        self.images, self.test_images = (
            (images - mean) / deviation,
            (test_images - mean) / deviation,
        )
        self.workers, self.size = workers, size
        self.order = torch.randperm(len(self.images), generator=torch.Generator().manual_seed(2))

    def model(self) -> nn.Module:
        """Return a perceptron with one hidden layer."""
        model = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 10))
        return initialized(model, seed=3)

    def loss(self, model: nn.Module, worker: int, step: int) -> Tensor:
        """Return the cross entropy of a worker's part of a global batch."""
        first = (step * self.workers + worker) * self.size
        mine = self.order[torch.arange(first, first + self.size) % len(self.order)]
        return cross_entropy(model(self.images[mine]), self.labels[mine])

    def accuracy(self, model: nn.Module) -> float:
        """Return the accuracy on the test set."""
        with torch.no_grad():
            right = model(self.test_images).argmax(dim=1) == self.test_labels
        return float(right.float().mean())
