"""Shared parts of the examples: arguments, data, process group.

Train over Gloo:

    torchrun --nproc-per-node 2 examples/ddp.py --backend gloo

Train on one machine through a switch that the command starts:

    innet rack --workers 2 -- torchrun --nproc-per-node 2 examples/ddp.py --backend innet
"""

import argparse
import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import torch
import torch.distributed as dist
from losses import report
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import TensorDataset

BATCH = 32
SEED = 1
TEXTS = Path(__file__).parents[1] / "docs"

Train = Callable[[int], list[float]]


def run(train: Train) -> None:
    """Call `train(steps)`, which returns the losses, in a process group of the chosen backend."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--backend", default="innet", choices=["gloo", "innet"])
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    dist.init_process_group(arguments.backend)
    try:
        report(train(arguments.steps))
    finally:
        dist.destroy_process_group()


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    """Return scikit-learn's handwritten digits: float32 (1797, 1, 8, 8), int64 (1797,)."""
    data = load_digits()
    return torch.tensor(data.images / 16, dtype=torch.float32)[:, None], torch.tensor(data.target)


def batches(steps: int, size: int = BATCH) -> Iterator[tuple[torch.Tensor, torch.Tensor]]:
    """Yield this worker's part of each of `steps` batches of digits."""
    mine = slice(dist.get_rank(), None, dist.get_world_size())
    parts = [each.split(size) for each in dataset(steps, size).tensors]
    for images, labels in zip(*parts, strict=True):
        yield images[mine], labels[mine]


def dataset(steps: int, size: int = BATCH) -> TensorDataset:
    """Return the digits of `steps` batches of all workers, one batch after the other."""
    images, labels = digits()
    shuffled = torch.Generator().manual_seed(SEED)
    drawn = [torch.randint(len(images), (size,), generator=shuffled) for _ in range(steps)]
    chosen = torch.cat(drawn)
    return TensorDataset(images[chosen], labels[chosen])


def classifier() -> nn.Sequential:
    """Return a small network for the digits, the same on all workers."""
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Flatten(), nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))


def text(window: int) -> torch.Tensor:
    """Return innet's own documents as windows of `window` bytes, int64 (n, window)."""
    content = b"".join(path.read_bytes() for path in sorted(TEXTS.glob("*.md")))
    letters = torch.frombuffer(bytearray(content), dtype=torch.uint8).long()
    return letters[: len(letters) // window * window].view(-1, window)


def mean(loss: torch.Tensor) -> float:
    """Return the mean of all workers' losses."""
    everybodys = loss.detach().clone()
    dist.all_reduce(everybodys, dist.ReduceOp.AVG)
    return everybodys.item()


def total(counts: torch.Tensor) -> list[int]:
    """Return the exact sum of all workers' counts, int64."""
    everybodys = counts.clone()
    dist.all_reduce(everybodys)
    return everybodys.tolist()


def digest(model: nn.Module) -> str:
    """Return a digest of the parameters: two models have the same only if every bit is equal."""
    content = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    return hashlib.sha256(content).hexdigest()
