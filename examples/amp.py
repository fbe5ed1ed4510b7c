"""Mixed precision with a gradient scaler: if one worker's gradient overflows, all skip the step.

In step 3 worker 0 meets an infinity. Every worker sees in the all-reduced gradient that it is not
finite. So every scaler skips the step and lowers its scale by the same factor.
"""

import torch
import torch.distributed as dist
from common import batches, classifier, digest, mean, run
from torch.nn.functional import cross_entropy
from torch.nn.parallel import DistributedDataParallel

OVERFLOWS_IN = 3


def train(steps: int) -> list[float]:
    model = DistributedDataParallel(classifier())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=1024.0)
    losses = []
    for step, (images, labels) in enumerate(batches(steps), start=1):
        optimizer.zero_grad()
        with torch.autocast("cpu", dtype=torch.bfloat16):
            loss = cross_entropy(model(images), labels)
        overflows = step == OVERFLOWS_IN
        poison = torch.inf if overflows and dist.get_rank() == 0 else 1.0
        before, scale = digest(model), scaler.get_scale()
        scaler.scale(loss * poison).backward()
        scaler.step(optimizer)
        scaler.update()
        if overflows != (digest(model) == before) or overflows != (scaler.get_scale() < scale):
            raise RuntimeError("a step is to be skipped, and the scale lowered, on overflow only")
        losses.append(mean(loss))
    return losses


if __name__ == "__main__":
    run(train)
