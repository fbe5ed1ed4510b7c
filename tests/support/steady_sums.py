"""Sums that go on and on, each compared with the exact one, while a test changes something."""

import contextlib
import itertools
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from racks import WITHIN
from trees import integers, sums
from working_job import eventually

from innet.host.agent import Agent


@contextlib.contextmanager
def steady_sums(agents: Sequence[Agent], elements: int = 3000) -> Iterator[Callable[[], None]]:
    """Have the agents sum until the end. Yield a function that waits until more sums are done.

    A wrong sum, or an error of an agent, is raised in the end.
    """
    done: list[int] = []
    over = threading.Event()

    def work() -> None:
        for seed in itertools.count():
            vectors = integers(seed, len(agents), elements)
            exact = vectors.sum(axis=0, dtype=np.int64)
            for result in sums(agents, vectors):
                np.testing.assert_array_equal(result, exact)
            done.append(seed)
            if over.is_set():
                return

    with ThreadPoolExecutor(1) as pool:
        working = pool.submit(work)

        def wait_for_more(count: int = 3) -> None:
            wanted = len(done) + count
            eventually(lambda: len(done) >= wanted or working.done(), WITHIN)

        try:
            yield wait_for_more
        finally:
            over.set()
            working.result(WITHIN)
