"""A worker that sums integers until a file appears, and compares each sum with the exact one.

``python summing_worker.py STOP``: the workers form a process group, and use it as the fallback.
After every sum the worker prints a JSON line with the sum's number and path.
"""

import sys
from pathlib import Path

import numpy as np
import torch.distributed as dist
from steps import say

import innet

ELEMENTS = 1000


def main(stop: Path) -> None:
    """Sum vectors that follow from their number and rank. All workers stop after the same one."""
    dist.init_process_group("gloo")
    rank, workers = dist.get_rank(), dist.get_world_size()
    step, stopping = 0, False
    with innet.join(fallback=dist.group.WORLD) as agent:
        while not stopping:
            bound = (1 << 31) // workers
            chance = np.random.default_rng(step)
            vectors = chance.integers(-bound + 1, bound, (workers, ELEMENTS), np.int32)
            vectors[:, 0] = 0
            exact = vectors.sum(axis=0, dtype=np.int32)
            vectors[rank, 0] = stop.exists()
            result = agent.all_reduce(vectors[rank], op="sum")
            np.testing.assert_array_equal(result[1:], exact[1:])
            stopping = bool(result[0])
            assert agent.term
            say(step=step, path=agent.term.path.name)
            step += 1
    say(end=True, parameters=str(step))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
