"""ZeroRedundancyOptimizer: every worker keeps the optimizer state of a part of the parameters."""

import torch
from common import batches, classifier, mean, run
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def train(steps: int) -> list[float]:
    model = DistributedDataParallel(classifier())
    # Gradients are all-reduced. The worker that holds a parameter's state broadcasts the updated
    # parameter.
    optimizer = ZeroRedundancyOptimizer(model.parameters(), torch.optim.Adam, lr=1e-3)
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
