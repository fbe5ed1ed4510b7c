"""fully_shard (FSDP2) on CPUs: every worker keeps a part of every parameter.

FSDP2 all-gathers parameters and reduce-scatters gradients, both through the switch. So do the
all-reduces of the script itself, here those of the losses.
"""

import torch
import torch.distributed as dist
from common import batches, classifier, mean, run
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy


def train(steps: int) -> list[float]:
    model = classifier()
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    for layer in (model[1], model[3]):
        fully_shard(layer, mesh=mesh)
    fully_shard(model, mesh=mesh)
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
