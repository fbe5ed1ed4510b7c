"""A convolutional network with batch normalisation, whose statistics are DDP's buffers."""

import torch
from common import SEED, batches, mean, run
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def network() -> nn.Module:
    torch.manual_seed(SEED)
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, padding=1),
        nn.BatchNorm2d(16),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Conv2d(16, 32, 3, padding=1),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(32 * 4 * 4, 10),
    )


def train(steps: int) -> list[float]:
    # Buckets of 8 KiB, so that several are in flight during the backward pass.
    model = DistributedDataParallel(network(), bucket_cap_mb=8 / 1024)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    losses = []
    for images, labels in batches(steps):
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(mean(loss))
    return losses


if __name__ == "__main__":
    run(train)
