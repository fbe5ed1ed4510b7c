"""The entries that the switches of a job should hold: while a term sums, and between two terms."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from innet.controller.jobs.records import Assignment, Attachment, Share, SlotRange
from innet.controller.jobs.trees import Fabric, answering_only


@dataclass(frozen=True)
class Assignments:
    """The assignments of all switches in one term of a job.

    `fresh` tells whether the job's counters are still to be set to zero. `group_ranks` are those of the
    job.
    """

    job: int
    term: int
    fabric: Fabric
    slot_range: SlotRange
    fresh: bool
    group_ranks: tuple[int, ...] = ()

    def idle(self, to_clear: Collection[str]) -> dict[str, Assignment]:
        """Return the entries while no switch sums; those `to_clear` clear their cells."""
        return {
            switch: Assignment(
                self.job, self.slot_range, self.term, clear=switch in to_clear, fresh=self.fresh
            )
            for switch in self.fabric.uplinks
        }

    def running(
        self,
        at: Mapping[int, Attachment],
        plan: Mapping[str, tuple[Share, ...]],
        quorum: int,
    ) -> dict[str, Assignment]:
        """Return the entries while the switches sum by this plan for the workers `at` them.

        An empty plan means that a worker has left the tree: it sums nothing more. Then each switch
        still answers its own workers, and `quorum` is the job's.
        """
        here: dict[str, dict[int, Attachment]] = {each: {} for each in self.fabric.uplinks}
        for rank, where in at.items():
            here[where.switch][rank] = where
        return {
            switch: Assignment(
                self.job,
                self.slot_range,
                self.term,
                workers,
                plan.get(switch, ()) if plan else self._answering(workers, quorum),
                beyond=self._beyond(switch, at),
                fresh=self.fresh,
                group_ranks=self.group_ranks,
            )
            for switch, workers in here.items()
        }

    def _answering(self, here: Mapping[int, Attachment], quorum: int) -> tuple[Share, ...]:
        if not here:
            return ()
        return (answering_only(self.slot_range, here, quorum, self.fabric.contributors),)

    def _beyond(self, switch: str, at: Mapping[int, Attachment]) -> dict[str, int]:
        """Return the port of a switch that leads to each worker at other switches, by MAC address."""
        others = {where.switch for where in at.values()} - {switch}
        ports = {there: self.fabric.port_towards(there, switch) for there in others}
        return {
            where.address.mac: port for where in at.values() if (port := ports.get(where.switch))
        }
