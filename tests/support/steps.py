"""A worker that trains a small network step by step, and prints the time of each step.

``python steps.py STEPS [group]``; with ``group`` the workers form a process group, and use it as
the fallback. After every step the worker prints a JSON line: the step's number, the time, the path
of its sums, and sometimes a digest of the parameters.
"""

import hashlib
import json
import os
import sys
import time

import torch
import torch.distributed as dist
from torch import nn

import innet

REPORT_EVERY = 50


def main(steps: int, *, group: bool) -> None:
    """Train on random data that every worker derives from rank and step, so that all runs agree."""
    torch.set_num_threads(1)
    if group:
        dist.init_process_group("gloo")
    torch.manual_seed(3)
    model = nn.Sequential(nn.Linear(32, 64), nn.ReLU(), nn.Linear(64, 8))
    parameters = list(model.parameters())
    teacher = torch.randn(32, 8)
    rank = int(os.environ["RANK"])
    with innet.join(fallback=dist.group.WORLD if group else None) as agent:
        for step in range(steps):
            data = torch.randn(16, 32, generator=torch.Generator().manual_seed(step * 64 + rank))
            loss = nn.functional.mse_loss(model(data), data @ teacher)
            gradients = torch.autograd.grad(loss, parameters)
            flat = torch.cat([each.reshape(-1) for each in gradients])
            mean = agent.all_reduce(flat)
            flat.fill_(torch.nan)  # no other worker may get the caller's later values
            descend(parameters, mean)
            mean.fill_(torch.nan)
            digest = digest_of(parameters) if step % REPORT_EVERY == 0 else ""
            assert agent.term
            path = agent.term.path.name
            say(step=step, at=time.monotonic(), loss=loss.item(), path=path, parameters=digest)
        say(end=True, parameters=digest_of(parameters))


def descend(parameters: list[nn.Parameter], gradient: torch.Tensor) -> None:
    """Take one step of gradient descent."""
    sizes = [each.numel() for each in parameters]
    with torch.no_grad():
        for each, part in zip(parameters, gradient.split(sizes), strict=True):
            each.sub_(part.reshape(each.shape), alpha=0.05)


def digest_of(parameters: list[nn.Parameter]) -> str:
    """Return a short digest of all bits of the parameters."""
    digest = hashlib.sha256()
    for each in parameters:
        digest.update(each.detach().numpy().tobytes())
    return digest.hexdigest()


def say(**facts: object) -> None:
    """Print a message for the test."""
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(int(sys.argv[1]), group=sys.argv[2:] == ["group"])
