"""The output of the examples: their losses, and the number of all-reduces through the switch."""

import argparse

import torch.distributed as dist

from innet.torch import carried


def steps() -> int:
    """Return the number of steps that the command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    return parser.parse_args().steps


def report(losses: list[float]) -> None:
    """Print the losses of all steps on rank 0, and the number of all-reduces by the switch."""
    if dist.get_rank() == 0:
        for step, loss in enumerate(losses, start=1):
            print(f"step {step}: loss {loss:.6f}", flush=True)
        number = sum(
            number
            for way, number in carried().items()
            if way.by == "switch" and way.collective.startswith("allreduce")
        )
        print(f"all-reduces through the switch: {number}", flush=True)
