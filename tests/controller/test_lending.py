"""Slots lent between jobs: who borrows, who gives them up, and when. Without switch, stream or clock."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from lending_jobs import Lenders
from told import SWITCH

from innet.controller.jobs.events import Notify, Progress, Recover
from innet.controller.jobs.history import Cause
from innet.controller.jobs.lending import AGEING_S, LEASE_S


def pool(*priorities: int) -> Lenders:
    """Return jobs of which one at a time can have all the slots that it asks for."""
    return Lenders(priorities, slots=16, asked=8)


def test_a_job_borrows_once_all_its_workers_communicate():
    jobs = pool(0, 0)
    jobs.busy(0, 1)
    assert jobs.slots() == [1, 1]
    jobs.busy(0, 0)
    assert jobs.slots() == [8, 1]


def test_a_job_keeps_its_loan_until_another_one_needs_it():
    jobs = pool(0, 0)
    jobs.busy(0)
    jobs.settle()
    jobs.idle(0)
    jobs.wait(100)
    assert jobs.slots() == [8, 1]
    jobs.busy(1)
    assert jobs.slots() == [1, 8]


def test_a_job_that_communicates_keeps_its_loan_for_a_lease_and_then_makes_way():
    jobs = Lenders([0, 0, 0], slots=8, asked=4)
    for number in (0, 2, 1):
        jobs.busy(number)
        jobs.settle()
        jobs.wait(LEASE_S / 4)
    assert jobs.slots() == [4, 1, 1]
    jobs.wait(LEASE_S / 4)
    assert jobs.slots() == [1, 1, 4]  # it has waited longest
    jobs.settle()
    jobs.finish_exchange(0)
    jobs.wait(LEASE_S * 0.9)
    assert jobs.slots() == [1, 1, 4]
    jobs.wait(LEASE_S * 0.1)
    assert jobs.slots() == [1, 4, 1]


def test_a_small_range_that_is_free_is_better_than_the_end_of_another_jobs_lease():
    jobs = pool(0, 0)
    jobs.busy(0)
    jobs.wait(LEASE_S)
    jobs.busy(1)
    assert jobs.slots() == [8, 4]


def test_a_higher_priority_takes_a_loan_at_once_and_a_lower_one_does_not():
    jobs = pool(0, 1)
    jobs.busy(0)
    jobs.settle()
    jobs.busy(1)
    assert jobs.slots() == [1, 8]
    jobs.settle()
    jobs.finish_exchange(0)
    jobs.wait(2 * LEASE_S)
    assert jobs.slots() == [4, 8]  # of the free slots


def test_the_priority_of_a_job_that_waits_rises_until_it_gets_slots_for_a_lease():
    jobs = Lenders([0, 1], slots=4, asked=2)
    jobs.busy(1)
    jobs.settle()
    jobs.busy(0)
    assert jobs.slots() == [1, 2]
    jobs.wait(AGEING_S * 0.9)
    assert jobs.slots() == [1, 2]
    jobs.wait(AGEING_S * 0.1)
    assert jobs.slots() == [2, 1]
    jobs.settle()
    jobs.finish_exchange(1)
    jobs.wait(LEASE_S * 0.9)
    assert jobs.slots() == [2, 1]
    jobs.wait(LEASE_S * 0.1)
    assert jobs.slots() == [1, 2]


@pytest.mark.parametrize("seed", range(3))
def test_no_job_starves_however_busy_the_others_are(seed):
    chance = random.Random(seed)
    priorities = [chance.randrange(4) for _ in range(6)]
    jobs = Lenders(priorities, slots=8 + 2, asked=2)
    jobs.switch.slots.reserve(6, 2)
    had = dict.fromkeys(range(6), 0.0)
    for number in range(6):
        jobs.busy(number)
    for _ in range(400):
        jobs.settle()
        for number, slots in enumerate(jobs.slots()):
            jobs.finish_exchange(number)
            if slots == 2:
                had[number] = jobs.now
        jobs.wait(0.25)
        longest = 6 * (LEASE_S + 0.5) + AGEING_S * (max(priorities) + 1)
        assert all(jobs.now - at <= longest for at in had.values()), had


def test_a_job_that_lost_its_loan_in_an_exchange_has_its_next_one_for_longer():
    jobs = Lenders([0, 0], slots=4, asked=2)
    jobs.busy(0)
    jobs.settle()
    jobs.busy(1)
    jobs.wait(LEASE_S)
    assert jobs.slots() == [1, 2]
    jobs.settle()
    jobs.finish_exchange(1)
    jobs.wait(LEASE_S)
    assert jobs.slots() == [2, 1]
    jobs.settle()
    jobs.wait(LEASE_S)
    assert jobs.slots() == [2, 1]
    jobs.wait(LEASE_S)
    assert jobs.slots() == [1, 2]


def test_a_job_with_a_stopped_worker_gets_no_slots_until_it_answers():
    jobs = Lenders([0, 0], slots=4, asked=2)
    jobs.busy(0)
    jobs.settle()
    jobs.busy(1)
    jobs.wait(LEASE_S)
    jobs.idle(1)
    jobs.wait(LEASE_S)
    assert jobs.slots() == [1, 2]
    jobs.settle()
    jobs.wait(0)
    assert jobs.slots() == [2, 1]


def test_a_job_that_finishes_exchanges_has_leases_of_the_same_length():
    jobs = Lenders([0, 0], slots=4, asked=2)
    for number in (0, 1):
        jobs.busy(number)
    for turn in range(1, 6):
        jobs.settle()
        jobs.finish_exchange(0)
        jobs.finish_exchange(1)
        jobs.wait(LEASE_S)
        assert jobs.slots() == ([1, 2] if turn % 2 else [2, 1])


def test_no_priority_keeps_a_job_from_finishing_an_exchange():
    jobs = Lenders([0, 9], slots=4, asked=2)
    jobs.busy(0)
    for _ in range(10):
        jobs.settle()
        jobs.wait(100)
        assert jobs.slots() == [2, 1]
        jobs.busy(1)
        lost = jobs.slots() == [1, 2]
        jobs.settle()
        jobs.idle(1)
    assert not lost


def test_a_job_that_was_moved_while_it_computed_borrows_at_once():
    jobs = Lenders([0, 0], slots=4, asked=2)
    jobs.busy(0)
    jobs.settle()
    jobs.idle(0)
    jobs.busy(1)
    jobs.settle()
    jobs.idle(1)
    jobs.busy(0)
    assert jobs.slots() == [2, 1]


def test_a_larger_range_is_borrowed_when_it_becomes_free():
    jobs = Lenders([0, 0, 0], slots=16, asked=8)
    jobs.busy(0)
    jobs.busy(1)
    jobs.settle()
    assert jobs.slots() == [8, 4, 1]
    jobs.idle(0)
    jobs.wait(LEASE_S)
    assert jobs.slots() == [8, 4, 1]
    jobs.finish_exchange(1)
    jobs.wait(0)
    assert jobs.slots() == [1, 8, 1]


def test_a_killed_holder_gives_its_slots_back():
    jobs = pool(0, 0)
    jobs.busy(0)
    jobs.settle()
    jobs.jobs[0].leave(0, "its process has ended", jobs.now)
    jobs.lend()
    assert jobs.slots() == [1, 1]
    jobs.jobs[0].leave(1, "its process has ended", jobs.now)
    jobs.busy(1)
    assert jobs.slots() == [1, 8]


def test_the_switch_admits_nobody_to_slots_that_another_job_may_borrow():
    jobs = pool(0, 0)
    jobs.busy(0)
    jobs.settle()
    holder = jobs.jobs[0]
    wanted = holder.assignment("tor", jobs.now)
    assert (wanted.slot_range, len(wanted.workers)) == (holder.switches.loan, 2)
    jobs.idle(0)
    jobs.busy(1)
    wanted = holder.assignment("tor", jobs.now)
    assert (wanted.slot_range, wanted.shares) == (holder.switches.own_range, ())
    assert wanted.clear
    borrower = jobs.jobs[1].assignment("tor", jobs.now)
    assert (borrower.slot_range.slots, borrower.shares, borrower.clear) == (8, (), True)


def test_cells_that_were_cleared_for_other_slots_do_not_count():
    jobs = pool(0, 0)
    jobs.busy(0)
    job = jobs.jobs[0]
    borrowed = job.term
    job.reports.cells_cleared("tor", borrowed, jobs.now)  # the workers have not stopped yet
    jobs.idle(0)
    jobs.busy(1)
    assert job.term == borrowed + 1
    job.reports.cells_cleared("tor", borrowed, jobs.now)
    assert job.assignment("tor", jobs.now).clear
    for rank in range(2):
        job.ready(rank, borrowed, 0, jobs.now)  # the answer to the Recover before
    assert not job.agreement
    jobs.settle()
    assert (job.path, job.agreement.slots) == (SWITCH, 1)


def test_workers_that_have_not_stopped_are_asked_again_for_every_move():
    jobs = pool(0, 0)
    jobs.busy(0)
    jobs.jobs[0].ready(0, jobs.jobs[0].term, 0, jobs.now)
    jobs.idle(0)
    jobs.said.clear()
    jobs.busy(1)
    asked = [
        (each.nonce, each.event.term)
        for each in jobs.said[0]
        if isinstance(each, Notify) and isinstance(each.event, Recover)
    ]
    assert asked == [(1, jobs.jobs[0].term)]


def test_terms_for_lent_slots_are_no_recoveries():
    jobs = pool(0, 0)
    jobs.busy(0)
    jobs.settle()
    jobs.idle(0)
    jobs.busy(1)
    history = jobs.jobs[0].history
    assert (history.terms[Cause.SLOTS_BORROWED], history.terms[Cause.SLOTS_RETURNED]) == (1, 1)
    assert history.recoveries == 0


def test_a_job_without_the_switch_borrows_nothing():
    jobs = pool(0, 0)
    jobs.jobs[0].reports.switch_changed("tor", "it does not answer", jobs.now)
    jobs.busy(0)
    assert jobs.slots() == [1, 1]


EVENTS = st.lists(
    st.tuples(
        st.sampled_from(["busy", "idle", "settle", "finish", "wait", "leave"]),
        st.integers(0, 3), st.integers(0, 1),
    ),
    max_size=60,
)  # fmt: skip


@given(EVENTS, st.lists(st.integers(0, 2), min_size=4, max_size=4), st.sampled_from([8, 12, 32]))
def test_no_slot_is_ever_used_by_two_jobs(events, priorities, slots):
    jobs = Lenders(priorities, slots, asked=8)
    for what, number, rank in events:
        match what:
            case "busy" | "idle":
                getattr(jobs, what)(number, rank)
            case "settle":
                jobs.settle()
            case "finish":
                jobs.finish_exchange(number)
            case "wait":
                jobs.wait(0.3)
            case _:
                jobs.jobs[number].leave(10 * number + rank, "killed", jobs.now)
                jobs.lend()
        jobs.check()
    for job in jobs.jobs:
        assert not job.switches.loan or job.roster.complete
        assert (
            isinstance(job.roster.admitted[0].progress, Progress) if job.roster.admitted else True
        )
