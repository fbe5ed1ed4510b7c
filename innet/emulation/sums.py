"""A switch's work for the job, according to the switch's own counters."""

from dataclasses import dataclass
from typing import Any

from innet.emulation.plan import PlannedSwitch


@dataclass(frozen=True)
class SwitchSums:
    """The numbers of a switch's finished sums and of its contributions.

    `sums` counts the finished sums that the switch has sent to the workers below it. `contributions`
    counts the contributions that it has added: those of hosts and child switches, and the answers of
    its parent. `repeated` counts the contributions that it has only answered or ignored.
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
