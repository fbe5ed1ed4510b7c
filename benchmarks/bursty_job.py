"""A job of two workers that compute most of the time, and then sum their gradients in one burst.

:mod:`benchmarks.sharing` starts it. It prints ``true`` when both workers have joined, begins when it
reads a line, and then prints the steps' times in seconds as a JSON list. Every sum is compared with the
exact one. Computing is a wait, so that jobs compete for slots and not for the processors.
"""

import json
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np

from innet.host.agent import Agent
from innet.host.join import join

WORKERS, JITTER = 2, 0.2


@dataclass(frozen=True)
class Steps:
    """The work of a job. Each step computes for about `compute_s` seconds, and then sums its buckets.

    There are `buckets` of them, each of `elements` int32.
    """

    controller: str
    job: str
    token: str
    links: list[str]
    steps: int
    compute_s: float
    buckets: int
    elements: int
    seed: int


def step(agents: list[Agent], vectors: list[np.ndarray], buckets: int) -> None:
    """Sum all buckets, one after the other. Raises AssertionError for a wrong sum."""
    exact = np.sum(vectors, axis=0, dtype=np.int32)
    for _ in range(buckets):
        for future in [
            agent.submit(mine, "sum") for agent, mine in zip(agents, vectors, strict=True)
        ]:
            np.testing.assert_array_equal(future.result(), exact)


def main(work: Steps) -> None:
    """Join, wait for the start, and run all steps."""
    chance = np.random.default_rng(work.seed)
    vectors = list(chance.integers(-(2**30), 2**30, (WORKERS, work.elements), np.int32))
    with ThreadPoolExecutor(WORKERS) as pool:
        joining = [
            pool.submit(join, work.controller, work.job, rank, link, token=work.token)
            for rank, link in enumerate(work.links)
        ]
        agents = [each.result() for each in joining]
    step(agents, [each[:64] for each in vectors], 1)
    _say("true")
    sys.stdin.readline()
    time.sleep(chance.uniform(0, work.compute_s))  # jobs do not begin together
    taken = []
    for _ in range(work.steps):
        began = time.perf_counter()
        time.sleep(work.compute_s * chance.uniform(1 - JITTER, 1 + JITTER))
        step(agents, vectors, work.buckets)
        taken.append(time.perf_counter() - began)
    _say(json.dumps(taken))
    sys.stdin.readline()  # waits, so that this end does not disturb the other jobs
    for agent in agents:
        agent.close()


def _say(line: str) -> None:
    sys.stdout.write(line + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main(Steps(**json.loads(sys.argv[1])))
