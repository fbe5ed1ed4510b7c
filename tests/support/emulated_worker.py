"""A worker on an emulated host: reduces vectors that a test expects, and writes the results to a folder.

``python emulated_worker.py FOLDER``, in an environment that has a worker's rank, job and
controller.
"""

import os
import sys
from pathlib import Path

import numpy as np

import innet

SIZES = (1, 65, 5_000)
SEED = 21


def integers(rank: int) -> list[np.ndarray]:
    """Return a worker's int32 contributions to exact sums."""
    chance = np.random.default_rng([SEED, rank])
    return [chance.integers(-(1 << 26), 1 << 26, size, np.int32) for size in SIZES]


def floats(rank: int) -> np.ndarray:
    """Return a worker's float32 contribution to a mean. Workers' magnitudes differ."""
    chance = np.random.default_rng([SEED, rank, 1])
    return chance.standard_normal(3_000, np.float32) * np.float32(100.0 ** (rank % 3 - 1))


def main(folder: Path) -> None:
    rank = int(os.environ["RANK"])
    with innet.join() as agent:
        sums = [agent.all_reduce(each, op="sum") for each in integers(rank)]
        mean = agent.all_reduce(floats(rank))
    np.savez(folder / f"{rank}.npz", *sums, mean=mean)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
