"""The state that all events share, and the one way to change it.

Every event is handled under one lock: a request, a worker's message, a report of a switch, the
passing of time. The rules are in :mod:`innet.controller.jobs.job`. The registry stores every change
before anybody hears of it. Each switch's :class:`Supervisor` makes the switch hold its jobs'
entries. Requests wait for a switch only without the lock, so a slow switch delays nobody else.
"""

import contextlib
import secrets
import threading
import time
from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from innet.controller import defaults
from innet.controller.jobs.changes import ENDED, DatedEvent, JobEvent, changes
from innet.controller.jobs.events import Action, Actions, Invitation
from innet.controller.jobs.job import Job
from innet.controller.jobs.lending import Lending, borrowers
from innet.controller.jobs.quotas import DEFAULT, NO_QUOTA, Holding, check_quota, held, place_of
from innet.controller.jobs.records import JobRecord, JobSpec, SlotRange, Uplink
from innet.controller.jobs.slot_queue import grants, queued
from innet.controller.jobs.slots import SwitchAllocator, allocate
from innet.controller.state.inventory import Switch, drained
from innet.controller.state.members import Members
from innet.controller.state.slot_watch import SlotWatch
from innet.controller.state.store import Store
from innet.controller.state.validation import check_name
from innet.controller.state.waits import Waits
from innet.controller.switches.targets.choice import find
from innet.errors import (
    ControllerError,
    ControllerUnreachable,
    NotAuthorized,
    NotFound,
    QuotaExceeded,
)

_MOST_LISTED = 20
_MOST_UNSAVED = 500
Thing = TypeVar("Thing")
_log = structlog.get_logger("innet.controller")


@dataclass(frozen=True)
class Policy:
    """The operator's policy. `lease_s` is the workers' lease; a quota of 0 means no limit."""

    lease_s: float = defaults.WORKER_LEASE_S
    most_slots_per_job: int = 0
    most_jobs: int = 0


@dataclass
class _Kept:
    """What of a job is kept: the record in the store, and the record whose events were logged.

    `unsaved` are the last logged events that the store does not have, because it could not be written.
    """

    stored: JobRecord | None = None
    logged: JobRecord | None = None
    unsaved: list[DatedEvent] = field(default_factory=list)


class Registry:
    """The switches and jobs, by name, and their workers. Hold `lock` for everything but the clock.

    `probes` has the probes that are on their way, by nonce: the switch and the uplink that they
    were sent out of.
    """

    def __init__(self, store: Store, policy: Policy) -> None:
        self.store, self.policy, self.clock = store, policy, time.monotonic
        self.lock, self.closed = threading.RLock(), threading.Event()
        self.switches: dict[str, Switch] = {}
        self.jobs: dict[str, Job] = {}
        self.members, self.waits = Members(policy.lease_s), Waits()
        self.slot_watch, self.lending = SlotWatch(), Lending()
        self.probes: dict[int, tuple[str, Uplink]] = {}
        self.quotas: dict[str, Holding] = {}
        self._kept: dict[str, _Kept] = {}
        self._together: dict[str, tuple[Job, list[Action]]] | None = None

    def close(self) -> None:
        """Disconnect from all switches and workers, which continue."""
        with self.lock:
            self.closed.set()
            self.members.end_streams(ControllerUnreachable("the controller has been stopped"))
        for switch in self.switches.values():
            switch.supervisor.close()
        self.store.close()

    def check_open(self) -> None:
        """Raise ControllerUnreachable once the controller has been stopped."""
        if self.closed.is_set():
            raise ControllerUnreachable("the controller has been stopped")

    # Queries.

    def switch(self, name: str) -> Switch:
        """Return a switch. Raises NotFound."""
        return _find(self.switches, name, "switch")

    def job(self, name: str, owner: str | None = None) -> Job:
        """Return a job, which has to be the `owner`'s if one is given.

        Raises NotFound, which names no jobs of others, and NotAuthorized.
        """
        mine = {each.spec.name: each for each in self.jobs_of(owner)}
        if name in self.jobs and name not in mine:
            raise NotAuthorized(
                f"the job {name!r} is another user's: ask that user or an administrator"
            )
        return _find(mine, name, "job")

    def jobs_of(self, owner: str | None) -> list[Job]:
        """Return the jobs of an owner, or all of them for None."""
        return [job for job in self.jobs.values() if owner in (None, job.spec.owner)]

    def jobs_on(self, switch: str) -> list[Job]:
        """Return the jobs that may use a switch, or none once the controller has been stopped."""
        if self.closed.is_set():
            return []
        return [job for job in self.jobs.values() if switch in job.spec.switches]

    def allocators(self, switches: Iterable[str]) -> list[SwitchAllocator]:
        """Return the allocators of these switches."""
        return [self.switches[name].allocator for name in switches]

    def held(self, owner: str) -> Holding:
        """Return what an owner holds."""
        return held(self.jobs.values(), owner)

    def quota(self, owner: str) -> Holding:
        """Return an owner's quota, or the default one. Jobs without an owner have none."""
        names = (owner, DEFAULT) if owner else ()
        return next((self.quotas[each] for each in names if each in self.quotas), NO_QUOTA)

    def check_quota(self, owner: str, holding: Holding, more: Holding) -> None:
        """Raise QuotaExceeded unless an owner that has a `holding` may hold `more` besides it."""
        check_quota(owner, self.quota(owner), holding, more)

    def queued(self, switches: Collection[str]) -> list[Job]:
        """Return the jobs that hold back a new job on these switches."""
        return [job for job in queued(self.jobs.values(), switches) if not self.over_quota(job)]

    def over_quota(self, job: Job) -> str:
        """Return why the quota of a job's owner keeps the job waiting, or ""."""
        owner = job.spec.owner
        if job.slot_range:
            return ""
        try:
            self.check_quota(owner, self.held(owner), place_of(job))
        except QuotaExceeded as problem:
            return str(problem)
        return ""

    def invitation(self, switch: str) -> Invitation:
        """Return the invitation of workers to a job with this switch."""
        record = self.switches[switch].record
        unsealed = not find(record.target).seals
        return Invitation(record.service, record.lanes, self.policy.lease_s, unsealed)

    def is_saved(self, job: Job) -> bool:
        """Return whether the store has a job."""
        kept = self._kept.get(job.spec.name)
        return kept is not None and kept.stored is not None

    def new_nonce(self) -> int:
        """Return a random number that no worker and no probe has."""
        while True:
            nonce = 1 + secrets.randbelow((1 << 32) - 1)
            if nonce not in self.members.nonces and nonce not in self.probes:
                return nonce

    # Changes.

    def remember(self, record: JobRecord) -> None:
        """Note that the store already has this record of a job, so that the job is not logged as new."""
        self._kept[record.spec.name] = _Kept(record, record)

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Hold the lock, and commit all events of the block at its end: each job is stored once.

        A disk takes as long to keep a hundred joins as to keep one.
        """
        with self.lock:
            waiting: dict[str, tuple[Job, list[Action]]] = {}
            self._together = waiting
            try:
                yield
            finally:
                self._together = None
                with contextlib.ExitStack() as commits:  # each is made, also if one of them fails
                    for job, actions in reversed(waiting.values()):
                        commits.callback(self.commit, job, actions)

    def commit(self, job: Job, actions: Actions) -> None:
        """Store the changes of a job, and then carry out its actions."""
        if self._together is not None:
            self._together.setdefault(job.spec.name, (job, []))[1].extend(actions)
            return
        self._save(job)
        self.members.deliver(actions)
        for switch, assignment in job.assignments(self.clock()).items():
            self.switches[switch].assign(job.spec.name, assignment)

    def drain(self, switch: str) -> None:
        """Tell the jobs of a switch which switches are drained at present."""
        now, names = self.clock(), drained(self.switches)
        for job in self.jobs_on(switch):
            self.commit(job, job.reports.drain(names, now))

    def end(self, job: Job, reason: str) -> None:
        """End a job: notify its workers and free its slots."""
        name = job.spec.name
        events = [JobEvent(ENDED, job.term, reason)]
        if self.is_saved(job):
            unsaved = self._kept[name].unsaved
            self.store.remove_job(name, [*unsaved, *_dated(job.spec, events)])
        self.members.deliver(job.roster.end(reason))
        del self.jobs[name]
        self._kept.pop(name, None)
        self.waits.forget(name)
        self.slot_watch.forget(name)
        self.lending.forget(name)
        for each in job.spec.switches:
            self.switches[each].unassign(name)
        _log_events(name, events)
        if own_range := job.switches.own_range:
            for allocator in self.allocators(job.spec.switches):
                allocator.release(own_range)
            self.grant_slots()
            self.lend_slots()

    def grant_slots(self) -> None:
        """Give slots to waiting jobs, as far as slots are free."""
        for job, slot_range in grants([*self.jobs.values()], self._allocate):
            _log.info("slots for a job that has waited", job=job.spec.name, slots=slot_range.slots)
            self.commit(job, job.reports.slots_granted(slot_range, self.clock()))

    def lend_slots(self) -> None:
        """Lend slots to the jobs that communicate, as far as others do not need them."""
        now = self.clock()
        changes = self.lending.changes(
            self.jobs.values(),
            lambda job: [each.slots for each in self.allocators(job.spec.switches)],
            now,
        )
        for job, loan in changes:
            self.commit(job, job.reports.lend(loan, now))

    def allocate(self, switches: Collection[str], slots: int, entries: int) -> SlotRange:
        """Reserve slots and room for so many entries on switches. Raises NoCapacity.

        Jobs that borrow the slots give them up.
        """
        slot_range = allocate(self.allocators(switches), slots, entries)
        for job in borrowers(self.jobs.values(), slot_range, switches):
            self.commit(job, job.reports.lend(None, self.clock()))
        return slot_range

    def _allocate(self, job: Job) -> SlotRange:
        if why := self.over_quota(job):
            raise QuotaExceeded(why)
        entries = job.switches.fabric.most_entries(job.spec.workers)
        return self.allocate(job.spec.switches, job.spec.kept_slots, entries)

    def _save(self, job: Job) -> None:
        name, record = job.spec.name, job.record()
        kept, departures = self._kept.setdefault(name, _Kept()), job.history.take_unrecorded()
        if record == kept.stored == kept.logged and not (departures or kept.unsaved):
            return
        events = [*changes(kept.logged, record, job.terms, departures)]
        kept.logged, kept.unsaved = record, [*kept.unsaved, *_dated(record.spec, events)]
        try:
            self.store.save_job(record, kept.unsaved, kept.stored)
        except ControllerError as problem:
            # A job that the next controller does not know is better than one that stands still.
            _log.error("the state is not kept", job=name, problem=str(problem))
            del kept.unsaved[:-_MOST_UNSAVED]
        else:
            kept.stored, kept.unsaved = record, []
        _log_events(name, events)


def _dated(spec: JobSpec, events: Iterable[JobEvent]) -> list[DatedEvent]:
    at = time.time()
    return [
        DatedEvent(spec.name, at, each.event, each.rank, each.term, each.why, spec.owner)
        for each in events
    ]


def listed(names: Iterable[str]) -> str:
    """Return names in order, as many as fit an error message."""
    order = sorted(names)
    more = f" and {len(order) - _MOST_LISTED} more" if len(order) > _MOST_LISTED else ""
    return ", ".join(order[:_MOST_LISTED]) + more


def _find(things: dict[str, Thing], name: str, what: str) -> Thing:
    if name not in things:
        check_name(what, name)
        raise NotFound(
            f"there is no {what} {name!r}; the controller has: {listed(things) or 'none'}"
        )
    return things[name]


def _log_events(name: str, events: Iterable[JobEvent]) -> None:
    for each in events:
        about = {"rank": each.rank} if each.rank is not None else {}
        _log.info(each.event, job=name, term=each.term, **about, why=each.why, **dict(each.details))
