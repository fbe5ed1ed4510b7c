"""All-reduces of integers, over and over, with a check of every sum.

Written for `innet emulate`, which runs it on every host of a cluster:

    sudo innet emulate topologies/one-rack.yaml -- python examples/all_reduce.py

All settings come from the environment, so it runs wherever a worker can join a job. With `--over
gloo` the same vectors go over PyTorch's Gloo instead.
"""

import argparse
import os
import time
from collections.abc import Callable
from functools import partial

import numpy as np

import innet

SEED = 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--over", choices=["innet", "gloo"], default="innet")
    parser.add_argument("--mib", type=float, default=1.0, help="size of the vector")
    parser.add_argument("--steps", type=int, default=5)
    options = parser.parse_args()
    rank, workers = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    elements = int(options.mib * (1 << 20)) // 4
    if options.over == "gloo":
        import torch  # noqa: F401 - now, for a joined worker must not be silent during a slow import

    with innet.join() as agent:  # with Gloo as well, so that the switches learn where the hosts are
        reduce = partial(agent.all_reduce, op="sum") if options.over == "innet" else over_gloo()
        for step in range(options.steps):
            vectors = [vector(step, each, elements) for each in range(workers)]
            began = time.monotonic()
            total = reduce(vectors[rank])
            took = time.monotonic() - began
            if not np.array_equal(total, np.sum(vectors, axis=0, dtype=np.int32)):
                raise SystemExit(f"step {step}: the sum is wrong")
            each_way = total.nbytes * 8 / took / 1e6
            print(f"step {step}: {took:.3f} s, {each_way:.1f} Mbit/s each way", flush=True)


def vector(step: int, rank: int, elements: int) -> np.ndarray:
    """Return the contribution of a worker; every other worker can compute it too."""
    chance = np.random.default_rng([SEED, step, rank])
    return chance.integers(-(1 << 24), 1 << 24, elements, np.int32)


def over_gloo() -> Callable[[np.ndarray], np.ndarray]:
    """Return a function that all-reduces over a Gloo process group of all workers."""
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")

    def reduce(own: np.ndarray) -> np.ndarray:
        total = torch.from_numpy(own.copy())
        dist.all_reduce(total)
        return total.numpy()

    return reduce


if __name__ == "__main__":
    main()
