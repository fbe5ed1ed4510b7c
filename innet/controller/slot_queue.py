"""The waiting line for slots.

Slots are given in the order in which jobs were created. A job whose workers are all there stands in
line. No later job passes it, so that a large job gets its slots. A job that lacks workers could not
sum anyway, so jobs that fit pass it. When its last worker has come, it takes its old place in the
line.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

from innet.controller.jobs import Job
from innet.controller.records import SlotRange
from innet.errors import NoCapacity


def stands_in_line(job: Job) -> bool:
    """Return whether a job waits for slots and holds up later jobs."""
    return not job.slot_range and job.complete


def ahead(jobs: Iterable[Job], switches: Collection[str]) -> list[Job]:
    """Return the jobs that stand in line for slots of some of these switches."""
    return [job for job in jobs if stands_in_line(job) and {*job.spec.switches} & {*switches}]


def turns(jobs: Iterable[Job], take: Callable[[Job], SlotRange]) -> Iterator[tuple[Job, SlotRange]]:
    """Take slots for the jobs whose turn it is, the first created first.

    `take` raises NoCapacity if there is no room.
    """
    spoken_for: set[str] = set()
    for job in jobs:
        if job.slot_range or spoken_for & {*job.spec.switches}:
            continue
        try:
            slot_range = take(job)
        except NoCapacity:
            if stands_in_line(job):
                spoken_for |= {*job.spec.switches}
        else:
            yield job, slot_range
