"""A job's way to new terms: over the fallback, around trouble, and without workers that left."""

from dataclasses import replace

import pytest
from told import FALLBACK, INVITATION, SLOT_RANGE, SWITCH, Told, spec, where, working

from innet.controller.jobs.agreement import Detour, first_exchange
from innet.controller.jobs.events import Path, Progress, Resume
from innet.controller.jobs.job import Job
from innet.controller.jobs.records import Uplink
from innet.controller.jobs.trees import Fabric
from innet.errors import ControllerError


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
    assert told.job.terms.reason(0.0) == "no switch answers, and no worker has a fallback"
    told.switch_changed(None)
    assert not told.last  # they are ready: there is nothing to recover from
    told.settle()
    assert told.resume(1).exchange == 4


def test_of_very_many_workers_a_reason_names_only_the_first_ones():
    told = working(60)
    told.switch_changed("no switch answers")
    for rank in (0, *range(20, 60)):
        told.do("ready", 100 + rank, told.job.term, 4)
    told.switch_changed(None)
    named = ", ".join(map(str, range(1, 17)))
    why = f"a term begins; not ready yet: worker {named} and 3 more"
    assert told.job.terms.reason(0.0) == why


def test_a_job_without_slots_sums_over_the_fallback_until_it_has_some():
    told = Told(slot_range=None)
    told.switch_changed(None)
    told.seat(0, fallback=True)
    assert not told.last
    told.join(1, fallback=True)
    told.do("hello", 101, where(1))
    assert told.resume(0).reason == "no slots are free for the job yet"
    assert told.resume(1).path == FALLBACK
    told.report("slots_granted", SLOT_RANGE)
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
    told.report("slots_granted", SLOT_RANGE)
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
    told.report("entries_refused", told.job.term, "the table is full")
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


def test_workers_that_cannot_be_where_they_say_end_their_generation():
    told = working()
    told.do("trouble", 100, told.job.term, "silence")
    told.do("ready", 100, told.job.term, 3)
    told.do("ready", 101, told.job.term, 5)
    told.settle()
    assert {type(each.problem) for each in told.last} == {ControllerError}
    assert "exchanges 3 to 5, more than one apart" in str(told.last[0].problem)
    assert not told.job.roster.workers
    why = str(told.last[0].problem)  # the history of the job and its log have it, too
    left = [(each.rank, each.reason) for each in told.job.history.take_unrecorded()]
    assert left == [(0, why), (1, why)]


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
        job.reports.switch_changed(switch, None, 0.0)
    for rank, switch in enumerate("ab"):
        job.join(rank, 100 + rank, 0.0, fallback=False)
        assert job.assignments(0.0)["a"].shares == ()
        job.hello(100 + rank, replace(where(rank), switch=switch), 0.0)
    for switch in fabric.uplinks:
        job.reports.cells_cleared(switch, job.term, 0.0)
    assert job.path == SWITCH
    assert job.assignments(0.0)["a"].shares[0].uplink
    assert job.assignments(0.0)["top"].ranks == {0, 1}
    job.leave(101, "it has left the job", 0.0)
    assert job.roster.ending
    [share] = job.assignments(0.0)["a"].shares
    assert (share.ranks, share.uplink, share.awaited) == ({0}, None, 2)
    assert not job.assignments(0.0)["b"].shares
    assert not job.assignments(0.0)["top"].shares
