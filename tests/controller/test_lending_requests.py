"""Requests for jobs that lend slots: what they reserve, what they show, and what is refused."""

from collections.abc import Iterator

import pytest
from racks import Rack, rack

from innet.errors import UsageError
from innet.rpc import innet_pb2 as pb
from innet.rpc.words import slots_text


@pytest.fixture(scope="module")
def tor() -> Iterator[Rack]:
    with rack(2) as running:
        yield running


def test_a_job_that_lends_reserves_the_slots_that_it_keeps(tor: Rack):
    before = tor.free_slots
    with tor.job(2, 64, min_slots=4, priority=3) as name:
        job = tor.show(name)
        assert before - tor.free_slots == 4
        assert (job.slots, job.asked_slots, job.min_slots, job.priority) == (4, 64, 4, 3)


def test_a_job_keeps_all_its_slots_unless_it_is_told_otherwise(tor: Rack):
    with tor.job(2, 64) as name, tor.job(2, 64, min_slots=64) as other:
        for each in (tor.show(name), tor.show(other)):
            assert (each.slots, each.asked_slots, each.min_slots) == (64, 64, 64)


@pytest.mark.parametrize(
    ("request_fields", "why"),
    [
        ({"min_slots": 3}, "a minimum of 3 slots: give a power of two"),
        ({"min_slots": 128}, "a minimum of 128 slots: give a power of two that is no more"),
        ({"min_slots": 4, "quorum": 1}, "with a quorum of 1 of 2 workers cannot lend slots"),
        ({"min_slots": 4, "priority": 101}, "priority 101 is too high: the highest is 100"),
        ({"slots": 0, "min_slots": 8192}, "a minimum of 8192 slots is more than the job's 128"),
    ],
    ids=lambda each: "" if isinstance(each, dict) else each[:24],
)
def test_what_makes_no_sense_is_refused(tor: Rack, request_fields: dict[str, int], why: str):
    with (
        pytest.raises(UsageError, match=why.replace("(", r"\(")),
        tor.job(2, **{"slots": 64, **request_fields}),
    ):
        raise AssertionError(request_fields)


@pytest.mark.parametrize(
    ("slots", "kept", "text"),
    [(64, 64, "64"), (0, 4, "0"), (64, 4, "64, 60 borrowed"), (4, 4, "4, 60 lent")],
)
def test_lent_and_borrowed_slots_are_told(slots: int, kept: int, text: str):
    assert slots_text(pb.Job(slots=slots, min_slots=kept, asked_slots=64)) == text
