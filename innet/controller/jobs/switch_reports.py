"""The events of a job that come from its switches, or concern them."""

from collections.abc import Collection

from innet.controller.jobs.events import Actions, Path
from innet.controller.jobs.history import Cause
from innet.controller.jobs.job_switches import JobSwitches
from innet.controller.jobs.records import SlotRange
from innet.controller.jobs.terms import Terms


class SwitchReports:
    """The reports on a job's switches: each changes the switches' state, and may end the term.

    Methods take the time of the event, and return the messages for the workers.
    """

    def __init__(self, switches: JobSwitches, terms: Terms) -> None:
        self._switches, self._terms = switches, terms

    def switch_changed(self, switch: str, problem: str | None, now: float) -> Actions:
        """Note that a switch is ready, with all its entries, or that it is not, and why."""
        self._switches.set_problem(switch, problem)
        if self._terms.path != Path.SWITCH:
            self._switches.choose(now)
        elif problem and self._switches.sums(switch):
            return self._terms.renew(Cause.SWITCH_LOST, problem, now)
        return self._terms.look(now)

    def drain(self, drained: Collection[str], now: float) -> Actions:
        """Leave out the controller's drained switches if possible, and use all others."""
        before, plan = self._switches.fabric.drained, self._switches.plan
        self._switches.fabric = self._switches.fabric.with_drained(drained)
        after = self._switches.fabric.drained
        drains, returns = sorted(after - before), sorted(before - after)
        if not (drains or returns):
            return []
        if self._terms.path != Path.SWITCH or (
            self._switches.plan == plan and not after & plan.keys()
        ):
            return self._terms.look(now)
        if drains:
            why = f"the operator has drained {', '.join(drains)}"
            return self._terms.renew(Cause.SWITCH_DRAINED, why, now)
        why = f"the operator has undrained {', '.join(returns)}"
        return self._terms.renew(Cause.SWITCH_USABLE, why, now)

    def slots_granted(self, slot_range: SlotRange, now: float) -> Actions:
        """Take the slots that the job has waited for."""
        self._switches.own_range = slot_range
        return self._terms.look(now)

    def lend(self, loan: SlotRange | None, now: float) -> Actions:
        """Move the job to slots that it borrows, or back to its own."""
        self._switches.loan = loan
        if loan:
            return self._terms.move(Cause.SLOTS_BORROWED, "the job borrows slots", now)
        return self._terms.move(Cause.SLOTS_RETURNED, "the job returns its borrowed slots", now)

    def cells_cleared(self, switch: str, term: int, now: float) -> Actions:
        """Note that a switch has cleared the job's cells for a term."""
        if term != self._terms.term or self._terms.path == Path.SWITCH:
            return []
        self._switches.set_clear(switch)
        return self._terms.look(now)

    def entries_held(self, switch: str, term: int, ranks: Collection[int], now: float) -> Actions:
        """Note that a switch admits these workers in this term, directly or in a child's sum."""
        if term != self._terms.term:
            return []
        self._switches.set_held(switch, ranks)
        return self._terms.advance(now)

    def entries_refused(self, term: int, reason: str, now: float) -> Actions:
        """Note that a switch has refused the job's entries."""
        if term != self._terms.term:
            return []
        self._terms.avoid_switch(reason, now, strict=True)
        if self._terms.path != Path.SWITCH:
            return []
        return self._terms.renew(Cause.SWITCH_REFUSED, reason, now)
