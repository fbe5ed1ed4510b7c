"""Slurm: srun starts the workers, on one machine or on many.

    srun --ntasks 2 python examples/with_slurm.py
"""

import argparse

import ddp
import torch.distributed as dist
from common import report

if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100)
    dist.init_process_group("innet", "slurm://")
    report(ddp.train(parser.parse_args().steps))
    dist.destroy_process_group()
