"""The queue of the jobs that wait for slots.

Slots are given in the order in which jobs were created. A job whose workers are all there holds
back later jobs, so that a large job gets its slots. A job that lacks workers could not sum anyway,
so jobs that fit overtake it. When its last worker has come, it holds back later jobs again.
"""

from collections.abc import Callable, Collection, Iterable, Iterator

from innet.controller.jobs.job import Job
from innet.controller.jobs.records import SlotRange
from innet.errors import NoCapacity, QuotaExceeded


def holds_back(job: Job) -> bool:
    """Return whether a job waits for slots and holds back later jobs."""
    return not job.slot_range and job.roster.complete


def queued(jobs: Iterable[Job], switches: Collection[str]) -> list[Job]:
    """Return the jobs that hold back a new job on these switches."""
    return [job for job in jobs if holds_back(job) and {*job.spec.switches} & {*switches}]


def grants(
    jobs: Iterable[Job], allocate: Callable[[Job], SlotRange]
) -> Iterator[tuple[Job, SlotRange]]:
    """Allocate slots to the waiting jobs that are next, in the order of their creation.

    `allocate` raises NoCapacity if there is no room. It raises QuotaExceeded for a job that only waits
    because of its owner's quota. Such a job holds back nobody.
    """
    spoken_for: set[str] = set()
    for job in jobs:
        if job.slot_range or spoken_for & {*job.spec.switches}:
            continue
        try:
            slot_range = allocate(job)
        except QuotaExceeded:
            continue
        except NoCapacity:
            if holds_back(job):
                spoken_for |= {*job.spec.switches}
        else:
            yield job, slot_range
