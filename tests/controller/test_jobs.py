"""The rules of a job, without switch, stream or clock, for events in any order.

A model has workers that make exchanges, and a switch that holds entries. It loses messages and
state when one of them or the controller dies. In it every result is the same for all workers, and
no worker is ever asked for a result that it does not have. Once things calm down, everybody is at
work again.
"""

from collections import deque
from dataclasses import dataclass, field, replace

import pytest
from hypothesis import event, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from told import FABRIC, FALLBACK, INVITATION, SLOT_RANGE, SWITCH, Told, spec, where, working

from innet.controller.agreement import Detour, first_exchange
from innet.controller.events import (
    Actions,
    Departure,
    EndStream,
    Path,
    Progress,
    Recover,
    Resume,
)
from innet.controller.jobs import Job
from innet.controller.records import Uplink
from innet.controller.trees import Fabric
from innet.errors import AlreadyExists, ControllerError, NotFound, UsageError


def test_a_worker_begins_as_soon_as_the_switch_lets_it_in():
    told = Told()
    told.switch_changed(None)
    told.join(0)
    assert told.said(0) == ["invitation"]
    told.do("hello", 100, where(0))
    assert told.said(0) == ["admission"]
    told.settle()
    assert told.said(0) == ["resume"]
    assert told.resume(0) == Resume(told.job.term, SWITCH, slots=8)


def test_nobody_is_let_in_before_the_cells_are_cleared():
    told = Told()
    told.switch_changed(None)
    told.join(0)
    told.do("hello", 100, where(0))
    wanted = told.wanted()
    assert (wanted.clear, wanted.workers) == (True, {})
    told.do("cells_cleared", "tor", wanted.term)
    wanted = told.wanted()
    assert (wanted.clear, [*wanted.workers]) == (False, [0])


def test_a_lost_switch_sends_all_to_the_fallback_and_back_again():
    told = working(fallback=True)
    before = told.job.term
    told.switch_changed("no switch answers")
    assert told.said(0) == told.said(1) == ["recover"]
    assert not told.wanted().workers
    told.do("ready", 100, before + 1, 4)
    assert not told.last
    told.do("ready", 101, before + 1, 5)
    for rank in (0, 1):
        resume = told.resume(rank)
        assert (resume.path, resume.exchange, resume.shared) == (FALLBACK, 4, True)
        assert (resume.reason, resume.slots) == ("no switch answers", 8)
    assert not told.switch_changed(None)
    told.settle()  # the cells are cleared meanwhile
    assert told.said(0) == told.said(1) == ["recover"]
    for rank in (0, 1):
        told.do("ready", 100 + rank, before + 2, 9)
    assert not told.wanted().clear
    told.settle()
    assert told.resume(0) == Resume(before + 2, SWITCH, slots=8, exchange=9)


def test_a_switch_that_does_not_clear_the_cells_stops_nobody():
    told = working(fallback=True)
    told.do("trouble", 100, told.job.term, "silence")
    for rank in (0, 1):
        told.do("ready", 100 + rank, told.job.term, 3)
    told.now = 2.0
    for nonce in (100, 101):
        told.do("heartbeat", nonce, Progress())
    assert not told.do("tick")
    assert told.wanted().clear
    assert told.job.path == FALLBACK
    told.switch_changed("it does not answer")
    assert not told.wanted().clear
    told.switch_changed(None)
    assert told.wanted().clear  # cells cleared before do not count


def test_an_answer_about_a_term_that_is_over_changes_nothing():
    told = working()
    term = told.job.term
    told.do("trouble", 100, term, "silence")
    assert not told.do("ready", 100, term, 3)
    assert told.job.roster.workers[0].ready is None


def test_without_a_fallback_the_workers_wait_for_the_switch():
    told = working()
    told.switch_changed("no switch answers")
    for rank in (0, 1):
        told.do("ready", 100 + rank, told.job.term, 4)
    assert told.job.path == Path.NONE
    assert told.job.terms.reason(0.0) == "no switch answers, and worker 0, 1 has no fallback"
    told.switch_changed(None)
    assert not told.last  # they are ready: there is nothing to recover from
    told.settle()
    assert told.resume(1).exchange == 4


def test_a_job_without_slots_sums_over_the_fallback_until_it_has_some():
    told = Told(slot_range=None)
    told.switch_changed(None)
    told.seat(0, fallback=True)
    assert not told.last
    told.join(1, fallback=True)
    told.do("hello", 101, where(1))
    assert told.resume(0).reason == "no slots are free for the job yet"
    assert told.resume(1).path == FALLBACK
    told.do("slots_granted", SLOT_RANGE)
    told.settle()
    for rank in (0, 1):
        told.do("ready", 100 + rank, told.job.term, 1)
    told.settle()
    assert told.resume(0).path == SWITCH


def test_who_has_no_fallback_waits_for_slots():
    told = Told(slot_range=None)
    told.switch_changed(None)
    told.seat(0, 1)
    assert told.job.path == Path.NONE
    told.do("slots_granted", SLOT_RANGE)
    told.settle()
    assert told.resume(0).path == told.resume(1).path == SWITCH


def test_trouble_makes_a_detour_over_the_fallback_which_grows():
    told = working(fallback=True)
    for seconds in (1.0, 2.0, 4.0):
        told.do("trouble", 100, told.job.term, "silence")
        for rank in (0, 1):
            told.do("ready", 100 + rank, told.job.term, 3)
        assert told.resume(0).reason == "worker 0: silence"
        told.now += 0.9 * seconds
        told.do("heartbeat", 100, Progress())
        told.do("heartbeat", 101, Progress())
        assert not told.do("tick")
        told.now += 0.2 * seconds
        told.do("heartbeat", 100, Progress())
        told.do("heartbeat", 101, Progress())
        told.do("tick")
        told.settle()
        assert told.said(0) == ["recover"]
        for rank in (0, 1):
            told.do("ready", 100 + rank, told.job.term, 3)
        told.settle()
        assert told.resume(0).path == SWITCH


def test_after_a_calm_time_a_detour_is_short_again():
    detour = Detour()
    detour.begin("once", 0.0, 10.0, strict=False)
    detour.begin("again", 11.0, 12.0, strict=False)
    assert detour.reason(13.9, can_fall_back=True) == "again"
    assert detour.reason(14.1, can_fall_back=True) is None
    detour.begin("after an hour", 20.0, 3620.0, strict=False)
    assert detour.reason(3620.9, can_fall_back=True) == "after an hour"
    assert detour.reason(3621.1, can_fall_back=True) is None


def test_trouble_without_a_fallback_tries_the_switch_again():
    told = working()
    told.do("trouble", 101, told.job.term, "silence")
    for rank in (0, 1):
        told.do("ready", 100 + rank, told.job.term, 3)
    told.settle()
    assert told.resume(0).path == SWITCH


def test_what_a_switch_refuses_is_tried_again_later():
    told = working()
    told.do("entries_refused", told.job.term, "the table is full")
    for rank in (0, 1):
        told.do("ready", 100 + rank, told.job.term, 3)
    assert told.job.path == Path.NONE
    assert "the table is full" in told.job.terms.reason(told.now)
    told.now += 1.1
    told.do("tick")
    told.settle()
    assert told.resume(0).path == SWITCH


def test_trouble_about_a_term_that_is_over_changes_nothing():
    told = working()
    assert not told.do("trouble", 100, told.job.term - 1, "silence")
    told.do("trouble", 100, told.job.term, "silence")
    assert not told.do("trouble", 101, told.job.term, "silence")


def test_a_worker_that_does_not_answer_is_waited_for_however_long_it_takes():
    told = working(3)
    told.switch_changed("no switch answers")
    told.do("ready", 100, told.job.term, 0)
    told.now = 1e6
    assert not told.do("tick")
    assert [*told.job.roster.workers] == [0, 1, 2]


def test_a_worker_that_is_given_up_has_left_and_is_told_so():
    told = working()
    told.now = 3.1
    told.do("expel", 101, "its machine was silent for 3 s")
    assert told.said(1) == ["departure", "end"]
    assert told.said(0) == ["departure"]
    assert told.job.roster.departed == {1: "its machine was silent for 3 s"}
    assert [*told.wanted().workers] == [0]
    assert told.job.history.leases_lost == 1


def test_the_order_of_departures_is_kept_when_everybody_has_left():
    told = working(3)
    for rank in (2, 0, 1):
        told.now += 1.0
        told.do("leave", 100 + rank, f"reason {rank}")
    assert not told.job.roster.departed
    left = [(each.rank, each.reason, each.at) for each in told.job.history.departures]
    assert left == [(2, "reason 2", 1.0), (0, "reason 0", 2.0), (1, "reason 1", 3.0)]


def test_a_seat_whose_holder_is_not_heard_is_waited_for():
    told = working()
    told.do("join", 1, 201, fallback=False, unheard={101})
    assert not told.last
    for nonce in (101, 100):
        told.do("expel", nonce, "its machine was silent")
    assert [each.nonce for each in told.last] == [100, 100, 201]


def test_a_hello_packet_has_time_even_if_the_controller_stands_still():
    told = Told()
    told.join(0)
    told.now = 100.0
    told.job.excuse(99.0)
    assert not told.do("tick")
    told.now = 161.0
    told.do("tick")
    assert not told.job.roster.workers


def test_a_new_generation_begins_when_all_of_the_last_have_left():
    told = working()
    term = told.job.term
    told.do("leave", 100, "it has left the job")
    assert told.said(1) == ["departure"]
    told.do("join", 0, 200, fallback=False)
    assert not told.last
    told.do("leave", 101, "it has left the job")
    [invitation] = told.last
    assert invitation.nonce == 200
    assert told.job.term != term
    assert not told.job.roster.departed
    told.do("hello", 200, where(0))
    told.settle()
    [resume] = told.last
    assert resume.event.exchange == 0


def test_only_one_waits_for_a_seat():
    told = working()
    told.do("leave", 100, "gone")
    told.do("join", 0, 200, fallback=False)
    with pytest.raises(AlreadyExists, match="a worker 0 waits for the next run of the job 'job'"):
        told.do("join", 0, 201, fallback=False)
    told.do("leave", 101, "gone")
    [invitation] = told.last
    assert invitation.nonce == 200


def test_who_says_hello_too_late_for_a_generation_gets_into_the_next():
    told = Told(3)
    told.switch_changed(None)
    told.seat(0, 1)
    told.join(2)
    told.do("leave", 100, "gone")
    assert not told.do("hello", 102, where(2))
    assert 2 not in [each.rank for each in told.job.roster.admitted]
    told.do("leave", 101, "gone")
    assert told.do("hello", 102, where(2))
    told.settle()
    assert told.resume(2).exchange == 0


def test_a_seat_has_to_exist_and_to_be_free():
    told = working()
    with pytest.raises(UsageError, match="no rank 2: the job has 2 workers, with ranks from 0 on"):
        told.join(2)
    with pytest.raises(AlreadyExists, match="has a worker 1 already"):
        told.join(1)
    with pytest.raises(NotFound, match="this worker has left the job 'job' meanwhile"):
        told.do("rejoin", 555, fallback=False)


def test_two_workers_at_one_address_cannot_be_told_apart():
    told = Told()
    told.switch_changed(None)
    told.seat(0)
    told.join(1)
    told.do("hello", 101, where(0))
    [end] = told.last
    assert isinstance(end.problem, AlreadyExists)
    assert "worker 0 has the same address" in str(end.problem)
    assert [each.rank for each in told.job.roster.admitted] == [0]


def test_a_worker_that_has_moved_begins_a_new_term_where_it_is_now():
    told = working()
    told.do("hello", 101, where(1, port=9))
    assert told.said(0) == told.said(1) == ["recover"]
    for rank in (0, 1):
        told.do("ready", 100 + rank, told.job.term, 3)
    told.settle()
    assert told.wanted().workers[1].port == 9


def test_a_worker_whose_stream_broke_goes_on_as_if_nothing_had_been():
    told = working()
    term = told.job.term
    told.do("rejoin", 100, fallback=False)
    assert told.said(0) == ["invitation", "admission", "resume"]
    assert not told.said(1)
    assert told.resume(0).term == term
    told.do("trouble", 101, term, "silence")
    told.do("rejoin", 100, fallback=False)
    assert told.said(0) == ["invitation", "admission", "recover"]


def test_workers_that_cannot_be_where_they_say_end_their_generation():
    told = working()
    told.do("trouble", 100, told.job.term, "silence")
    told.do("ready", 100, told.job.term, 3)
    told.do("ready", 101, told.job.term, 5)
    told.settle()
    assert {type(each.problem) for each in told.last} == {ControllerError}
    assert "exchanges 3 to 5, more than one apart" in str(told.last[0].problem)
    assert not told.job.roster.workers


@pytest.mark.parametrize(
    ("exchanges", "in_step", "sharable", "first"),
    [
        ([3, 3], True, True, (3, False)),
        ([3, 4], True, True, (3, True)),
        ([4, 3], True, True, (3, True)),
        ([3, 7, 5], False, False, (7, False)),
        ([3, 7, 5], False, True, (6, True)),
        ([7, 7], False, True, (7, False)),
        ([0, 0], False, True, (0, False)),
    ],
)
def test_a_term_begins_where_everybody_can_go_along(exchanges, in_step, sharable, first):
    assert first_exchange(exchanges, in_step=in_step, sharable=sharable) == first


def test_a_quorum_begins_when_all_are_there_and_goes_on_without_some():
    told = Told(3, quorum=2)
    told.switch_changed(None)
    told.seat(0, 1)
    assert not told.last
    told.seat(2)
    assert [told.said(rank) for rank in range(3)] == [["resume"]] * 3
    told.do("leave", 102, "killed")
    assert told.said(0) == told.said(1) == ["departure"]
    assert told.job.path == SWITCH
    told.do("trouble", 100, told.job.term, "silence")
    told.do("ready", 100, told.job.term, 9)
    told.do("ready", 101, told.job.term, 4)
    told.settle()
    # Both make the remaining quorum, so that one can share with the other.
    assert (told.resume(1).exchange, told.resume(1).shared) == (8, True)
    told.do("leave", 100, "killed")
    assert told.job.roster.ending


def test_who_is_left_goes_on_in_a_new_term_until_there_are_too_few():
    told = Told(4, min_workers=2)
    told.switch_changed(None)
    told.seat(0, 1, 2, 3)
    assert told.wanted().shares[0].awaited == 4
    before = told.job.term
    told.do("leave", 103, "killed")
    assert told.said(0) == told.said(1) == told.said(2) == ["departure", "recover"]
    for rank, exchange in enumerate((5, 6, 5)):
        told.do("ready", 100 + rank, before + 1, exchange)
    told.settle()
    assert told.wanted().shares[0].awaited == 3
    assert (told.resume(0).exchange, told.resume(0).shared) == (5, True)
    told.do("leave", 102, "killed")
    for rank in range(2):
        told.do("ready", 100 + rank, before + 2, 9)
    told.settle()
    assert told.wanted().shares[0].awaited == 2
    told.do("leave", 101, "killed")
    assert told.said(0) == ["departure"]
    assert told.job.roster.ending
    # A worker that is alone gets no sums of its own.
    assert told.wanted().shares[0].awaited == 2


def test_a_quorum_on_the_fallback_cannot_go_on_there_without_one():
    told = working(3, quorum=2, fallback=True)
    told.switch_changed("no switch answers")
    for rank in range(3):
        told.do("ready", 100 + rank, told.job.term, 5)
    assert told.resume(0).path == FALLBACK
    told.do("leave", 102, "killed")
    assert told.said(0) == ["departure", "recover"]
    for rank in range(2):
        told.do("ready", 100 + rank, told.job.term, 5)
    assert told.job.path == Path.NONE
    told.switch_changed(None)
    told.settle()
    assert told.resume(0).path == SWITCH


def test_who_is_left_in_a_tree_still_gets_the_results_that_its_switch_has():
    fabric = Fabric.of(
        ("top", "a", "b"), {"a": (Uplink("top", 9, 1),), "b": (Uplink("top", 9, 2),)}
    )
    job = Job(replace(spec(), others=("a", "b")), 7, INVITATION, fabric, SLOT_RANGE, 0.0)
    for switch in fabric.uplinks:
        job.switch_changed(switch, None, 0.0)
    for rank, switch in enumerate("ab"):
        job.join(rank, 100 + rank, 0.0, fallback=False)
        assert job.assignment("a", 0.0).shares == ()
        job.hello(100 + rank, replace(where(rank), switch=switch), 0.0)
    for switch in fabric.uplinks:
        job.cells_cleared(switch, job.term, 0.0)
    assert job.path == SWITCH
    assert job.assignment("a", 0.0).shares[0].uplink
    assert job.assignment("top", 0.0).ranks == {0, 1}
    job.leave(101, "it has left the job", 0.0)
    assert job.roster.ending
    [share] = job.assignment("a", 0.0).shares
    assert (share.ranks, share.uplink, share.awaited) == ({0}, None, 2)
    assert not job.assignment("b", 0.0).shares
    assert not job.assignment("top", 0.0).shares


def test_a_job_that_nobody_is_in_expires():
    job = Job(spec(lease_s=60), 7, INVITATION, FABRIC, SLOT_RANGE, 0.0)
    assert not job.roster.expired(60.0)
    assert job.roster.expired(60.1)
    job.join(0, 100, 60.1, fallback=False)
    assert not job.roster.expired(1000.0)
    job.leave(100, "gone", 1000.0)
    assert not job.roster.expired(1060.0)
    assert job.roster.expired(1060.1)


def test_terms_begin_again_after_the_last():
    job = Job(spec(), 0xFFFF, INVITATION, FABRIC, SLOT_RANGE, 0.0)
    job.join(0, 100, 0.0, fallback=False)
    assert job.term == 1


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


class Terms(RuleBasedStateMachine):
    """Three workers, all of which make the quorum."""

    WORKERS = 3
    ranks = st.integers(0, WORKERS - 1)

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
            self.perform(self.job.cells_cleared("tor", wanted.term, self.now))
        else:
            self.perform(self.job.entries_held("tor", *self.entries, self.now))

    @rule(lost=st.booleans())
    def switch(self, lost: bool) -> None:
        """Let the switch go away, with or without its entries, or come back."""
        self.reachable = not self.reachable
        if lost and not self.reachable:
            self.entries = (0, frozenset())
        problem = None if self.reachable else "no switch answers"
        self.perform(self.job.switch_changed("tor", problem, self.now))

    @rule(some=st.sets(ranks, min_size=1))
    def attend(self, some: set[int]) -> None:
        """Let workers take in their events."""
        for rank in sorted(some):
            while rank in self.models and self.models[rank].inbox:
                self.handle(rank)

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

    @rule(mute=st.sets(ranks, max_size=1), deaf=st.sets(ranks))
    def work(self, mute: set[int], deaf: set[int]) -> None:
        """Let workers other than `mute` contribute, and those other than `deaf` get results."""
        for rank in sorted(self.models.keys() - mute):
            self.contribute(rank)
        for rank in sorted(self.models.keys() - deaf):
            self.finish(rank)

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

    @rule(rank=ranks)
    def trouble(self, rank: int) -> None:
        model = self.models.get(rank)
        if not (model and model.connected and model.resume):
            return
        self.perform(self.job.trouble(model.nonce, model.resume.term, "silence", self.now))

    @rule(
        deaf=st.sets(ranks, min_size=1, max_size=2),
        by=st.sampled_from(["trouble", "switch", "move", "restart"]),
        steps=st.lists(st.sampled_from(["attend", "settle", "work"]), min_size=3, max_size=8),
    )
    def disturb(self, deaf: set[int], by: str, steps: list[str]) -> None:
        """Interrupt an exchange with an event, and let the workers continue."""
        self.work(set(), deaf)
        if by == "trouble":
            self.trouble(min(deaf))
        elif by == "switch":
            self.switch(lost=True)
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
