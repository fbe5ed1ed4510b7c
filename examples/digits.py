"""DistributedDataParallel training on scikit-learn's handwritten digits, with sums in the switch.

Three lines are innet's and marked as such. The rest is an ordinary script for torchrun. It needs a
controller with a switch, and a job with as many workers as processes. `innet job create` prints the
job's token:

    innet job create digits --switch tor --workers 2
    export INNET_CONTROLLER=10.0.0.1:9600 INNET_JOB=digits INNET_TOKEN=...
    torchrun --nproc-per-node 2 examples/digits.py

A worker reaches the switch through its host's network. If the switch is `innet-switch` on cables
made of UDP, INNET_LINK names the workers' ends of the cables, one for each local rank:

    export INNET_LINK="udp:127.0.0.1:8001/127.0.0.1:9001 udp:127.0.0.1:8002/127.0.0.1:9002"
"""

import hashlib

import torch
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

import innet  # innet's first line

EPOCHS = 3
BATCH = 32
SEED = 1


def main() -> None:
    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(SEED)
    model = DistributedDataParallel(
        nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
    )
    agent = innet.join(fallback=dist.group.WORLD)  # innet's second line
    model.register_comm_hook(agent, innet.ddp_hook)  # innet's third line

    digits = load_digits()
    images = torch.tensor(digits.data / 16, dtype=torch.float32)
    labels = torch.tensor(digits.target)
    shuffled = torch.randperm(len(images))
    test, training = shuffled[:300], shuffled[300:]

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    for epoch in range(EPOCHS):
        order = training[torch.randperm(len(training))]
        # A worker takes its share of every batch; the last, incomplete batch is left out.
        for batch in order[: len(order) // BATCH * BATCH].split(BATCH):
            mine = batch[rank::workers]
            optimizer.zero_grad()
            loss = cross_entropy(model(images[mine]), labels[mine])
            loss.backward()
            optimizer.step()
        if rank == 0:
            print(f"epoch {epoch + 1}: loss {loss.item():.4f}", flush=True)

    with torch.no_grad():
        accuracy = (model.module(images[test]).argmax(dim=1) == labels[test]).float().mean()
    parameters = b"".join(each.detach().numpy().tobytes() for each in model.parameters())
    digest = hashlib.sha256(parameters).hexdigest()
    print(f"rank {rank}: accuracy {accuracy:.4f}, parameters {digest}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
