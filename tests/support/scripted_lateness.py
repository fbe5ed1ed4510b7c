"""Late workers by a script, so that a test knows who is late in which step."""

from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from waiting import WITHIN

from innet.host.agent import Agent
from innet.host.deadline_sums import DeadlineSums
from innet.host.integers import Integers
from innet.host.late_workers import LateWorkers

Late = tuple[set[int], int]
"""The late ranks of a step, and the stride of their chunks."""

NOBODY: Late = (set(), 1)
SCRIPT = [
    *[NOBODY] * 2, *[({1}, 2)] * 3, *[({1}, 4)] * 5, *[({1, 3}, 8)] * 9, ({1, 3}, 4), *[NOBODY] * 2,
    *[({0}, 2)] * 3,
]  # fmt: skip
"""The late workers of each step and their stride, for four workers; once the first of them is late."""


class ScriptedLateness(LateWorkers):
    """Late workers that a script names, whatever the workers find."""

    def __init__(self, workers: int, script: Iterable[Late]) -> None:
        super().__init__(workers)
        self._script = iter(script)

    def learn(self, largest: Integers) -> None:
        assert largest.shape == (self.workers + 1,)
        ranks, self.stride = next(self._script)
        self.ranks = frozenset(ranks)


def scripted(agents: Sequence[Agent], script: Sequence[Late] = SCRIPT) -> list[DeadlineSums]:
    """Return the sums of these agents, in which the script names the late workers."""
    found = [DeadlineSums(agent) for agent in agents]
    for each in found:
        each.late = ScriptedLateness(len(agents), script)
    return found


def harmed(script: Iterable[Late], at: int, harm: Callable[[], None]) -> Iterator[Late]:
    """Yield a script, and harm the system in the middle of a step, before its sum."""
    for step, late in enumerate(script):
        if step == at:
            harm()
        yield late


def at_once(agents: Sequence[Agent], work: Callable[[int], Any]) -> list[Any]:
    """Return what each worker's thread returns."""
    with ThreadPoolExecutor(len(agents)) as pool:
        running = [pool.submit(work, rank) for rank in range(len(agents))]
        return [each.result(WITHIN) for each in running]
