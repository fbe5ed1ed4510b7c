"""The workers that the others wait for, and since when, reported to everybody concerned.

The controller does nothing else about a wait: the user's program decides how long to wait.
"""

from collections.abc import Iterable
from dataclasses import dataclass

import structlog

from innet.controller.jobs.events import Actions, Notify, Waiting
from innet.controller.jobs.job import Job
from innet.controller.jobs.roster import Worker
from innet.controller.state.pace import USUAL_S
from innet.rpc.words import LONG_WAIT_S

_STUCK_S = 2.0
"""Seconds without a result after which a worker counts as held up."""

_BEATING = 3.0
"""A worker whose last heartbeat is older than this number of intervals does not run at present."""

_log = structlog.get_logger("innet.controller")


@dataclass
class Wait:
    """The ranks that a job waits for, since when, and whether that was logged."""

    ranks: frozenset[int] = frozenset()
    since: float = 0.0
    logged: bool = False

    def seconds(self, now: float) -> float:
        """Return for how long the workers have waited, or 0 if they do not."""
        return now - self.since if self.ranks else 0.0

    def update(self, ranks: frozenset[int], now: float) -> bool:
        """Take in the ranks that are waited for now. Return whether they have changed."""
        before, self.ranks = self.ranks, ranks
        if not before & ranks:
            self.since, self.logged = now, False
        return before != ranks


class Waits:
    """The waits of all jobs."""

    def __init__(self) -> None:
        self._waits: dict[str, Wait] = {}

    def of(self, job: Job) -> Wait:
        """Return a job's wait."""
        return self._waits.setdefault(job.spec.name, Wait())

    def forget(self, job: str) -> None:
        """Drop the wait of a job that is over."""
        self._waits.pop(job, None)

    def follow(self, job: Job, now: float, heartbeat_s: float = USUAL_S) -> Actions:
        """Update a job's wait. Log it when it lasts, and notify the workers when it changes.

        A heartbeat comes every `heartbeat_s` seconds.
        """
        name, wait = job.spec.name, self.of(job)
        logged, seconds = wait.logged, wait.seconds(now)
        changed = wait.update(waited_for(job, now, heartbeat_s), now)
        if wait.ranks and not wait.logged and wait.seconds(now) >= LONG_WAIT_S:
            wait.logged = True
            waiting = round(wait.seconds(now), 1)
            ranks = sorted(map(job.spec.in_group, wait.ranks))
            _log.warning("workers wait", job=name, waited_for=ranks, seconds=waiting)
        elif logged and not wait.ranks:
            _log.info("workers have waited", job=name, seconds=round(seconds, 1))
        return _notices(job.roster.admitted, wait) if changed else []

    def repeat(self, job: Job, nonce: int) -> Actions:
        """Notify a worker that has come back of its job's wait."""
        wait = self.of(job)
        back = [each for each in job.roster.admitted if each.nonce == nonce]
        return _notices(back, wait) if wait.ranks else []


def _notices(workers: Iterable[Worker], wait: Wait) -> Actions:
    """Return a notice for each of these workers. All have the same event."""
    event = Waiting(tuple(sorted(wait.ranks)))
    return [Notify(each.nonce, event) for each in workers]


def waited_for(job: Job, now: float, heartbeat_s: float = USUAL_S) -> frozenset[int]:
    """Return the ranks that all others wait for: to be ready for a term, or in an exchange."""
    beating_s = _BEATING * heartbeat_s
    if not job.roster.workers:
        return frozenset()
    if not job.agreement:
        return (
            _ranks(each for each in job.roster.admitted if each.ready is None) or job.terms.awaited
        )
    stuck = [each for each in job.roster.admitted if _stuck(each, now, beating_s)]
    if not stuck:
        return frozenset()
    at = max(each.progress.exchange for each in stuck)
    behind = _ranks(each for each in job.roster.admitted if not _has_begun(each, at))
    return behind or _reported_missing(stuck) or _ranks(_not_running(job, now, beating_s))


def _stuck(worker: Worker, now: float, beating_s: float) -> bool:
    """Return whether a worker is held up by others, and not by a switch that does not answer."""
    progress = worker.progress
    held_up = progress.busy and progress.stuck_s >= _STUCK_S > progress.silent_s
    return held_up and now - worker.heard < beating_s


def _has_begun(worker: Worker, exchange: int) -> bool:
    progress = worker.progress
    return progress.exchange > exchange or (progress.exchange == exchange and progress.busy)


def _reported_missing(stuck: Iterable[Worker]) -> frozenset[int]:
    """Return the ranks that switches have reported as missing, or none if they have reported nothing.

    A worker that has got such an answer has contributed. In a tree, only the workers of a rack are told
    which of them are missing. All other workers are told that the rack is missing.
    """
    told = [each for each in stuck if each.progress.missing]
    missing = frozenset(rank for each in told for rank in each.progress.missing)
    return missing - _ranks(told) or missing


def _not_running(job: Job, now: float, beating_s: float) -> Iterable[Worker]:
    return (each for each in job.roster.admitted if now - each.heard >= beating_s)


def _ranks(workers: Iterable[Worker]) -> frozenset[int]:
    return frozenset(each.rank for each in workers)
