"""The switches of a job: which of them sum, which can be used, and what they hold for the job."""

import math
from collections.abc import Collection, Mapping

from innet.controller.jobs.agreement import Detour
from innet.controller.jobs.assignments import Assignments
from innet.controller.jobs.events import Bitmaps, SwitchBits
from innet.controller.jobs.records import Assignment, Attachment, JobSpec, Share, SlotRange
from innet.controller.jobs.roster import Roster, Worker
from innet.controller.jobs.trees import (
    Fabric,
    Tree,
    loads,
    most_contributors,
    shares,
)
from innet.errors import UsageError

_UNKNOWN = "the controller has not reached the switch yet"

Plan = Mapping[str, tuple[Share, ...]]
"""The shares of each switch that sums."""


class JobSwitches:
    """The switches of a job with this roster, and the slots that it has there.

    `own_range` has the job's own slots, None until it has some. While there is a `loan`, the job uses
    those slots instead.

    The `fabric` tells how the switches are linked, and which of them a term leaves out: those that
    are drained or lost. One switch is a tree of one node. `fresh` is set until the job's counters
    have been set to zero.
    """

    def __init__(
        self, spec: JobSpec, roster: Roster, fabric: Fabric, slot_range: SlotRange | None
    ) -> None:
        self.fabric, self.own_range, self.fresh = fabric, slot_range, True
        self.loan: SlotRange | None = None
        self._spec, self._roster = spec, roster
        self._problems: dict[str, str | None] = dict.fromkeys(fabric.uplinks, _UNKNOWN)
        self._detours = {each: Detour() for each in fabric.uplinks}  # around a switch that was lost
        self._used_since: dict[str, float] = {}  # when lost switches came back
        self._clear: set[str] = set()  # the switches that have cleared their cells
        self._held: dict[str, frozenset[int]] = {}  # the ranks that each switch admits
        self._absent: dict[int, Attachment] = {}  # of workers that have left a tree in this term
        # The last plan, trees and assignments, each with the inputs that it was made from.
        self._planned: tuple[object, Plan] = (None, {})
        self._grown: tuple[object, list[Tree]] = (None, [])
        self._assigned: tuple[object, Mapping[str, Assignment]] = (None, {})

    # Queries.

    @property
    def slot_range(self) -> SlotRange | None:
        """Return the slots that the job uses, or None while it waits for some."""
        return self.loan or self.own_range

    @property
    def pending(self) -> int:
        """Return how many workers are still to come before it is known which switches sum.

        Where there is one switch, it is known from the beginning. Workers that have left count only if
        too few are left to go on.
        """
        if len(self.fabric.uplinks) == 1:
            return 0
        return self._roster.missing if self._roster.ending else len(self._roster.to_come)

    @property
    def plan(self) -> Plan:
        """Return the shares of each switch that sums, or {} while these are not known."""
        return self.planned(self.fabric)

    def planned(self, fabric: Fabric) -> Plan:
        """Return the shares of each switch that would sum in a `fabric`."""
        if not self.slot_range or self.pending:
            return {}
        at, quorum = self._roster.attachments, self._roster.quorum
        at = {**at, **self._absent} if self._absent else at  # comparing a copy takes longer
        needs = (fabric, self.slot_range, at, quorum)
        if self._planned[0] != needs:
            plan = shares(
                self._trees(fabric, at),
                self.slot_range,
                at,
                quorum,
                by_rank=not self._spec.others,
                most=fabric.contributors,
            )
            self._planned = needs, plan
        return self._planned[1]

    def _trees(self, fabric: Fabric, at: Mapping[int, Attachment]) -> list[Tree]:
        """Return the trees that join the switches of these workers in a `fabric`."""
        needs = (fabric, {where.switch for where in at.values()})
        if self._grown[0] != needs:
            self._grown = needs, fabric.trees(needs[1])
        return self._grown[1]

    def bitmaps(self, rank: int) -> Bitmaps | None:
        """Return the meaning of the bitmaps that a worker gets, or None in a job with one switch."""
        where = self._roster.attachments[rank].switch
        found: list[SwitchBits] = []
        for share in self.plan.get(where, ()) if self._spec.others else ():
            at: Share | None = share
            while at:
                ranks = tuple(each.ranks for each in at.contributors)
                found.append(SwitchBits(share.first_slot, share.slots, at.level_bit, ranks))
                at = self._above(at)
        return Bitmaps(tuple(found)) if found else None

    def _above(self, share: Share) -> Share | None:
        """Return the share that a share's sums go to."""
        above = self.plan[share.uplink.parent] if share.uplink else ()
        return next((each for each in above if each.first_slot == share.first_slot), None)

    @property
    def problem(self) -> str | None:
        """Return why the switches that sum cannot be used, or None if they can."""
        return self.problem_in(self.fabric)

    def problem_in(self, fabric: Fabric) -> str | None:
        """Return why the switches that would sum in a `fabric` cannot be used, or None if they can."""
        if not self.slot_range:
            return "no slots are free for the job yet"
        plan = self.planned(fabric)
        if drained := fabric.drained & plan.keys():
            return f"the switch {min(drained)!r} is drained"
        return next((problem for each in plan if (problem := self._problems[each])), None)

    @property
    def cleared(self) -> bool:
        """Return whether all cells of the job are clear at every switch that sums."""
        plan = self.plan
        return bool(plan) and self._clear.issuperset(plan)

    @property
    def admit_all(self) -> bool:
        """Return whether the switches that sum admit all workers.

        A sum that goes up before its parent admits it is dropped, and is repeated only later.
        """
        return all(
            self._held.get(switch, frozenset()) >= share.ranks
            for switch, each in self.plan.items()
            for share in each
        )

    def regained(self, now: float) -> list[str]:
        """Return the lost switches that can be used again, if the plan would change with them."""
        lost, why = self.fabric.lost, self._problems
        on_detour = {each for each in lost if self._detours[each].reason(now, can_fall_back=False)}
        back = {each for each in lost - on_detour if not why[each]}
        changes = back and self.planned(self.fabric.with_lost(lost - back)) != self.plan
        return sorted(back) if changes else []

    @property
    def stalled(self) -> bool:
        """Return whether too many workers have left a tree for it to make results."""
        absent = self._absent.keys()
        return any(
            sum(absent.isdisjoint(each.ranks) for each in share.contributors) < share.awaited
            for every in self.plan.values()
            for share in every
            if not share.uplink
        )

    def sums(self, switch: str) -> bool:
        """Return whether a switch is one of those that sum."""
        return switch in self.plan

    def objection(self, worker: Worker, where: Attachment) -> UsageError | None:
        """Return an error if the switches cannot sum this worker's contributions with the others'.

        Either no switch is above them all, or a switch would have too many contributors.
        """
        at = {**self._roster.attachments, worker.rank: where}
        trees = self._trees(self.fabric, at)
        if not trees:
            others = {each.switch for rank, each in at.items() if rank != worker.rank}
            return UsageError(
                f"no switch of the job is above both {where.switch!r}, where worker "
                f"{self._spec.in_group(worker.rank)} is, "
                f"and {', '.join(sorted(map(repr, others)))}: attach all workers below one switch"
            )
        return self._crowding(worker, trees, at) if self._spec.others else None

    def _crowding(
        self, worker: Worker, trees: list[Tree], at: Mapping[int, Attachment]
    ) -> UsageError | None:
        most = most_contributors(trees, self.fabric.contributors)
        for tree in trees:
            for switch, count in loads(tree, at).items():
                if count > most:
                    return UsageError(
                        f"with worker {self._spec.in_group(worker.rank)} at {at[worker.rank].switch!r}, "
                        f"{count} workers and switches would contribute at {switch!r}: one switch of "
                        f"this job sums at most {most}; attach the worker to another one"
                    )
        return None

    def assignments(self, term: int, *, running: bool, clear: bool) -> Mapping[str, Assignment]:
        """Return the entries that each switch should hold, or none while the job has no slots.

        If a term is `running` on the switches, they are the entries for that term. With `clear`, the
        switches may clear the cells for the next term.
        """
        if not self.slot_range:
            return {}
        to_clear = self.plan.keys() - self._clear if clear and not running else set()
        at = self._roster.attachments if running else {}
        needs = (self.fabric, self.slot_range, self.fresh, term, running, to_clear, at, self.plan)
        if self._assigned[0] != needs:
            made = Assignments(
                self._spec.id,
                term,
                self.fabric,
                self.slot_range,
                self.fresh,
                self._spec.group_ranks,
            )
            entries = (
                made.running(at, self.plan, self._roster.quorum) if running else made.idle(to_clear)
            )
            self._assigned = needs, entries
        return self._assigned[1]

    # Changes.

    def set_problem(self, switch: str, problem: str | None) -> None:
        """Note that a switch is ready, with all its entries, or that it is not, and why."""
        self._problems[switch] = problem
        if problem:
            self._clear.discard(switch)
            self._held.pop(switch, None)

    def choose(self, now: float) -> None:
        """Leave out the switches that are lost, and no others. Call it while no term uses a switch."""
        lost = {each for each, why in self._problems.items() if why not in (None, _UNKNOWN)}
        for each in lost - self.fabric.lost:
            since = self._used_since.get(each, -math.inf)
            self._detours[each].begin(self._problems[each] or "", since, now, strict=True)
        self._used_since |= dict.fromkeys(self.fabric.lost - lost, now)
        self.fabric = self.fabric.with_lost(lost)

    def set_clear(self, switch: str) -> None:
        """Note that a switch has cleared the job's cells for the present term."""
        self._clear.add(switch)
        self.fresh = self.fresh and not self.cleared

    def set_held(self, switch: str, ranks: Collection[int]) -> None:
        """Note that a switch admits these workers in the present term."""
        if not self._problems[switch]:
            self._held[switch] = frozenset(ranks)

    def forget_worker(self, rank: int, where: Attachment | None = None) -> None:
        """Note that a worker has left.

        If it was part of a tree that sums, the tree stays as it is until the next term, so that no bit
        changes its meaning within a term. In this case, `where` is the worker's attachment.
        """
        if where and self._spec.others and not self._roster.ending:
            self._absent[rank] = where
        else:
            self._held = {switch: held - {rank} for switch, held in self._held.items()}

    def begin_term(self, now: float, *, still_clear: bool) -> None:
        """Forget what the switches hold for the last term, and choose those of the next."""
        self.choose(now)
        self._held, self._absent = {}, {}
        if not still_clear:
            self._clear = set()
