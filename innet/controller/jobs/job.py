"""One job: its workers, its switches, and the sequence of its terms. docs/recovery.md explains the rules.

Nothing here communicates or reads a clock. Methods take an event and its time, and return the
messages for the workers. The entries that a switch should hold follow from the state.
"""

from collections.abc import Collection, Mapping

from innet.controller.jobs.events import (
    Actions,
    Departure,
    EndStream,
    Invitation,
    Notify,
    Path,
    Progress,
    Resume,
)
from innet.controller.jobs.history import Cause, Departed, History
from innet.controller.jobs.job_switches import JobSwitches
from innet.controller.jobs.records import Assignment, Attachment, JobRecord, JobSpec, SlotRange
from innet.controller.jobs.roster import Roster, Worker
from innet.controller.jobs.switch_reports import SwitchReports
from innet.controller.jobs.terms import Terms
from innet.controller.jobs.trees import Fabric
from innet.errors import AlreadyExists, InnetError, NotFound, UsageError

_HELLO_WITHIN = 60.0
"""Seconds within which a worker's hello packet has to get through the switch."""


class Job:
    """A job, which passes each event on to its `roster`, its `switches` and its `terms`.

    Every worker first gets a copy of `invitation`. The `fabric` tells how the job's switches are
    linked. `reports` takes the events that come from switches.
    """

    def __init__(
        self,
        spec: JobSpec,
        term: int,
        invitation: Invitation,
        fabric: Fabric,
        slot_range: SlotRange | None,
        now: float,
    ) -> None:
        self.spec, self.history = spec, History()
        self.roster = Roster(spec, invitation, now)
        self.switches = JobSwitches(spec, self.roster, fabric, slot_range)
        self.terms = Terms(term, spec, self.roster, self.switches, self.history, now)
        self.reports = SwitchReports(self.switches, self.terms)

    @classmethod
    def restored(
        cls, record: JobRecord, invitation: Invitation, fabric: Fabric, now: float
    ) -> "Job":
        """Return a job as an earlier controller left it. Its workers have one lease to come back."""
        fabric = fabric.with_drained(record.drained).with_lost(record.lost)
        job = cls(record.spec, record.term, invitation, fabric, record.slot_range, now)
        job.switches.fresh, job.switches.loan = record.fresh, record.loan
        job.roster.departed = dict(record.departed)
        job.roster.restore(record.workers, now)
        left_tree = record.departed and record.spec.others and not job.roster.ending
        if record.agreement and not left_tree:  # the record does not tell where in a tree they were
            job.terms.agreement = record.agreement
        elif job.roster.workers:  # their answers to the earlier controller are lost
            job.terms.next(Cause.CONTROLLER_RESTARTED, now)
        return job

    def record(self) -> JobRecord:
        """Return the part of the state that has to outlive the controller."""
        return JobRecord(
            self.spec,
            self.term,
            self.switches.own_range,
            self.switches.fresh,
            self.agreement,
            tuple(self.roster.departed.items()),
            self.roster.records(),
            self.switches.fabric.drained,
            self.switches.fabric.lost,
            self.switches.loan,
        )

    @property
    def term(self) -> int:
        """Return the present term."""
        return self.terms.term

    @property
    def agreement(self) -> Resume | None:
        """Return how the term begins, or None until the workers agree."""
        return self.terms.agreement

    @property
    def path(self) -> Path:
        """Return how exchanges are summed at present."""
        return self.terms.path

    @property
    def slot_range(self) -> SlotRange | None:
        """Return the slots that the job uses on its switches, or None while it waits for some."""
        return self.switches.slot_range

    @property
    def communicates(self) -> bool:
        """Return whether all workers of a job that lends slots communicate, and a switch can be used."""
        usable = self.path != Path.FALLBACK and not self.switches.problem
        return usable and self.roster.communicates

    def assignments(self, now: float) -> Mapping[str, Assignment]:
        """Return the job's entries for each of its switches, or none without slots."""
        running = self.path == Path.SWITCH
        idle = bool(self.roster.workers) and not running and not self.terms.obstacle(now)
        return self.switches.assignments(self.term, running=running, clear=idle)

    def allows(self, fabric: Fabric) -> bool:
        """Return whether links can become those of a `fabric` without a change to the present term."""
        at = {where.switch for where in self.roster.attachments.values()}
        if at and not fabric.trees(at):
            return False
        return self.path != Path.SWITCH or self.switches.planned(fabric) == self.switches.plan

    def path_without(self, switch: str) -> Path | None:
        """Return the path that the job would take without a switch, or None if it does not use it."""
        if not (self.roster.admitted and self.switches.sums(switch)):
            return None
        fabric = self.switches.fabric
        if not self.switches.problem_in(fabric.with_drained({switch, *fabric.drained})):
            return Path.SWITCH
        return Path.NONE if self.roster.no_fallback else Path.FALLBACK

    # Events from workers.

    def join(
        self, rank: int, nonce: int, now: float, *, fallback: bool, unheard: Collection[int] = ()
    ) -> Actions:
        """Take in a worker: at once, or when a new generation begins.

        `unheard` are the nonces of workers that may be gone. Raises UsageError or AlreadyExists.
        """
        worker = Worker(rank, nonce, fallback, now)
        if self.roster.must_wait(worker, unheard):
            self.roster.waiting.append(worker)
            return []
        begun = [] if self.roster.workers else self.terms.begin_generation(now)
        return begun + self.roster.add(worker, now)

    def rejoin(self, nonce: int, now: float, *, fallback: bool) -> Actions:
        """Take a worker back after its stream broke. Raises NotFound if it has left meanwhile."""
        worker = self.roster.find(nonce)
        if not worker:
            raise NotFound(f"this worker has left the job {self.spec.name!r} meanwhile: join again")
        worker.fallback, worker.notified = fallback, False
        actions = self.roster.add(worker, now)
        if worker.where:
            actions += self.roster.welcome(worker)
            if not self.agreement and worker.ready is None:
                actions.append(self.terms.recover(worker, "the controller asks again"))
            actions += self.terms.advance(now)
        return actions

    def hello(self, nonce: int, where: Attachment, now: float) -> Actions:
        """Admit a worker, or note that it has moved: its hello packet came out of the data plane."""
        worker = self.roster.find(nonce)
        if not worker:
            return []
        worker.heard = now
        if worker.where == where or (self.roster.ending and not worker.where):
            return []  # a late worker is admitted when the next generation begins
        if problem := self._objection(worker, where):
            return self._expel(worker, problem, now)
        moved = bool(worker.where)
        self.roster.attach(worker, where)
        if not moved:
            return self.roster.welcome(worker) + self.terms.advance(now)
        if self.path != Path.SWITCH:
            return []
        moved_to = f"worker {self.spec.in_group(worker.rank)} has moved to port {where.port}"
        return self.terms.renew(Cause.WORKER_MOVED, moved_to, now, worker.rank)

    def refuse(self, nonce: int, problem: UsageError, now: float) -> Actions:
        """Expel a worker whose hello packet is unacceptable. A worker already admitted stays."""
        worker = self.roster.find(nonce)
        if not worker or worker.where:
            return []
        return self._expel(worker, problem, now)

    def heartbeat(self, nonce: int, progress: Progress, now: float) -> None:
        """Note that a worker is alive, and its progress."""
        if worker := self.roster.find(nonce):
            worker.heard, worker.progress = now, progress

    def activity(self, nonce: int, now: float, *, busy: bool) -> None:
        """Note whether a worker communicates."""
        if worker := self.roster.find(nonce):
            worker.heard, worker.busy = now, busy

    def ready(self, nonce: int, term: int, exchange: int, now: float) -> Actions:
        """Note that a worker has stopped for a new term."""
        worker = self.roster.find(nonce)
        if not worker:
            return []
        worker.heard = now
        if self.agreement or term != self.term or worker.ready is not None:
            return []  # it answers a Recover that is over
        worker.ready = exchange
        return self.terms.advance(now)

    def trouble(self, nonce: int, term: int, reason: str, now: float) -> Actions:
        """Begin a new term because a worker cannot go on in this one."""
        worker = self.roster.find(nonce)
        if not worker:
            return []
        worker.heard = now
        if not self.agreement or term != self.term:
            return []  # that term is over
        reason = f"worker {self.spec.in_group(worker.rank)}: {reason}"
        if self.path == Path.SWITCH:
            self.terms.avoid_switch(reason, now, strict=False)
        return self.terms.renew(Cause.WORKER_TROUBLE, reason, now, worker.rank)

    def leave(self, nonce: int, reason: str, now: float) -> Actions:
        """Remove a worker that has left, with its stream. May be called again."""
        worker = self.roster.remove(nonce, reason, now)
        if not worker:
            return []
        running = self.path == Path.SWITCH
        self.switches.forget_worker(worker.rank, worker.where if running else None)
        if not worker.where:  # the others have never met it
            self.history.note_failed_join(Departed(worker.rank, reason, now, admitted=False))
            return self.roster.seat_successor(worker.rank, now)
        self.history.note_departure(Departed(worker.rank, reason, now))
        others = self.roster.admitted
        if not others:
            return self.terms.begin_generation(now)
        departure = Departure(worker.rank, reason)
        actions: Actions = [Notify(each.nonce, departure) for each in others]
        counted_on = self.path == Path.FALLBACK or self.roster.left < self.spec.quorum
        if counted_on or self.switches.stalled:
            why = f"worker {self.spec.in_group(worker.rank)} has left"
            return actions + self.terms.renew(Cause.WORKER_LEFT, why, now, worker.rank)
        return actions + self.terms.advance(now)

    # Events of time.

    def tick(self, now: float) -> Actions:
        """Let time pass: expel workers whose hello packet does not come."""
        actions: Actions = []
        for worker in list(self.roster.workers.values()):
            if not worker.where and now - worker.heard > _HELLO_WITHIN:
                why = "its hello packet has not come through the switch"
                actions += self.expel(worker.nonce, why, now)
        return actions + self.terms.look(now)

    def excuse(self, seconds: float) -> None:
        """Forgive this many seconds of silence, because the controller itself stood still."""
        for worker in self.roster.workers.values():
            worker.heard += seconds

    def expel(self, nonce: int, why: str, now: float) -> Actions:
        """Give a worker up, and notify it if possible."""
        actions: Actions = []
        if worker := self.roster.find(nonce):
            self.history.leases_lost += bool(worker.where)
            actions.append(Notify(worker.nonce, Departure(worker.rank, why)))
        return [*actions, EndStream(nonce), *self.leave(nonce, why, now)]

    def _objection(self, worker: Worker, where: Attachment) -> UsageError | AlreadyExists | None:
        """Return why a worker cannot be admitted there, or None if it can."""
        if problem := self.switches.objection(worker, where):
            return problem
        if other := self.roster.at(where):
            return AlreadyExists(
                f"worker {self.spec.in_group(other.rank)} has the same address, {where.address}: every "
                "worker needs its own"
            )
        return None

    def _expel(self, worker: Worker, problem: InnetError, now: float) -> Actions:
        return [*self.leave(worker.nonce, str(problem), now), EndStream(worker.nonce, problem)]
