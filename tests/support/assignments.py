"""Assignments of a switch that sums jobs alone."""

from collections.abc import Mapping

from innet.controller.jobs.records import Assignment, Attachment, SlotRange
from innet.controller.jobs.trees import Tree, shares


def alone(
    job: int, slot_range: SlotRange, term: int, quorum: int, workers: Mapping[int, Attachment]
) -> Assignment:
    """Return what the switch of these workers should hold for their job."""
    switch = next((where.switch for where in workers.values()), "")
    does = shares([Tree(switch, {})], slot_range, workers, quorum, by_rank=True)
    return Assignment(job, slot_range, term, workers, does[switch])
