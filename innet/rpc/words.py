"""Texts that the controller, workers and commands share, for logs, tables and errors."""

from collections.abc import Iterable
from typing import Any

from innet.machine.numbers import listed
from innet.rpc import innet_pb2 as pb

LONG_WAIT_S = 5.0
"""Seconds of waiting for other workers after which a log mentions it."""

LONGEST_REASON = 500
"""The most characters of a worker's reason for leaving, or for asking for another term."""

PATHS = {pb.PATH_NONE: "none", pb.PATH_SWITCH: "switch", pb.PATH_FALLBACK: "fallback"}


def left_out(jobs: int) -> str:
    """Return the sentence about jobs that a user may not see, or "" if there are none."""
    if not jobs:
        return ""
    others = "1 job of another user is" if jobs == 1 else f"{jobs} jobs of other users are"
    return f"{others} left out: a user's certificate shows only its own jobs"


def counted(number: int, noun: str) -> str:
    """Return a number and its noun, as in "1 worker" and "2 workers"."""
    return f"{number} {noun}{'s' * (number != 1)}"


def workers_text(ranks: Iterable[int]) -> str:
    """Return ``worker 1`` or ``workers 0, 2``. Of very many, only the first ones are named."""
    numbers = sorted(ranks)
    return f"worker{'s' if len(numbers) != 1 else ''} {listed(numbers)}"


def slots_text(job: pb.Job) -> str:
    """Return how many slots a job has, and how many of them it borrows, or how many it has lent."""
    if job.min_slots == job.asked_slots or not job.slots:
        return str(job.slots)
    if job.slots > job.min_slots:
        return f"{job.slots}, {job.slots - job.min_slots} borrowed"
    return f"{job.slots}, {job.asked_slots - job.slots} lent"


def uplink(link: Any) -> str:
    """Return an uplink as options and cluster files write it, ``PARENT:PORT:PARENT_PORT``."""
    return f"{link.parent}:{link.port}:{link.parent_port}"


def misplaced(switch: str, link: pb.Uplink) -> str:
    """Return the sentence about an uplink that ends in a wrong place, or "" if it does not."""
    if not link.found:
        return ""
    return (
        f"the uplink at port {link.port} of {switch} was said to lead to port {link.parent_port} of "
        f"{link.parent}, and leads to {link.found}"
    )


def reachable(switch: pb.Switch) -> str:
    """Return whether the controller reaches a switch, and whether it is drained."""
    answer = "yes" if switch.reachable else "no"
    return f"{answer}, drained" if switch.drained else answer
