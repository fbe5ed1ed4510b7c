"""A worker that sums integers in bursts until it is killed, and compares each sum with the exact one.

``python bursting_worker.py SUMS PAUSE``: it computes for about PAUSE seconds after so many sums. After
every sum it prints a JSON line with the sum's number, and the slots of its term.
"""

import itertools
import os
import random
import sys
import threading

import numpy as np
from steps import say

import innet

WORKERS, ELEMENTS = 2, 4000


def main(sums: int, pause: float) -> None:
    """Sum vectors that follow from their number and rank."""
    rank, computes = int(os.environ["RANK"]), threading.Event()
    chance = random.Random(rank)
    with innet.join() as agent:
        for step in itertools.count():
            bound = (1 << 31) // WORKERS
            vectors = np.random.default_rng(step).integers(
                -bound + 1, bound, (WORKERS, ELEMENTS), np.int32
            )
            result = agent.all_reduce(vectors[rank], op="sum")
            np.testing.assert_array_equal(result, vectors.sum(axis=0, dtype=np.int32))
            assert agent.term
            say(step=step, parameters="", slots=agent.term.slots, first=agent.term.first_slot)
            if step % sums == sums - 1:
                computes.wait(pause * chance.random())


if __name__ == "__main__":
    main(int(sys.argv[1]), float(sys.argv[2]))
