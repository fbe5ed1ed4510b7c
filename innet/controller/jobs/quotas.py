"""Quotas: what one owner may hold at once. A job that waits for slots holds no slots and no workers."""

from collections.abc import Iterable
from dataclasses import astuple, dataclass, fields

from innet.controller.jobs.job import Job
from innet.errors import QuotaExceeded


@dataclass(frozen=True)
class Holding:
    """Jobs, slots and workers: those that an owner holds, or the most that it may hold.

    As a quota, 0 means no limit. The slots of a job count once, on however many switches they are. Of
    a job that lends slots, its own count.
    """

    jobs: int = 0
    slots: int = 0
    workers: int = 0


NO_QUOTA = Holding()
DEFAULT = "*"
"""The owner whose quota is that of all owners without one of their own."""


def held(jobs: Iterable[Job], owner: str) -> Holding:
    """Return what an owner holds."""
    own = [job for job in jobs if job.spec.owner == owner]
    served = [job.spec for job in own if job.slot_range]
    return Holding(
        len(own), sum(each.kept_slots for each in served), sum(each.workers for each in served)
    )


def place_of(job: Job) -> Holding:
    """Return what a waiting job will hold more when it gets its slots."""
    return Holding(0, job.spec.kept_slots, job.spec.workers)


def check_quota(owner: str, quota: Holding, holding: Holding, more: Holding) -> None:
    """Raise QuotaExceeded, which names the quota and its use, unless `more` fits into it."""
    for field, most, have, wanted in zip(
        fields(Holding), astuple(quota), astuple(holding), astuple(more), strict=True
    ):
        if most and wanted and have + wanted > most:
            raise QuotaExceeded(
                f"the quota of {owner!r} is {most} {field.name}, and {have} are in use: there is no "
                f"room for {wanted} more; delete a job, or ask an administrator"
            )
