"""Hugging Face Accelerate: the script names the backend, `accelerate launch` starts the workers.

    innet rack --workers 2 -- \\
        accelerate launch --multi_gpu --num_processes 2 examples/with_accelerate.py

`--multi_gpu` starts the processes on CPUs as well. With `--cpu` Accelerate leaves that to MPI.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import InitProcessGroupKwargs
from common import BATCH, classifier, dataset, mean
from losses import report, steps
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader


def train(steps: int) -> list[float]:
    accelerator = Accelerator(
        cpu=not torch.cuda.is_available(),
        kwargs_handlers=[InitProcessGroupKwargs(backend="innet")],
    )
    model = classifier()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    batches = DataLoader(dataset(steps), BATCH // accelerator.num_processes)
    model, optimizer, batches = accelerator.prepare(model, optimizer, batches)
    losses = []
    for images, labels in batches:
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        accelerator.backward(loss)
        optimizer.step()
        losses.append(mean(loss))
    report(losses)
    accelerator.end_training()
    return losses


if __name__ == "__main__":
    train(steps())
