"""Hybrid sharding (HSDP) on a DeviceMesh: parts within a node, replicas across nodes.

fully_shard on a mesh of two dimensions reduce-scatters gradients along the second. Then it
all-reduces each worker's part along the first. In ``innet rack``, all of it goes through the switch.
"""

import torch
import torch.distributed as dist
from common import batches, classifier, mean, run
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.functional import cross_entropy


def train(steps: int) -> list[float]:
    model = classifier()
    shards = 2 if dist.get_world_size() >= 4 else 1
    shape = (dist.get_world_size() // shards, shards)
    mesh = init_device_mesh("cpu", shape, mesh_dim_names=("replicate", "shard"))
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
