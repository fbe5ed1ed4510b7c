"""What a switch has done for the job, by its own counters."""

from dataclasses import dataclass
from typing import Any

from innet.emulation.plan import PlannedSwitch


@dataclass(frozen=True)
class SwitchSums:
    """What it has summed, and of what.

    `sums` are those that it has finished: for all workers at the top, for those below it elsewhere.
    `contributions` were counted in, from hosts, switches below, and the answers of a parent; `repeated`
    ones were answered, or ignored.
    """

    switch: str
    kind: str
    sums: int
    contributions: int
    repeated: int

    @classmethod
    def of(cls, switch: PlannedSwitch, counters: Any) -> "SwitchSums":
        """From the controller's `Counters`."""
        return cls(
            switch.name,
            switch.kind,
            counters.completed,
            counters.completed + counters.waiting + counters.raised,
            counters.answered + counters.pending + counters.stale + counters.ignored,
        )
