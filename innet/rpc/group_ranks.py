"""A job as people know it: its workers have the ranks of the group that the job sums a slice for."""

from collections.abc import Iterable, Sequence
from typing import Any

from innet.rpc import innet_pb2 as pb


def ranks(job: pb.Job) -> Sequence[int]:
    """Return the ranks of a job's workers in its group, also of absent workers."""
    return tuple(job.group_ranks) or range(job.workers)


def in_group(job: pb.Job) -> pb.Job:
    """Return a job from the controller with the ranks of its group in the place of its own.

    A worker may report anything: ranks that the job does not have are left out of what it misses.
    """
    if not job.group_ranks:
        return job
    shown, of = pb.Job(), dict(enumerate(job.group_ranks))
    shown.CopyFrom(job)

    def translate(field: Any, numbers: Iterable[int]) -> None:
        field[:] = [of[rank] for rank in numbers if rank in of]

    translate(shown.joined, job.joined)
    translate(shown.waiting_for, job.waiting_for)
    for switch in shown.tree:
        translate(switch.workers, [*switch.workers])
    for member in shown.members:
        member.rank = of.get(member.rank, member.rank)
        translate(member.progress.missing, [*member.progress.missing])
    for departed in shown.departures:
        departed.rank = of.get(departed.rank, departed.rank)
    return shown
