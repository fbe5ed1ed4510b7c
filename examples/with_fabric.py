"""Lightning Fabric: an ordinary loop, and workers that Fabric starts.

innet rack --workers 2 -- python examples/with_fabric.py
"""

import torch
from common import BATCH, classifier, dataset, mean
from lightning.fabric import Fabric
from lightning.fabric.strategies import DDPStrategy
from losses import report, steps
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader

WORKERS = 2


def train(steps: int) -> list[float]:
    fabric = Fabric(devices=WORKERS, strategy=DDPStrategy(process_group_backend="innet"))
    fabric.launch()
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    model, optimizer = fabric.setup(model, optimizer)
    batches = fabric.setup_dataloaders(DataLoader(dataset(steps), BATCH // WORKERS))
    losses = []
    for images, labels in batches:
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        fabric.backward(loss)
        optimizer.step()
        losses.append(mean(loss))
    report(losses)
    return losses


if __name__ == "__main__":
    train(steps())
