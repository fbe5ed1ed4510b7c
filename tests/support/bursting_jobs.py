"""Jobs that sum in bursts and lend slots to each other, in threads of one process."""

import itertools
import random
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from trees import integers, sums
from waiting import WITHIN, until

from innet.host.agent import Agent

MOVES = 8
"""The terms that every job begins, at least."""


def sum_in_bursts(jobs: Sequence[Sequence[Agent]]) -> None:
    """Let all jobs sum in bursts until each has been moved often, and compare every sum."""
    over = threading.Event()
    used: list[set[int]] = [set() for _ in jobs]
    with ThreadPoolExecutor(len(jobs)) as pool:
        running = [
            pool.submit(_bursts, job, seed, over, used[seed]) for seed, job in enumerate(jobs)
        ]
        try:
            until(lambda: len(_numbers(jobs)) == len(jobs))
            begun = _numbers(jobs)
            until(
                lambda: (
                    (_moved(jobs, begun) and all(len(sizes) > 1 for sizes in used))
                    or any(each.done() for each in running)
                )
            )
        finally:
            over.set()
        for each in running:
            each.result(WITHIN)


def _bursts(agents: Sequence[Agent], seed: int, over: threading.Event, used: set[int]) -> None:
    """Sum in bursts, compare every sum, and note the numbers of slots that were used."""
    chance = random.Random(seed)
    for number in itertools.count():
        for _ in range(chance.randrange(1, 6)):
            vectors = integers(1000 * seed + number, len(agents), chance.randrange(1, 8000))
            for result in sums(agents, vectors):
                np.testing.assert_array_equal(result, vectors.sum(axis=0, dtype=np.int64))
            used.update(each.term.slots for each in agents if each.term)
        if over.wait(chance.random() * 0.1):
            break


def _numbers(jobs: Sequence[Sequence[Agent]]) -> list[int]:
    """Return the terms of the jobs that have begun one."""
    return [job[0].term.number for job in jobs if job[0].term]


def _moved(jobs: Sequence[Sequence[Agent]], begun: list[int]) -> bool:
    """Return whether every job has begun many terms since."""
    now = _numbers(jobs)
    return len(now) == len(begun) and all(
        (after - before) % (1 << 16) >= MOVES for before, after in zip(begun, now, strict=True)
    )
