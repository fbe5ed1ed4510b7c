"""A job over several spines, some of which are lost, against events in any order.

Within a term the switches that sum never change, not even under the next controller. Once things
calm down, the job sums over exactly the spines that can be used.
"""

from dataclasses import replace

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule
from told import INVITATION, SLOT_RANGE, SWITCH, spec, where

from innet.controller.jobs.events import Actions, Notify, Recover, Resume
from innet.controller.jobs.history import Cause
from innet.controller.jobs.job import Job
from innet.controller.jobs.records import Uplink
from innet.controller.jobs.trees import Fabric

SPINES, RACKS = ("one", "two", "three"), ("left", "right")
FABRIC = Fabric.of(
    (*SPINES, *RACKS),
    {
        rack: tuple(Uplink(spine, port, 1 + number) for port, spine in enumerate(SPINES, 4))
        for number, rack in enumerate(RACKS)
    },
)
LONGEST_DETOUR_S = 60.0


class Spines(RuleBasedStateMachine):
    """A job with a worker at each rack. No worker has a fallback."""

    def __init__(self) -> None:
        super().__init__()
        self.now, self.usable = 0.0, set[str]()
        others = (*SPINES[1:], *RACKS)
        self.job = Job(
            replace(spec(), switch=SPINES[0], others=others), 7, INVITATION, FABRIC, SLOT_RANGE, 0.0
        )
        self.plans: dict[int, object] = {}
        self.stopped: dict[int, int] = {}
        self.running: dict[int, int] = {}

    def perform(self, actions: Actions) -> None:
        for each in actions:
            assert isinstance(each, Notify)
            if isinstance(each.event, Recover):
                self.stopped[each.nonce] = each.event.term
                self.running.pop(each.nonce, None)
            elif isinstance(each.event, Resume):
                self.running[each.nonce] = each.event.term

    @initialize()
    def begin_at_work(self) -> None:
        for switch in (*SPINES, *RACKS):
            self.change(switch, lost=False)
        for rank, rack in enumerate(RACKS):
            self.perform(self.job.join(rank, 100 + rank, self.now, fallback=False))
            at = replace(where(rank), switch=rack)
            self.perform(self.job.hello(100 + rank, at, self.now))
        self.calm_down()

    @rule(switch=st.sampled_from((*SPINES, *SPINES, *RACKS)), lost=st.booleans())
    def change(self, switch: str, lost: bool) -> None:
        """Let a switch be lost, or become usable."""
        self.usable = self.usable - {switch} if lost else self.usable | {switch}
        problem = f"{switch} does not answer" if lost else None
        self.perform(self.job.reports.switch_changed(switch, problem, self.now))

    @rule(drained=st.sets(st.sampled_from(SPINES), max_size=2))
    def drain(self, drained: set[str]) -> None:
        self.perform(self.job.reports.drain(drained, self.now))

    @rule(rank=st.integers(0, 1))
    def trouble(self, rank: int) -> None:
        self.perform(self.job.trouble(100 + rank, self.job.term, "silence", self.now))

    @rule()
    def attend(self) -> None:
        """Let the workers that were stopped answer."""
        for nonce, term in list(self.stopped.items()):
            del self.stopped[nonce]
            self.perform(self.job.ready(nonce, term, 3, self.now))

    @rule(some=st.sets(st.sampled_from((*SPINES, *RACKS))))
    def settle(self, some: set[str]) -> None:
        """Let some of the usable switches do what is wanted."""
        for switch in sorted(some & self.usable):
            wanted = self.job.assignment(switch, self.now)
            if wanted.clear:
                self.perform(self.job.reports.cells_cleared(switch, wanted.term, self.now))
            else:
                held = self.job.reports.entries_held(switch, wanted.term, wanted.ranks, self.now)
                self.perform(held)

    @rule(seconds=st.sampled_from([0.4, 1.5, 70.0]))
    def wait(self, seconds: float) -> None:
        self.now += seconds
        for rank in range(2):
            self.job.roster.find(100 + rank).heard = self.now
        self.perform(self.job.tick(self.now))

    @rule()
    def restart(self) -> None:
        """Kill the controller. The next one reaches the switches that can be used, and the workers."""
        self.job = Job.restored(self.job.record(), INVITATION, FABRIC, self.now)
        self.stopped.clear()
        for rank in range(2):
            self.perform(self.job.rejoin(100 + rank, self.now, fallback=False))
        for switch in sorted(self.usable):
            self.change(switch, lost=False)

    @rule()
    def calm_down(self) -> None:
        for switch in sorted({*SPINES, *RACKS} - self.usable):
            self.change(switch, lost=True)
        self.wait(LONGEST_DETOUR_S)
        for _ in range(6):
            self.attend()
            self.settle({*SPINES, *RACKS})
            self.wait(0.5)
        drained = self.job.switches.fabric.drained
        spines = (self.usable - drained) & {*SPINES}
        if self.usable >= {*RACKS} and spines:
            assert self.job.path == SWITCH
            assert self.job.switches.plan.keys() == spines | {*RACKS}
            assert self.running == dict.fromkeys((100, 101), self.job.term)

    @invariant()
    def the_switches_of_a_term_stay_the_same(self) -> None:
        if self.job.path == SWITCH:
            plan = self.job.switches.plan
            assert self.plans.setdefault(self.job.term, plan) == plan

    @invariant()
    def the_next_controller_knows_them_as_well(self) -> None:
        if self.job.agreement:
            after = Job.restored(self.job.record(), INVITATION, FABRIC, self.now)
            assert after.record() == self.job.record()


def test_a_term_says_which_spine_it_left_and_which_it_takes_again():
    job = Spines()
    job.begin_at_work()
    job.change("two", lost=True)
    terms = job.job.terms
    assert (terms.cause, terms.why) == (Cause.SWITCH_LOST, "two does not answer")
    job.calm_down()
    job.change("two", lost=False)
    assert (terms.cause, terms.why) == (Cause.SWITCH_USABLE, "two can be used again")


def test_a_spine_that_is_lost_again_and_again_is_left_out_for_longer_each_time():
    job, out = Spines(), []
    job.begin_at_work()
    for _ in range(4):
        job.change("two", lost=True)
        job.change("two", lost=False)
        since = job.now
        while "two" not in job.job.switches.plan:
            job.attend()
            job.settle({*SPINES, *RACKS})
            job.wait(0.5)
        out.append(job.now - since)
        for _ in range(4):
            job.attend()
            job.settle({*SPINES, *RACKS})
    assert out == sorted(out)
    assert out[-1] >= 4 * out[0]


TestSpines = Spines.TestCase
TestSpines.settings = settings(max_examples=100, stateful_step_count=40, deadline=None)
