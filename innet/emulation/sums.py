"""A switch's work for the job, by its own counters."""

from dataclasses import dataclass
from typing import Any

from innet.emulation.plan import PlannedSwitch


@dataclass(frozen=True)
class SwitchSums:
    """A switch's finished sums and its contributions.

    `sums` are finished ones: for all workers at the top, for those below it elsewhere.
    `contributions` were added: from hosts, from switches below, and answers of a parent. `repeated`
    contributions were answered or ignored.
    """

    switch: str
    kind: str
    sums: int
    contributions: int
    repeated: int

    @classmethod
    def of(cls, switch: PlannedSwitch, counters: Any) -> "SwitchSums":
        """Make it from the controller's `Counters`."""
        return cls(
            switch.name,
            switch.kind,
            counters.completed,
            counters.completed + counters.waiting + counters.raised,
            counters.answered + counters.pending + counters.stale + counters.ignored,
        )
