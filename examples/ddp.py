"""DistributedDataParallel, as in every tutorial. The backend all-reduces the gradients."""

import torch
from common import batches, classifier, mean, run
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel


def train(steps: int) -> list[float]:
    model = DistributedDataParallel(classifier(), gradient_as_bucket_view=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
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
