"""Late workers by a script, so that a test knows who is late in which step."""

from collections.abc import Iterable

from innet.host.integers import Integers
from innet.host.late_workers import LateWorkers

Late = tuple[set[int], int]
"""The late ranks of a step, and the stride of their chunks."""


class ScriptedLateness(LateWorkers):
    """Late workers that a script names, whatever the workers find."""

    def __init__(self, workers: int, script: Iterable[Late]) -> None:
        super().__init__(workers)
        self._script = iter(script)

    def learn(self, largest: Integers) -> None:
        assert largest.shape == (self.workers,)
        ranks, self.stride = next(self._script)
        self.ranks = frozenset(ranks)
