"""The workers of the demo: DistributedDataParallel on handwritten digits, over innet or Gloo.

They print JSON objects, one per line. The first one says that PyTorch is loaded. The others are each
worker's, with its rank: after each epoch, the epoch's number and the loss, and at the end a summary.
"""

import hashlib
import json
import sys
from dataclasses import asdict
from functools import partial
from typing import Any

import torch
import torch._dynamo  # the optimizers import it: here it is imported once for all workers
import torch.distributed as dist
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.parallel import DistributedDataParallel

import innet
from innet.host.agent import Agent
from innet.local.workers import fork_workers

SEED = 1
_BATCH = 16
_LEARNING_RATE = 0.1
_MOMENTUM = 0.9
_TEST_SHARE = 5


def main(network: str, epochs: int) -> None:
    """Train with the ranks and addresses that the environment gives, as torchrun sets them."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(SEED)
    model = nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )
    replica = DistributedDataParallel(model)
    agent = innet.join(fallback=dist.group.WORLD) if network == "innet" else None
    if agent:
        replica.register_comm_hook(agent, innet.ddp_hook)

    (images, labels), test = digits()
    optimizer = torch.optim.SGD(replica.parameters(), lr=_LEARNING_RATE, momentum=_MOMENTUM)
    together = workers * _BATCH
    whole = len(images) // together * together  # whole steps only, equally many on all workers
    total = epochs * (whole // together)
    # The rate falls linearly to zero in the second half. At a constant high rate the last bits of
    # the sums would decide the final accuracy.
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: min(1.0, 2 - 2 * step / total)
    )
    shuffler = torch.Generator().manual_seed(SEED)
    for epoch in range(epochs):
        order = torch.randperm(len(images), generator=shuffler)
        for batch in order[:whole].split(together):
            mine = batch[rank::workers]
            optimizer.zero_grad()
            loss = nn.functional.cross_entropy(replica(images[mine]), labels[mine])
            loss.backward()
            optimizer.step()
            schedule.step()
        say(rank=rank, epoch=epoch + 1, loss=loss.item())
    say(rank=rank, **summary(model, (images, labels), test, total, agent))
    if agent:
        agent.close()
    dist.barrier()
    dist.destroy_process_group()


def digits() -> tuple[tuple[torch.Tensor, torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Return scikit-learn's 1797 digits, float32 (n, 64) and int64 (n,), as training and test set."""
    data = load_digits()
    images = torch.tensor(data.data / 16, dtype=torch.float32)
    labels = torch.tensor(data.target)
    order = torch.randperm(len(images), generator=torch.Generator().manual_seed(SEED))
    cut = len(images) // _TEST_SHARE
    test, training = order[:cut], order[cut:]
    return (images[training], labels[training]), (images[test], labels[test])


def summary(
    model: nn.Module,
    training: tuple[torch.Tensor, torch.Tensor],
    test: tuple[torch.Tensor, torch.Tensor],
    steps: int,
    agent: Agent | None,
) -> dict[str, Any]:
    """Return the facts about a finished training that the comparison needs."""
    with torch.no_grad():
        loss = nn.functional.cross_entropy(model(training[0]), training[1])
        right = (model(test[0]).argmax(dim=1) == test[1]).float().mean()
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    return {
        "final_loss": loss.item(),
        "accuracy": right.item(),
        "parameters": digest.hexdigest(),
        "elements": steps * sum(parameter.numel() for parameter in model.parameters()),
        "traffic": asdict(agent.traffic) if agent else None,
    }


def say(**facts: Any) -> None:
    """Print a message for the comparison, in one piece: the workers share the output."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    _network, _epochs, _workers = sys.argv[1:]
    say(loaded=True)
    sys.exit(fork_workers(partial(main, _network, int(_epochs)), int(_workers)))
