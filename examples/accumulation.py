"""Gradient accumulation: no_sync() sums several small batches locally, then one all-reduce follows."""

import contextlib

import torch
from common import batches, classifier, mean, run
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

SMALL_BATCHES = 4


def train(steps: int) -> list[float]:
    model = DistributedDataParallel(classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    small = batches(SMALL_BATCHES * steps, size=8)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        whole = torch.zeros(())
        for number in range(SMALL_BATCHES):
            images, labels = next(small)
            last = number == SMALL_BATCHES - 1
            with contextlib.nullcontext() if last else model.no_sync():
                loss = cross_entropy(model(images), labels) / SMALL_BATCHES
                loss.backward()
            whole += loss.detach()
        optimizer.step()
        losses.append(mean(whole))
    return losses


if __name__ == "__main__":
    run(train)
