"""Slurm: srun starts the workers, on one machine or on many.

    srun --ntasks 2 python examples/with_slurm.py

INNET_CONTROLLER has to be set, or srun has to run within `innet rack`.
"""

import ddp
import torch.distributed as dist
from losses import report, steps

if __name__ == "__main__":
    dist.init_process_group("innet", "slurm://")
    report(ddp.train(steps()))
    dist.destroy_process_group()
