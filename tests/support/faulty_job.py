"""A job behind cables with faults, whose sums are compared with exact ones, element by element.

Its callers overwrite inputs and results as soon as they may.
"""

import contextlib
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from callers import copied, spoil, submit
from racks import Rack

from innet.host.agent import Agent
from innet.host.agreement import ALL_GATHER, REDUCE_SCATTER, Collective
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
        ``long`` is int64. Of a ``scatter`` each worker gets a part, and of a ``reduce`` only one gets
        anything. ``gather`` and ``broadcast`` move bits.
        """
        shape, dtype = (len(self.agents), size), np.int64 if kind == "long" else np.int32
        most = int(np.iinfo(dtype).max) // len(self.agents)
        vectors = self.chance.integers(-most, most, shape, dtype, endpoint=True)
        if kind == "large":
            vectors[0] = self.chance.integers(-(2**31) + 1, 2**31 - 1, size, dtype, endpoint=True)
            vectors[1:] = 0
            vectors[-1] -= vectors[0] // 2
        root = int(self.chance.integers(len(self.agents)))
        if kind in ("gather", "broadcast"):
            collective = ALL_GATHER if kind == "gather" else Collective("broadcast", root)
            whole = vectors.reshape(-1) if kind == "gather" else vectors[root]
            moved = [
                move(agent, vector, collective)
                for agent, vector in zip(self.agents, vectors, strict=True)
            ]
            return Sum(self, vectors.dtype, [whole] * len(self.agents), moved)
        total = vectors.sum(axis=0, dtype=np.int64)
        parts = [part_of(kind, size, rank, len(self.agents), root) for rank in range(len(vectors))]
        collective = {"scatter": REDUCE_SCATTER, "reduce": Collective("reduce", root)}.get(kind)
        more = {"collective": collective} if collective else {}
        results = [
            submit(agent, vector, op="sum", part=part, **more)
            for agent, vector, part in zip(self.agents, vectors, parts, strict=True)
        ]
        exact = [total if part is None else total[part.start : part.stop] for part in parts]
        return Sum(self, vectors.dtype, exact, results)


def part_of(kind: str, size: int, rank: int, workers: int, root: int) -> range | None:
    """Return the part of a sum that a worker gets, or None if it is all."""
    if kind == "scatter":
        return range(rank * size // workers, (rank + 1) * size // workers)
    return range(size if rank == root else 0) if kind == "reduce" else None


def move(agent: Agent, given: np.ndarray, collective: Collective) -> "Future[Any]":
    """All-gather or broadcast a copy of a vector, which is overwritten as soon as it may be."""
    mine = copied(given)

    def finish(found: np.ndarray) -> np.ndarray:
        kept = np.array(found).reshape(-1).view(given.dtype)
        spoil(mine)
        return kept

    return agent.submit_move(mine, collective, finish)


class Sum:
    """A sum or a move in flight, with the expected result of each worker."""

    def __init__(
        self,
        job: FaultyJob,
        dtype: np.dtype[Any],
        exact: Sequence[np.ndarray],
        results: "Sequence[Future[Any]]",
    ) -> None:
        self._job, self._dtype, self._exact, self._results = job, dtype, exact, results

    def check(self) -> None:
        """Check that all workers get the exact result."""
        for rank, (future, exact) in enumerate(zip(self._results, self._exact, strict=True)):
            result = future.result(_WITHIN)
            assert result.dtype == self._dtype
            wrong = np.flatnonzero(result != exact)
            assert not wrong.size, (
                f"worker {rank}, seed {self._job.seed}: {wrong.size} of {exact.size} elements "
                f"are wrong, the first of them {wrong[0]}: {result[wrong[0]]} is not "
                f"{exact[wrong[0]]}"
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
