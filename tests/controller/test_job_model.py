"""A job's rules against a model, for events in any order.

A model has workers that make exchanges, and a switch that holds entries. It loses messages and
state when one of them or the controller dies. In it every result is the same for all workers, and
no worker is ever asked for a result that it does not have. Once things calm down, everybody is at
work again.
"""

from collections import deque
from dataclasses import dataclass, field

from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from told import FABRIC, INVITATION, SLOT_RANGE, SWITCH, spec, where

from innet.controller.jobs.events import Actions, Departure, EndStream, Progress, Recover, Resume
from innet.controller.jobs.job import Job
from innet.errors import NotFound


@dataclass
class Model:
    """A worker's own state: `number` is the exchange that it has not finished."""

    nonce: int
    inbox: deque = field(default_factory=deque)
    connected: bool = True
    number: int = 0
    resume: Resume | None = None
    stopped: bool = True
    results: dict[int, object] = field(default_factory=dict)

    @property
    def exchange(self) -> int:
        """Return the exchange that it takes part in next, also a shared one whose result it has."""
        if self.resume.shared and self.number == self.resume.exchange + 1 and self.owes:
            return self.resume.exchange
        return self.number

    owes: bool = False


class JobOfThree(RuleBasedStateMachine):
    """A job with three workers, all of which make the quorum, and its switch."""

    WORKERS = 3

    def __init__(self) -> None:
        super().__init__()
        self.now = 0.0
        self.job = Job(spec(self.WORKERS), 7, INVITATION, FABRIC, SLOT_RANGE, 0.0)
        self.models: dict[int, Model] = {}
        self.nonces = 100
        self.reachable = False
        self.entries: tuple[int, frozenset[int]] = (0, frozenset())
        self.contributed: dict[tuple[int, int], set[int]] = {}
        self.done: dict[tuple[int, int], object] = {}
        self.agreement: dict[int, Resume] = {}

    def perform(self, actions: Actions) -> None:
        models = {model.nonce: (rank, model) for rank, model in self.models.items()}
        for action in actions:
            if action.nonce not in models:
                continue
            rank, model = models[action.nonce]
            if isinstance(action, EndStream):
                self.models.pop(rank, None)
            elif model.connected:
                model.inbox.append(action.event)

    def handle(self, rank: int) -> None:
        model = self.models[rank]
        said = model.inbox.popleft()
        if isinstance(said, Recover):
            model.stopped = True
            if model.connected:
                self.perform(self.job.ready(model.nonce, said.term, model.number, self.now))
        elif isinstance(said, Departure) and said.rank == rank:
            del self.models[rank]
        elif isinstance(said, Resume):
            self.begin(model, said)

    def begin(self, model: Model, resume: Resume) -> None:
        assert self.agreement.setdefault(resume.term, resume) == resume
        if model.resume and model.resume.term == resume.term:
            return
        assert model.number in (resume.exchange, resume.exchange + resume.shared)
        model.resume, model.stopped = resume, False
        model.owes = model.number > resume.exchange

    def contribute(self, rank: int) -> None:
        model = self.models[rank]
        if model.stopped:
            return
        term, number = model.resume.term, model.exchange
        if model.resume.path == SWITCH and (self.entries[0] != term or rank not in self.entries[1]):
            return
        have = self.contributed.setdefault((term, number), set())
        have.add(rank)
        if len(have) == self.WORKERS and (term, number) not in self.done:
            known = {
                each.results[number] for each in self.models.values() if number in each.results
            }
            shared = model.resume.shared and number == model.resume.exchange
            assert len(known) == shared
            event("shared" if shared else "summed")
            self.done[term, number] = known.pop() if shared else (term, number)

    def finish(self, rank: int) -> None:
        model = self.models[rank]
        if model.stopped:
            return
        number = model.exchange
        result = self.done.get((model.resume.term, number))
        if not result or rank not in self.contributed[model.resume.term, number]:
            return
        model.owes = False
        if number == model.number:
            model.results = {number: result}
            model.number += 1


class Terms(JobOfThree):
    """The job's terms, while events of all kinds come in any order."""

    ranks = st.integers(0, JobOfThree.WORKERS - 1)

    @initialize(fallbacks=st.sampled_from([{0, 1, 2}, {0, 1, 2}, {0, 2}, set()]))
    def begin_at_work(self, fallbacks: set[int]) -> None:
        self.switch(lost=False)
        for rank in range(self.WORKERS):
            self.join(rank, rank in fallbacks)
        self.calm_down()

    @rule(rank=ranks, fallback=st.booleans())
    def join(self, rank: int, fallback: bool) -> None:
        if not (rank not in self.models):
            return
        self.nonces += 1
        self.models[rank] = Model(self.nonces)
        self.perform(self.job.join(rank, self.nonces, self.now, fallback=fallback))

    @rule(rank=ranks, moved=st.booleans())
    def hello(self, rank: int, moved: bool) -> None:
        if not (rank in self.models and self.reachable):
            return
        at = where(rank, port=rank + 1 + 10 * moved)
        self.perform(self.job.hello(self.models[rank].nonce, at, self.now))

    @rule()
    def settle(self) -> None:
        """Let the switch hold its wanted entries, and clear the wanted cells."""
        if not (self.reachable):
            return
        wanted = self.job.assignment("tor", self.now)
        assert not (wanted.clear and wanted.workers)
        self.entries = (wanted.term, frozenset(wanted.workers))
        if wanted.clear:
            self.perform(self.job.reports.cells_cleared("tor", wanted.term, self.now))
        else:
            self.perform(self.job.reports.entries_held("tor", *self.entries, self.now))

    @rule(lost=st.booleans())
    def switch(self, lost: bool) -> None:
        """Let the switch go away, with or without its entries, or come back."""
        self.reachable = not self.reachable
        if lost and not self.reachable:
            self.entries = (0, frozenset())
        problem = None if self.reachable else "no switch answers"
        self.perform(self.job.reports.switch_changed("tor", problem, self.now))

    @rule()
    def drain(self) -> None:
        """Drain the switch, or undrain it."""
        drained = () if self.job.switches.fabric.drained else {"tor"}
        self.perform(self.job.reports.drain(drained, self.now))

    @rule(some=st.sets(ranks, min_size=1))
    def attend(self, some: set[int]) -> None:
        """Let workers take in their events."""
        for rank in sorted(some):
            while rank in self.models and self.models[rank].inbox:
                self.handle(rank)

    @rule(mute=st.sets(ranks, max_size=1), deaf=st.sets(ranks))
    def work(self, mute: set[int], deaf: set[int]) -> None:
        """Let workers other than `mute` contribute, and those other than `deaf` get results."""
        for rank in sorted(self.models.keys() - mute):
            self.contribute(rank)
        for rank in sorted(self.models.keys() - deaf):
            self.finish(rank)

    @rule(rank=ranks)
    def trouble(self, rank: int) -> None:
        model = self.models.get(rank)
        if not (model and model.connected and model.resume):
            return
        self.perform(self.job.trouble(model.nonce, model.resume.term, "silence", self.now))

    @rule(
        deaf=st.sets(ranks, min_size=1, max_size=2),
        by=st.sampled_from(["trouble", "switch", "drain", "move", "restart"]),
        steps=st.lists(st.sampled_from(["attend", "settle", "work"]), min_size=3, max_size=8),
    )
    def disturb(self, deaf: set[int], by: str, steps: list[str]) -> None:
        """Interrupt an exchange with an event, and let the workers continue."""
        self.work(set(), deaf)
        if by == "trouble":
            self.trouble(min(deaf))
        elif by == "switch":
            self.switch(lost=True)
        elif by == "drain":
            self.drain()
        elif by == "move":
            self.hello(min(deaf), moved=True)
        else:
            self.restart()
            self.switch(lost=False)
            for rank in range(self.WORKERS):
                self.rejoin(rank)
        for step in steps:
            if step == "attend":
                self.attend(set(range(self.WORKERS)))
            elif step == "settle":
                self.settle()
            else:
                self.work(set(), set())

    @rule(rank=ranks)
    def die(self, rank: int) -> None:
        model = self.models.get(rank)
        if not (model and model.connected):
            return
        del self.models[rank]
        self.perform(self.job.leave(model.nonce, "it died", self.now))

    @rule()
    def restart(self) -> None:
        """Kill the controller, and start it again with its state."""
        self.job = Job.restored(self.job.record(), INVITATION, FABRIC, self.now)
        self.reachable = False
        seated = {each.nonce for each in self.job.roster.workers.values()}
        for rank, model in list(self.models.items()):
            model.connected = False
            model.inbox.clear()
            if model.nonce not in seated:  # it waited for a seat
                del self.models[rank]

    @rule(rank=ranks)
    def rejoin(self, rank: int) -> None:
        model = self.models.get(rank)
        if not (model and not model.connected):
            return
        model.connected = True
        try:
            self.perform(self.job.rejoin(model.nonce, self.now, fallback=True))
        except NotFound:
            del self.models[rank]

    @rule(rank=ranks)
    def expel(self, rank: int) -> None:
        """Expel a worker whose machine was silent for too long."""
        if model := self.models.get(rank):
            self.perform(self.job.expel(model.nonce, "it was silent", self.now))
            self.models.pop(rank, None)

    @rule(seconds=st.sampled_from([0.5, 2.0, 4.0]), silent=st.sets(ranks))
    def wait(self, seconds: float, silent: set[int]) -> None:
        """Let time pass. All workers but `silent` send heartbeats."""
        self.now += seconds
        for rank, model in self.models.items():
            if model.connected and rank not in silent:
                self.job.heartbeat(model.nonce, Progress(), self.now)
        self.perform(self.job.tick(self.now))

    @invariant()
    def everybody_has_the_same_results(self) -> None:
        if not self.models:
            return
        for number in {number for model in self.models.values() for number in model.results}:
            found = {m.results[number] for m in self.models.values() if number in m.results}
            assert len(found) <= 1

    @invariant()
    def the_switch_is_to_hold_what_is_agreed_upon(self) -> None:
        wanted = self.job.assignment("tor", self.now)
        if self.job.path == SWITCH:
            assert wanted.workers.keys() == {each.rank for each in self.job.roster.admitted}
            assert wanted.term == self.job.term == self.job.agreement.term
        else:
            assert not wanted.workers

    @invariant()
    def a_restart_would_lose_nothing(self) -> None:
        again = Job.restored(self.job.record(), INVITATION, FABRIC, self.now)
        assert again.slot_range == self.job.slot_range
        assert {each.nonce for each in again.roster.workers.values()} == {
            each.nonce for each in self.job.roster.workers.values()
        }
        if self.job.agreement:
            assert again.record() == self.job.record()

    @precondition(lambda self: self.models)
    @rule()
    def calm_down(self) -> None:
        """Check that everybody gets back to work once the switch and all live workers answer."""
        if not self.reachable:
            self.switch(lost=True)
        self.perform(self.job.reports.drain((), self.now))
        for rank in range(self.WORKERS):
            if rank in self.models and not self.models[rank].connected:
                self.rejoin(rank)
        for _ in range(40):
            for rank, model in list(self.models.items()):
                self.perform(self.job.hello(model.nonce, where(rank), self.now))
            self.attend(set(range(self.WORKERS)))
            self.settle()
            self.wait(0.5, set())
        for worker in self.job.roster.admitted:
            model = self.models[worker.rank]
            assert self.job.roster.ending or (
                model.resume.term == self.job.term and not model.stopped
            )


TestTerms = Terms.TestCase
TestTerms.settings = settings(max_examples=200, stateful_step_count=50, deadline=None)
