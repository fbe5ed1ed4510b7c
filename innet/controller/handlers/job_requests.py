"""Requests about jobs: creating, showing and deleting them."""

import contextlib
import itertools
import secrets
from collections.abc import Callable
from dataclasses import replace

import structlog

from innet.controller import defaults
from innet.controller.jobs.changes import DatedEvent
from innet.controller.jobs.history import History
from innet.controller.jobs.job import Job
from innet.controller.jobs.quotas import Holding
from innet.controller.jobs.records import JobSpec, SlotRange
from innet.controller.jobs.terms import LAST_TERM
from innet.controller.jobs.trees import Fabric
from innet.controller.state import messages, validation
from innet.controller.state.inventory import (
    contributors,
    drained,
    uplinks,
    without_middle_quorums,
)
from innet.controller.state.registry import Registry
from innet.controller.switches.supervisor import Supervisor
from innet.errors import AlreadyExists, ControllerError, NoCapacity, SwitchError, UsageError
from innet.rpc import innet_pb2 as pb
from innet.rpc.tokens import new_token, token_digest
from innet.rpc.words import counted

_LAST_ID = 0xFFFF
_log = structlog.get_logger("innet.controller")


class JobRequests:
    """The requests about a registry's jobs. Any thread may make them. They raise InnetError.

    `last_id` and `last_number` are those of the job that was created last. A request with an `owner`
    reaches only the owner's jobs, and one with None reaches all jobs.
    """

    def __init__(self, registry: Registry, last_id: int, last_number: int) -> None:
        self._registry, self._last_id, self._last_number = registry, last_id, last_number

    def create(self, request: pb.CreateJobRequest, owner: str = "") -> pb.CreateJobResponse:
        """Create a job of `owner`. Reserve slots for it, or a position in the queue for slots."""
        validation.check_job(request)
        registry = self._registry
        with registry.lock:
            registry.check_open()
            if request.name in registry.jobs:
                raise AlreadyExists(
                    f"a job named {request.name!r} exists already: choose another name"
                )
            if registry.switch(request.switch).record.drained:
                raise ControllerError(
                    f"the switch {request.switch!r} is drained and takes no new jobs: name another one"
                )
            fabric = Fabric.below(
                request.switch, uplinks(registry.switches), contributors(registry.switches)
            ).with_drained(drained(registry.switches))
            middle = without_middle_quorums(registry.switches, fabric.uplinks)
            validation.check_tree(request, len(fabric.uplinks), fabric.contributors, middle)
            token = "" if request.token_digests else new_token()
            slots = self._slots(request)
            self._check_most_jobs()
            kept = request.min_slots or slots
            holding, place = registry.held(owner), Holding(0, kept, request.workers)
            # A job larger than the whole quota would wait for ever. A job that waits is a job, too.
            registry.check_quota(owner, Holding(holding.jobs), replace(place, jobs=1))
            slot_range = self._allocate(
                request, fabric, kept, lambda: registry.check_quota(owner, holding, place)
            )
            spec = replace(self._spec(request, fabric, slots, token), owner=owner)
            job = self._start(spec, fabric, slot_range)
            return pb.CreateJobResponse(job=self._overview(job), token=token)

    def views(self) -> list[pb.Job]:
        """Return all jobs, without counters."""
        with self._registry.lock:
            return [self._overview(job) for job in self._registry.jobs.values()]

    def listed(self, owner: str | None, *, detailed: bool = False) -> pb.ListJobsResponse:
        """Return the jobs, without counters, and how many jobs of others are left out.

        If `detailed`, jobs have their workers and trees.
        """
        look = self._details if detailed else self._overview
        with self._registry.lock:
            found = self._registry.jobs_of(owner)
            left_out = len(self._registry.jobs) - len(found)
            return pb.ListJobsResponse(jobs=map(look, found), left_out=left_out)

    def view(self, name: str, owner: str | None = None) -> pb.Job:
        """Return one job, with its workers, and with the counters of switches that answer."""
        registry = self._registry
        with registry.lock:
            job = registry.job(name, owner)
            view = self._details(job)
            tops, slot_range = _tops(job, view), job.slot_range
            names = {*tops, *(each.switch for each in view.tree)}
            supervisors = {each: registry.switches[each].supervisor for each in names}
            counted = not job.switches.fresh
        if slot_range and counted:
            # Without the lock, so that nobody else waits for a slow switch.
            _add_counters(view, _counters(supervisors, slot_range), tops)
        return view

    def events(self, name: str, owner: str | None = None) -> list[DatedEvent]:
        """Return what has happened to a job, or to earlier jobs of this name. Raises NotFound."""
        with self._registry.lock:
            self._registry.check_open()
            kept = self._registry.store.events(name)
            found = [each for each in kept if owner in (None, each.owner)]
            if not found:
                self._registry.job(name, owner)  # raises NotFound, unless writing failed
            return found

    def histories(self) -> dict[str, History]:
        """Return the jobs' histories, by name."""
        with self._registry.lock:
            return {name: job.history.copy() for name, job in self._registry.jobs.items()}

    def delete(self, name: str, owner: str | None = None) -> None:
        """End a job: notify its workers and free its slots."""
        with self._registry.lock:
            self._registry.check_open()
            self._registry.end(self._registry.job(name, owner), f"the job {name!r} was deleted")

    # Creating a job.

    def _slots(self, request: pb.CreateJobRequest) -> int:
        """Return the number of slots that a job gets. Raises UsageError or NoCapacity."""
        quota = self._registry.policy.most_slots_per_job
        have = self._registry.switches[request.switch].allocator.slots
        most = min(defaults.SLOTS, quota or have.slots, have.slots)
        slots = request.slots or 1 << (most.bit_length() - 1)  # a power of two
        have.check(slots)
        if request.min_slots > slots:
            raise UsageError(
                f"a minimum of {request.min_slots} slots is more than the job's {slots}: give fewer"
            )
        if quota and slots > quota:
            raise NoCapacity(
                f"{slots} slots are more than the {quota} that a job may have: ask for fewer"
            )
        return slots

    def _check_most_jobs(self) -> None:
        quota, jobs = self._registry.policy.most_jobs, len(self._registry.jobs)
        if quota and jobs >= quota:
            raise NoCapacity(
                f"the controller has {counted(jobs, 'job')}, and no more are allowed: delete one"
            )
        if jobs == _LAST_ID:
            raise NoCapacity(f"there are {jobs} jobs, as many as there are numbers for: delete one")

    def _allocate(
        self,
        request: pb.CreateJobRequest,
        fabric: Fabric,
        slots: int,
        check_quota: Callable[[], None],
    ) -> SlotRange | None:
        """Return the job's slots, or None if they are taken and the job is willing to wait."""
        names = fabric.uplinks.keys()
        waiting = self._registry.queued(names)
        try:
            check_quota()
            if waiting:
                raise NoCapacity(
                    f"a queue of {counted(len(waiting), 'job')}, whose workers are all there, waits for "
                    "slots of this switch: use --queue to wait behind them"
                )
            entries = fabric.most_entries(request.workers)
            return self._registry.allocate(names, slots, entries)
        except NoCapacity:
            if request.queue:
                return None
            raise

    def _spec(
        self, request: pb.CreateJobRequest, fabric: Fabric, slots: int, token: str
    ) -> JobSpec:
        self._last_id, self._last_number = self._new_id(), self._last_number + 1
        return JobSpec(
            name=request.name,
            switch=request.switch,
            id=self._last_id,
            workers=request.workers,
            quorum=request.quorum or request.workers,
            min_workers=validation.least_workers(request),
            slots=slots,
            lease_s=request.lease_s or defaults.JOB_LEASE_S,
            token_digest=b"".join(request.token_digests) or token_digest(token),
            number=self._last_number,
            others=tuple(fabric.uplinks)[1:],
            min_slots=request.min_slots,
            priority=request.priority,
            group_ranks=tuple(request.group_ranks),
        )

    def _new_id(self) -> int:
        """Return an id that no job has. A used id comes again as late as possible."""
        taken = {job.spec.id for job in self._registry.jobs.values()}
        later = itertools.chain(range(self._last_id + 1, _LAST_ID + 1), range(1, _LAST_ID + 1))
        return next(each for each in later if each not in taken)

    def _start(self, spec: JobSpec, fabric: Fabric, slot_range: SlotRange | None) -> Job:
        """Return the job, stored and known to its switches. Raises ControllerError if that fails."""
        registry = self._registry
        # Random: if a state was lost, packets of its jobs should not fit the terms of new jobs.
        term = 1 + secrets.randbelow(LAST_TERM)
        invitation = registry.invitation(spec.switch)
        job = Job(spec, term, invitation, fabric, slot_range, registry.clock())
        registry.jobs[spec.name] = job
        for each in spec.switches:
            problem = registry.switches[each].supervisor.problem
            registry.commit(job, job.reports.switch_changed(each, problem, registry.clock()))
        if not registry.is_saved(job):
            registry.end(job, "its state cannot be kept")
            raise ControllerError(
                "the job was not created, because its state cannot be written: see the controller's log"
            )
        return job

    def _overview(self, job: Job) -> pb.Job:
        registry = self._registry
        lanes, now = registry.switches[job.spec.switch].record.lanes, registry.clock()
        view = messages.job_view(job, lanes, registry.policy.lease_s, now)
        view.reason = registry.over_quota(job) or view.reason
        wait = registry.waits.of(job)
        view.waiting_for.extend(sorted(wait.ranks))
        view.waiting_s, view.outage = wait.seconds(now), registry.members.presence.outage
        view.heartbeat_s = registry.members.pace.heartbeat_s
        return view

    def _details(self, job: Job) -> pb.Job:
        """Return all that is known of a job without asking its switches."""
        view, now = self._overview(job), self._registry.clock()
        for _, worker in sorted(job.roster.workers.items()):
            silence = self._registry.members.presence.silence(worker.nonce)
            view.members.append(messages.worker_view(worker, job, now, silence))
        view.departures.extend(messages.departures(job, now))
        view.tree.extend(messages.tree_view(job))
        return view


def _tops(job: Job, view: pb.Job) -> list[str]:
    """Return the switches whose counters make the job's total: those that make results."""
    plan, tops = job.switches.plan, job.switches.fabric.tops
    found = [
        each.switch for each in view.tree if not each.parents and (plan or each.switch in tops)
    ]
    return found or [job.spec.switch]


def _counters(
    supervisors: dict[str, Supervisor], slot_range: SlotRange
) -> dict[str, dict[str, int]]:
    """Return what switches have counted for a job, leaving out those that do not answer."""
    found = {}
    for name, supervisor in supervisors.items():
        with contextlib.suppress(SwitchError):
            found[name] = supervisor.switch().counters(slot_range)
    return found


def _add_counters(view: pb.Job, counters: dict[str, dict[str, int]], tops: list[str]) -> None:
    """Add the counters of the switches to a job's view, and the total if all tops have answered."""
    for each in view.tree:
        if each.switch in counters:
            each.counters.CopyFrom(pb.Counters(**counters[each.switch]))
    if counters.keys() >= {*tops}:
        names = pb.Counters.DESCRIPTOR.fields_by_name
        total = {name: sum(counters[top][name] for top in tops) for name in names}
        view.counters.CopyFrom(pb.Counters(**total))
