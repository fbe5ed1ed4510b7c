"""Jobs with too few slots to fill their workers' links, in the log.

A chunk occupies its slot for a round trip, in a tree from the worker up to the top and back. So the
deeper the tree is, the more slots fill a link.
"""

import structlog

from innet.controller.jobs.job import Job
from innet.controller.jobs.roster import Worker
from innet.model.all_reduce import SlotParameters
from innet.model.capacity import aligned, slots_needed

_ROUNDS = 10
"""Results in each slot after which the shortest round trip is hardly too long by chance."""

_log = structlog.get_logger("innet.controller")


class SlotWatch:
    """The jobs that were found to have too few slots. Each of them is logged once."""

    def __init__(self) -> None:
        self._found: set[str] = set()

    def follow(self, job: Job, lanes: int) -> None:
        """Look at the rates and round trips that a job's workers have reported."""
        name, slots = job.spec.name, job.spec.slots if job.slot_range else 0
        if not slots or name in self._found:
            return
        needed = max((_needed(each, slots, lanes) for each in job.roster.admitted), default=0)
        if needed > slots:
            self._found.add(name)
            _log.warning(
                "a job has too few slots to fill its links",
                job=name, slots=slots, needed=aligned(needed),
            )  # fmt: skip

    def forget(self, job: str) -> None:
        """Drop a job that is over."""
        self._found.discard(job)


def _needed(worker: Worker, slots: int, lanes: int) -> int:
    """Return the slots that fill a worker's link, or 0 while that is not known."""
    at = worker.progress
    if not at.link_bits_per_s or at.chunks_done < _ROUNDS * slots:
        return 0
    frame = SlotParameters(lanes=lanes).frame
    return slots_needed(at.link_bits_per_s, at.least_round_trip_s, frame)
