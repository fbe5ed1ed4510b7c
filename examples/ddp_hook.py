"""A communication hook: gradients go through the switch, another backend carries everything else.

    innet rack --workers 2 -- torchrun --nproc-per-node 2 examples/ddp_hook.py

NCCL or Gloo stays the script's process group. The agent takes the job's name from INNET_JOB.
"""

import argparse

import torch
import torch.distributed as dist
from common import batches, classifier, digest, mean
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import innet


def train(steps: int, agent: innet.Agent) -> tuple[list[float], str]:
    model = DistributedDataParallel(classifier(), bucket_cap_mb=8 / 1024)
    model.register_comm_hook(agent, innet.ddp_hook)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses = []
    for images, labels in batches(steps):
        optimizer.zero_grad()
        loss = cross_entropy(model(images), labels)
        loss.backward()
        optimizer.step()
        losses.append(mean(loss))
    return losses, digest(model)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    dist.init_process_group("gloo")
    with innet.join(fallback=dist.group.WORLD) as agent:
        losses, parameters = train(parser.parse_args().steps, agent)
    for step, loss in enumerate(losses, start=1):
        print(f"rank {dist.get_rank()} step {step}: loss {loss:.6f}", flush=True)
    print(f"rank {dist.get_rank()} parameters {parameters}", flush=True)
    dist.destroy_process_group()
