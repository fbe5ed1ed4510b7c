"""A network for the digits, its batches, and the algorithms that a Manager makes fault-tolerant."""

import contextlib
import hashlib
from collections.abc import Callable, Iterator
from typing import Any

import torch
import torchft
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchft.ddp import DistributedDataParallel
from torchft.local_sgd import DiLoCo, LocalSGD
from torchft.optim import OptimizerWrapper

from benchmarks.replicas.settings import Learning

Draw = Callable[[], tuple[Tensor, Tensor]]
"""A function that returns the next batch."""


def network(width: int, seed: int) -> nn.Module:
    """Return a network for 8 x 8 pixels, with two hidden layers of `width` units."""
    torch.manual_seed(seed)
    return nn.Sequential(
        nn.Linear(64, width), nn.ReLU(), nn.Linear(width, width), nn.ReLU(), nn.Linear(width, 10)
    )


class Digits:
    """The digits, from a file with images (n, 64) float32 and labels (n,) int64."""

    def __init__(self, file: str, seed: int) -> None:
        images, self.labels = torch.load(file)
        self.images = (images - images.mean()) / images.std()
        self._seed = seed

    def batch(self, size: int, step: int, replica: int) -> tuple[Tensor, Tensor]:
        """Return a random batch, which depends on the step and the replica only."""
        drawn = torch.Generator().manual_seed((self._seed << 40) + (step << 8) + replica)
        chosen = torch.randint(len(self.images), (size,), generator=drawn)
        return self.images[chosen], self.labels[chosen]

    def loss(self, model: nn.Module) -> float:
        """Return the loss over all digits."""
        with torch.no_grad():
            return float(cross_entropy(model(self.images), self.labels))


@contextlib.contextmanager
def stepping(
    learning: Learning, manager: torchft.Manager, model: nn.Module, optimizer: torch.optim.Optimizer
) -> Iterator[Callable[[Draw], None]]:
    """Yield a function that makes one step of the algorithm, on a batch that it draws.

    With ``DDP`` it draws the batch after the quorum, which may change the Manager's step.
    """
    trained: Any = model
    stepped: Any = optimizer
    with contextlib.ExitStack() as stack:
        if learning.algorithm == "DDP":
            trained = DistributedDataParallel(manager, model, bucket_cap_mb=0.5)
            stepped = OptimizerWrapper(manager, optimizer)
        elif learning.algorithm == "LocalSGD":
            stack.enter_context(LocalSGD(manager, model, optimizer, learning.sync_every))
        else:
            outer = torch.optim.SGD(
                model.parameters(), learning.outer_rate, learning.outer_momentum, nesterov=True
            )
            stack.enter_context(DiLoCo(manager, [model], optimizer, outer, learning.sync_every))

        def step(draw: Draw) -> None:
            stepped.zero_grad()
            images, labels = draw()
            cross_entropy(trained(images), labels).backward()
            stepped.step()

        yield step


def digest(model: nn.Module) -> str:
    """Return a digest of the parameters: two models have the same only if every bit is equal."""
    content = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    return hashlib.sha256(content).hexdigest()
