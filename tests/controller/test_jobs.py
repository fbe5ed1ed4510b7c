"""The workers of a job: ranks, hello packets, generations, leases. Without switch, stream or clock."""

import pytest
from told import FABRIC, INVITATION, SLOT_RANGE, SWITCH, Told, spec, where, working

from innet.controller.jobs.events import Departure, Notify, Resume
from innet.controller.jobs.job import Job
from innet.errors import AlreadyExists, NotFound, UsageError


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
    told.report("cells_cleared", "tor", wanted.term)
    wanted = told.wanted()
    assert (wanted.clear, [*wanted.workers]) == (False, [0])


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


def test_a_departure_is_one_event_for_all_who_hear_of_it():
    """The controller makes one message of an event, which waits in the outbox of each worker."""
    told = working(4)
    told.do("leave", 103, "it has left the job")
    events = [each.event for each in told.last if isinstance(each, Notify)]
    departures = [each for each in events if isinstance(each, Departure)]
    assert len(departures) == 3
    assert all(each is departures[0] for each in departures)


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


def test_who_waits_for_a_seat_gets_it_if_its_holder_was_never_admitted():
    told = Told()
    told.switch_changed(None)
    told.seat(0)
    told.join(1)
    told.do("join", 1, 201, fallback=False, unheard={101})
    assert not told.last
    told.do("expel", 101, "its machine was silent")
    assert [each.nonce for each in told.last] == [101, 101, 201]
    told.do("hello", 201, where(1))
    told.settle()
    assert [type(each.event) for each in told.last if each.nonce == 201][-1] is Resume


def test_the_only_worker_of_a_job_gets_the_seat_of_one_that_was_never_admitted():
    told = Told(1)
    told.join(0)
    told.do("join", 0, 200, fallback=False, unheard={100})
    told.do("leave", 100, "its process has ended")
    assert [each.nonce for each in told.last] == [200]


@pytest.mark.parametrize("admitted", [True, False], ids=["admitted", "never admitted"])
def test_a_hello_packet_has_time_from_when_its_worker_is_invited(admitted: bool):
    told = working()
    told.do("leave", 101, "it has left the job")
    if not admitted:
        told = Told(1)
        told.join(0)
    told.do("join", 0, 200, fallback=False, unheard={100})
    told.now = 100.0
    told.do("leave", 100, "it has left the job")
    assert [each.nonce for each in told.last] == [200]
    told.do("tick")
    assert [*told.job.roster.workers] == [0]
    told.now = 161.0
    told.do("tick")
    assert not told.job.roster.workers


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
    with pytest.raises(
        AlreadyExists, match="has a worker 1 already: give every worker a rank of its own"
    ):
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
