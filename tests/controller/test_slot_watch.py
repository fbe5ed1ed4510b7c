"""The controller's log says once that a job has too few slots for its links and round trips."""

import pytest
from structlog.testing import capture_logs
from told import working

from innet.controller.jobs.events import Progress
from innet.controller.state.slot_watch import SlotWatch

SLOTS = 8


def report(round_trip: float, **changes) -> Progress:
    fields = {"link_bits_per_s": 10**10, "least_round_trip_s": round_trip, "chunks_done": 1000}
    return Progress(**{**fields, **changes})


@pytest.mark.parametrize(
    ("progress", "needed"),
    [
        (report(2e-6), 0),  # 8 packets of 326 bytes
        (report(3e-6), 16),  # 12: two more switches on the way
        (report(100e-6), 512),
        (report(100e-6, link_bits_per_s=0), 0),
        (report(100e-6, chunks_done=79), 0),
    ],
)
def test_too_few_slots_are_logged_once_for_a_job(progress: Progress, needed: int):
    told, watch = working(3), SlotWatch()
    assert told.job.slot_range.slots == SLOTS
    told.do("heartbeat", 101, progress)
    with capture_logs() as logged:
        for _ in range(3):
            watch.follow(told.job, lanes=64)
    assert [(each["slots"], each["needed"]) for each in logged] == [(SLOTS, needed)] * bool(needed)
    watch.forget(told.job.spec.name)
    with capture_logs() as logged:
        watch.follow(told.job, lanes=64)
    assert len(logged) == bool(needed)
