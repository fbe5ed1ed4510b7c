"""A job behind cables with faults, whose sums are compared with exact ones, element by element.

Its callers overwrite inputs and results as soon as they may.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from callers import submit
from racks import Rack

from innet.host.agent import Agent
from innet.local.faults import Faults, Wiring, faulty

if TYPE_CHECKING:
    from concurrent.futures import Future


_WITHIN = 4 * 3600.0
"""Seconds. A sum that makes no progress ends by the agents' timeouts; one that does may take long."""


class FaultyJob:
    """A job's workers, and integers for them to sum."""

    def __init__(self, name: str, agents: Sequence[Agent], wiring: Wiring, seed: int) -> None:
        self.name, self.agents, self.wiring, self.seed = name, agents, wiring, seed
        self.chance = np.random.default_rng(seed)

    def sum(self, *sizes: int, kind: str = "small") -> None:
        """Sum random vectors of these sizes, all in flight at once. Check every element."""
        for each in [self.submit(size, kind) for size in sizes]:
            each.check()

    def submit(self, size: int, kind: str = "small") -> "Sum":
        """Begin to sum one random vector per worker.

        The sums of ``small`` int32 cannot leave 32 bits. Those of ``large`` ones might, but do not.
        ``long`` is int64.
        """
        shape, dtype = (len(self.agents), size), np.int64 if kind == "long" else np.int32
        most = int(np.iinfo(dtype).max) // len(self.agents)
        vectors = self.chance.integers(-most, most, shape, dtype, endpoint=True)
        if kind == "large":
            vectors[0] = self.chance.integers(-(2**31) + 1, 2**31 - 1, size, dtype, endpoint=True)
            vectors[1:] = 0
            vectors[-1] -= vectors[0] // 2
        return Sum(self, vectors)


class Sum:
    """A sum in flight."""

    def __init__(self, job: FaultyJob, vectors: np.ndarray) -> None:
        self._job = job
        self._dtype = vectors.dtype
        self._exact = vectors.sum(axis=0, dtype=np.int64)
        self._results: list[Future[Any]] = [
            submit(agent, vector, op="sum")
            for agent, vector in zip(job.agents, vectors, strict=True)
        ]

    def check(self) -> None:
        """Check that all workers get the exact sum."""
        for rank, future in enumerate(self._results):
            result = future.result(_WITHIN)
            assert result.dtype == self._dtype
            wrong = np.flatnonzero(result != self._exact)
            assert not wrong.size, (
                f"worker {rank}, seed {self._job.seed}: {wrong.size} of {self._exact.size} elements "
                f"are wrong, the first of them {wrong[0]}: {result[wrong[0]]} is not "
                f"{self._exact[wrong[0]]}"
            )


@contextlib.contextmanager
def faulty_job(
    tor: Rack, workers: int, slots: int, seed: int, faults: Faults | None = None, **more: Any
) -> Iterator[FaultyJob]:
    """Yield a job of a rack, with these faults on all of its workers' cables.

    `more` are fields of the job's request.
    """
    with contextlib.ExitStack() as stack:
        links = stack.enter_context(tor.cables(workers))
        wiring = stack.enter_context(faulty(links, seed, faults, faults))
        name = stack.enter_context(tor.job(workers, slots, **more))
        yield FaultyJob(name, stack.enter_context(joined(tor, name, wiring)), wiring, seed)


@contextlib.contextmanager
def joined(tor: Rack, name: str, wiring: Wiring) -> Iterator[list[Agent]]:
    """Join one generation of a job's workers, each at the near end of a cable."""
    with contextlib.ExitStack() as stack:
        yield [
            stack.enter_context(tor.join(name, rank, link))
            for rank, link in enumerate(wiring.links)
        ]
