"""A worker that trains, saves every step, and may die once, for tests/torch/test_torchrun.py.

``torchrun elastic_worker.py FOLDER [STEP]``; rank 1 dies before that step. After a restart by
torchrun it goes on from the last saved step.
"""

import os
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

import innet.torch

STEPS, RATE = 6, 0.1


def main(folder: Path, dies_before: int = STEPS) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("innet")
    rank, restarts = dist.get_rank(), int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    torch.manual_seed(1)
    # Neither DistributedDataParallel nor an optimizer: both import PyTorch's compiler, which takes long.
    model = nn.Linear(40, 30)
    saved, first = folder / "checkpoint", 0
    if saved.exists():
        state = torch.load(saved)
        first = state["step"]
        model.load_state_dict(state["model"])
    for step in range(first, STEPS):
        if step == dies_before and rank == 1 and not restarts:
            os._exit(9)
        loss = model(torch.full((4, 40), rank + step + 1.0)).square().mean()
        gradient = parameters_to_vector(torch.autograd.grad(loss, model.parameters()))
        dist.all_reduce(gradient)
        weights = parameters_to_vector(model.parameters()).detach()
        vector_to_parameters(weights - RATE * gradient / dist.get_world_size(), model.parameters())
        if rank == 0:
            torch.save({"step": step + 1, "model": model.state_dict()}, folder / "writing")
            (folder / "writing").rename(saved)
    by_switch = innet.torch.carried()["allreduce", "switch", ""]
    term = innet.torch.backend_of(dist.group.WORLD)._membership.agent.term.number
    sums = [f"{parameter.double().sum().item()!r}" for parameter in model.parameters()]
    said = ["rank", rank, "restarts", restarts, "from", first, "term", term, *sums]
    sys.stdout.write(" ".join(map(str, said)) + "\n")
    assert by_switch == STEPS - first
    dist.destroy_process_group()


if __name__ == "__main__":
    main(Path(sys.argv[1]), *map(int, sys.argv[2:]))
