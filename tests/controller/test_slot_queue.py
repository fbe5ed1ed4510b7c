"""Jobs that wait for slots hold up others only while all of their workers are there."""

from collections.abc import Iterator

import pytest
from mortal import MortalSwitch, mortal_switch, rack_of
from racks import Rack
from scripted_worker import scripted
from working_job import LONG, eventually

from innet.controller.state.registry import Policy
from innet.errors import NoCapacity
from innet.p4.artifacts import SLOTS as SLOTS_OF

SLOTS = SLOTS_OF[64]


@pytest.fixture(scope="module")
def switch() -> Iterator[MortalSwitch]:
    with mortal_switch(3) as running:
        yield running


@pytest.fixture
def tor(switch: MortalSwitch) -> Iterator[Rack]:
    with rack_of(switch, policy=Policy(lease_s=LONG)) as rack:
        yield rack


def slots(tor: Rack, job: str) -> int:
    return tor.show(job).slots


def test_a_job_without_workers_that_waits_for_slots_holds_up_nobody(tor: Rack):
    with (
        tor.job(2, SLOTS // 2) as first,
        tor.job(2, SLOTS, queue=True) as large,
        tor.job(1, 8) as small,
        scripted(tor, small, 0) as worker,
    ):
        assert (slots(tor, large), slots(tor, small)) == (0, 8)
        worker.settle()
        with tor.job(1, SLOTS, queue=True), tor.job(1, 8, queue=True) as another:
            assert slots(tor, another) == 8
        assert slots(tor, first) == SLOTS // 2


def test_no_job_passes_a_large_one_whose_workers_are_all_there(tor: Rack):
    with (
        tor.job(1, SLOTS // 2) as first,
        tor.job(2, SLOTS, queue=True) as large,
        scripted(tor, large, 0) as one,
    ):
        one.invited()
        one.admitted()
        with tor.job(1, 8):
            pass  # one worker is missing
        with scripted(tor, large, 1) as other:
            other.invited()
            other.admitted()
            with (
                pytest.raises(
                    NoCapacity, match="a queue of 1 job, whose workers are all there, waits"
                ),
                tor.job(1, 8),
            ):
                pass
            with tor.job(1, 8, queue=True) as small:
                assert slots(tor, small) == 0
                tor.delete(first)
                assert (slots(tor, large), slots(tor, small)) == (SLOTS, 0)
                for each in (one, other):
                    each.hear("resume")


def test_who_was_held_up_is_not_any_more_when_a_worker_of_the_job_in_front_leaves(tor: Rack):
    with (
        tor.job(1, SLOTS // 2),
        tor.job(1, SLOTS, queue=True) as large,
        scripted(tor, large, 0) as worker,
    ):
        worker.invited()
        worker.admitted()
        with tor.job(1, 8, queue=True) as small:
            assert slots(tor, small) == 0
            worker.vanish()
            eventually(lambda: slots(tor, small) == 8)
