"""One job: its workers, and the sequence of its terms. docs/recovery.md explains the rules.

Nothing here communicates or reads a clock. Methods take an event and its time, and return the
messages for the workers. The entries that the switch should hold follow from the state.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from innet.controller.agreement import Detour, first_exchange
from innet.controller.history import Cause, Departed, History
from innet.controller.records import (
    Attachment,
    JobRecord,
    JobSpec,
    Share,
    SlotRange,
    Wanted,
    WorkerRecord,
)
from innet.controller.trees import Fabric, shares
from innet.errors import AlreadyExists, ControllerError, InnetError, NotFound, UsageError
from innet.rpc import innet_pb2 as pb

LAST_TERM = 0xFFFF

_HELLO_WITHIN = 60.0
"""Seconds within which a worker's hello packet has to get through the switch."""


@dataclass(frozen=True)
class Tell:
    """An event for the worker with this nonce."""

    nonce: int
    event: pb.JoinEvent


@dataclass(frozen=True)
class Dismiss:
    """The end of the stream of the worker with this nonce, with or without an error."""

    nonce: int
    problem: InnetError | None = None


Actions = list[Tell | Dismiss]


@dataclass(eq=False)
class Worker:
    """A worker with a seat. `where` is known once its hello packet is in; then it is admitted.

    `ready` is the exchange that the worker will begin with. It is None while the worker is at work,
    or when that exchange is unknown. `told` is set once the worker has been sent the agreement on the
    present term on its present stream.
    """

    rank: int
    nonce: int
    fallback: bool
    heard: float
    where: Attachment | None = None
    ready: int | None = 0
    told: bool = False
    progress: pb.Progress = field(default_factory=pb.Progress)


class Job:
    """A job. Every worker first gets a copy of `invitation`, with a nonce of its own.

    `slot_range` is the job's part of its switches. `agreement` says how the term begins, None until
    the workers agree. `departed` holds the workers that have left the present generation, and why.
    The `fabric` tells how the job's switches are linked; by default there is one switch.
    """

    def __init__(
        self,
        spec: JobSpec,
        term: int,
        invitation: pb.Invitation,
        now: float,
        slot_range: SlotRange | None = None,
        fabric: Fabric | None = None,
    ) -> None:
        self.spec, self.term, self.slot_range = spec, term, slot_range
        self.fabric = fabric or Fabric.of((spec.switch,), {})
        self.workers: dict[int, Worker] = {}
        self.waiting: list[Worker] = []
        self.departed: dict[int, str] = {}
        self.agreement: pb.Resume | None = None
        self.fresh = True  # the job's counters have not been set to zero yet
        self.history = History()
        self._invitation = invitation
        self._idle_since = self._begun = now
        unknown = "the controller has not reached the switch yet"
        self._problems: dict[str, str | None] = dict.fromkeys(self.fabric.uplinks, unknown)
        self._detour = Detour()
        self._clear: set[str] = set()  # the switches that have cleared their cells
        self._installed: dict[str, frozenset[int]] = {}  # by switch

    @classmethod
    def restored(
        cls,
        record: JobRecord,
        invitation: pb.Invitation,
        now: float,
        fabric: Fabric | None = None,
    ) -> "Job":
        """Return a job as an earlier controller left it. Its workers have one lease to come back."""
        job = cls(record.spec, record.term, invitation, now, record.slot_range, fabric)
        job.fresh, job.departed = record.fresh, dict(record.departed)
        for each in record.workers:
            worker = Worker(each.rank, each.nonce, each.fallback, now, each.where)
            if each.where:
                worker.ready = None  # not known
            job.workers[each.rank] = worker
        if record.agreement:
            job.agreement = pb.Resume.FromString(record.agreement)
        elif job.workers:  # their answers to the earlier controller are lost
            job._next_term(Cause.CONTROLLER_RESTARTED)
        return job

    def record(self) -> JobRecord:
        """Return the part of the state that has to outlive the controller."""
        workers = tuple(
            WorkerRecord(each.rank, each.nonce, each.fallback, each.where)
            for each in self.workers.values()
        )
        agreement = self.agreement.SerializeToString() if self.agreement else b""
        departed = tuple(self.departed.items())
        return JobRecord(
            self.spec, self.term, self.slot_range, self.fresh, agreement, departed, workers
        )

    @property
    def admitted(self) -> list[Worker]:
        """Return the workers whose attachment is known, by rank."""
        return [worker for _, worker in sorted(self.workers.items()) if worker.where]

    @property
    def path(self) -> pb.Path:
        """Return how exchanges are summed at present."""
        return self.agreement.path if self.agreement else pb.PATH_NONE

    @property
    def ending(self) -> bool:
        """Return whether too many workers have left to finish another exchange."""
        return self._left < self.spec.min_workers

    @property
    def complete(self) -> bool:
        """Return whether all workers that have not left are admitted, and enough of them are left."""
        return len(self.admitted) >= max(1, self._left) and not self.ending

    @property
    def quorum(self) -> int:
        """Return the number of contributions that make a result in this term."""
        return min(self.spec.quorum, max(self._left, self.spec.min_workers))

    @property
    def _left(self) -> int:
        """Return the number of workers that have not left, including those still to come."""
        return self.spec.workers - len(self.departed)

    @property
    def awaited(self) -> frozenset[int]:
        """Return the ranks that have to join before a term can begin."""
        if not self._missing_in_tree and self.quorum >= self._left:
            return frozenset()
        return frozenset(range(self.spec.workers)) - {
            *self.departed,
            *(w.rank for w in self.admitted),
        }

    @property
    def nonces(self) -> set[int]:
        """Return the nonces of all workers that have a seat or wait for one."""
        return {each.nonce for each in [*self.workers.values(), *self.waiting]}

    def reason(self, now: float) -> str:
        """Return why the path is not the switch, or "" if it is, or if there are no workers."""
        if not self.workers or self.path == pb.PATH_SWITCH:
            return ""
        if obstacle := self._obstacle(now):
            return obstacle if self._can_fall_back else f"{obstacle}, and {self._no_fallback}"
        if missing := self._missing_in_tree:
            return f"several switches sum, and {missing} of the workers are missing"
        unready = [str(each.rank) for each in self.admitted if each.ready is None]
        if unready:
            return f"a term begins; not ready yet: worker {', '.join(unready)}"
        return "a term begins"

    def expired(self, now: float) -> bool:
        """Return whether the job has had no worker for the time of its lease."""
        empty = not self.workers and not self.waiting
        return empty and now - self._idle_since > self.spec.lease_s

    @property
    def plan(self) -> Mapping[str, tuple[Share, ...]]:
        """Return the shares of each of several switches, or {} until all workers are there."""
        if self.fabric.single or not self.slot_range or self._missing_in_tree:
            return {}
        places = {each.rank: each.where for each in self.admitted if each.where}
        trees = self.fabric.trees({where.switch for where in places.values()})
        return shares(trees, self.slot_range, places)

    def wanted(self, now: float, switch: str = "") -> Wanted | None:
        """Return the job's entries for a switch, by default the first, or None without slots."""
        switch = switch or self.spec.switch
        if not self.slot_range:
            return None
        running = self.path == pb.PATH_SWITCH
        idle = bool(self.workers) and not running and not self._obstacle(now)
        here = {
            each.rank: each.where
            for each in self.admitted
            if running and each.where and (self.fabric.single or each.where.switch == switch)
        }
        return Wanted(
            self.spec.id,
            self.slot_range,
            self.term,
            self.quorum,
            here,
            clear=idle and switch in self._needed and switch not in self._clear,
            fresh=self.fresh,
            shares=self.plan.get(switch, ()) if running else (),
            beyond=self._beyond(switch) if running else {},
        )

    def _beyond(self, switch: str) -> dict[str, int]:
        """Return the port of a switch that leads to each worker at other switches, by MAC address."""
        places = [each.where for each in self.admitted if each.where]
        if self.fabric.single:
            return {}
        return {
            where.address.mac: port
            for where in places
            if where.switch != switch and (port := self.fabric.port_towards(where.switch, switch))
        }

    # Events from workers.

    def join(
        self,
        rank: int,
        nonce: int,
        now: float,
        *,
        fallback: bool,
        unheard: Collection[int] = (),
    ) -> Actions:
        """Give a worker a seat: at once, or when a new generation begins.

        `unheard` are the nonces of workers that may be gone. Raises UsageError or AlreadyExists.
        """
        self.check_rank(rank)
        worker = Worker(rank, nonce, fallback, now)
        holder = self.workers.get(rank)
        if self.ending or rank in self.departed or (holder and holder.nonce in unheard):
            if rank in {each.rank for each in self.waiting}:
                raise AlreadyExists(
                    f"a worker {rank} waits for the next run of the job {self.spec.name!r} already"
                )
            self.waiting.append(worker)
            return []
        if holder:
            raise AlreadyExists(f"the job {self.spec.name!r} has a worker {rank} already")
        if not self.workers:
            self._begin_generation()
        return self._seat(worker)

    def check_rank(self, rank: int) -> None:
        """Raise UsageError unless the job has a worker with this rank."""
        if rank >= self.spec.workers:
            raise UsageError(f"rank {rank}: the job has {self.spec.workers} workers, from 0 on")

    def rejoin(self, nonce: int, now: float, *, fallback: bool) -> Actions:
        """Take a worker back after its stream broke. Raises NotFound if it has left meanwhile."""
        worker = self._seated(nonce)
        if not worker:
            raise NotFound(
                f"this worker's stay in the job {self.spec.name!r} is over: it has to join anew"
            )
        worker.heard, worker.fallback, worker.told = now, fallback, False
        actions = self._seat(worker)
        if worker.where:
            actions += self._welcome(worker)
            if not self.agreement and worker.ready is None:
                actions.append(self._call_back(worker, "the controller asks again"))
            actions += self._advance(now)
        return actions

    def hello(self, nonce: int, where: Attachment, now: float) -> Actions:
        """Admit a worker, or note that it has moved: its hello packet came out of the data plane."""
        worker = self._seated(nonce)
        if not worker:
            return []
        worker.heard = now
        if worker.where == where or (self.ending and not worker.where):
            return []  # a late worker is admitted when the next generation begins
        if problem := self._unreachable(worker, where):
            return [*self.leave(nonce, str(problem), now), Dismiss(nonce, problem)]
        if other := self._neighbour(where):
            problem = AlreadyExists(f"worker {other.rank} has this very address, {where.address}")
            return [*self.leave(nonce, str(problem), now), Dismiss(nonce, problem)]
        moved, worker.where = bool(worker.where), where
        if not moved:
            return self._welcome(worker) + self._advance(now)
        if self.path != pb.PATH_SWITCH:
            return []
        moved_to = f"worker {worker.rank} has moved to port {where.port}"
        return self._renew(Cause.WORKER_MOVED, moved_to, now)

    def is_at(self, nonce: int, where: Attachment) -> bool:
        """Return whether this is the worker's attachment."""
        worker = self._seated(nonce)
        return worker is not None and worker.where == where

    def refuse(self, nonce: int, problem: UsageError, now: float) -> Actions:
        """Expel a worker whose hello packet is unacceptable. A worker already admitted stays."""
        worker = self._seated(nonce)
        if not worker or worker.where:
            return []
        return [*self.leave(nonce, str(problem), now), Dismiss(nonce, problem)]

    def heartbeat(self, nonce: int, progress: pb.Progress, now: float) -> None:
        """Note that a worker is alive, and its progress."""
        if worker := self._seated(nonce):
            worker.heard, worker.progress = now, progress

    def ready(self, nonce: int, term: int, exchange: int, now: float) -> Actions:
        """Note that a worker has stopped for a new term."""
        worker = self._seated(nonce)
        if not worker:
            return []
        worker.heard = now
        if self.agreement or term != self.term or worker.ready is not None:
            return []  # it answers a Recover that is over
        worker.ready = exchange
        return self._advance(now)

    def trouble(self, nonce: int, term: int, reason: str, now: float) -> Actions:
        """Begin a new term because a worker cannot go on in this one."""
        worker = self._seated(nonce)
        if not worker:
            return []
        worker.heard = now
        if not self.agreement or term != self.term:
            return []  # that term is over
        reason = f"worker {worker.rank}: {reason}"
        if self.path == pb.PATH_SWITCH:
            self._detour.begin(reason, self._begun, now, strict=False)
        return self._renew(Cause.WORKER_TROUBLE, reason, now)

    def leave(self, nonce: int, reason: str, now: float) -> Actions:
        """Remove a worker that has left, with its stream. May be called again."""
        self.waiting = [each for each in self.waiting if each.nonce != nonce]
        worker = self._seated(nonce)
        if not worker:
            return []
        del self.workers[worker.rank]
        self._installed = {at: held - {worker.rank} for at, held in self._installed.items()}
        if not self.workers and not self.waiting:
            self._idle_since = now
        if not worker.where:  # the others have never met it
            return []
        self.departed[worker.rank] = reason
        self.history.departures.append(Departed(worker.rank, reason, now))
        if not self.admitted:
            return self._begin_generation()
        actions: Actions = [_departure(each, worker.rank, reason) for each in self.admitted]
        counted_on = self.path == pb.PATH_FALLBACK or self._left < self.spec.quorum
        if counted_on:
            left = f"worker {worker.rank} has left"
            return actions + self._renew(Cause.WORKER_LEFT, left, now)
        return actions + self._advance(now)

    def end(self, reason: str) -> Actions:
        """End the job for all workers."""
        actions: Actions = []
        for worker in self.workers.values():
            actions += [_departure(worker, worker.rank, reason), Dismiss(worker.nonce)]
        actions += [Dismiss(each.nonce, NotFound(reason)) for each in self.waiting]
        self.workers, self.waiting = {}, []
        return actions

    # Events from switches.

    def switch_changed(self, problem: str | None, now: float, switch: str = "") -> Actions:
        """Note that a switch is ready, with all its entries, or that it is not, and why."""
        switch = switch or self.spec.switch
        self._problems[switch] = problem
        if problem:
            self._clear.discard(switch)
            self._installed.pop(switch, None)
            if self.path == pb.PATH_SWITCH and switch in self._needed:
                return self._renew(Cause.SWITCH_LOST, problem, now)
        return self._look(now)

    def slots_granted(self, slot_range: SlotRange, now: float) -> Actions:
        """Take the slots that the job has waited for."""
        self.slot_range = slot_range
        return self._look(now)

    def cells_cleared(self, term: int, now: float, switch: str = "") -> Actions:
        """Note that a switch has cleared the job's cells for a term."""
        if term != self.term or self.path == pb.PATH_SWITCH:
            return []
        self._clear.add(switch or self.spec.switch)
        self.fresh = self.fresh and not self._cleared
        return self._look(now)

    def entries_held(
        self, term: int, ranks: Collection[int], now: float, switch: str = ""
    ) -> Actions:
        """Note that a switch admits these workers in this term, directly or in a child's sum."""
        switch = switch or self.spec.switch
        if term != self.term or self._problems[switch]:
            return []
        self._installed[switch] = frozenset(ranks)
        return self._advance(now)

    def entries_refused(self, term: int, reason: str, now: float) -> Actions:
        """Note that the switch has refused the job's entries."""
        if term != self.term:
            return []
        self._detour.begin(reason, self._begun, now, strict=True)
        if self.path != pb.PATH_SWITCH:
            return []
        return self._renew(Cause.SWITCH_REFUSED, reason, now)

    # Events of time.

    def tick(self, now: float) -> Actions:
        """Let time pass: expel workers whose hello packet does not come."""
        actions: Actions = []
        for worker in list(self.workers.values()):
            if not worker.where and now - worker.heard > _HELLO_WITHIN:
                why = "its hello packet has not come through the switch"
                actions += self.expel(worker.nonce, why, now)
        return actions + self._look(now)

    def excuse(self, seconds: float) -> None:
        """Forgive this many seconds of silence, because the controller itself stood still."""
        for worker in self.workers.values():
            worker.heard += seconds

    def expel(self, nonce: int, why: str, now: float) -> Actions:
        """Give a worker up, and notify it if possible."""
        actions: Actions = []
        if worker := self._seated(nonce):
            self.history.leases_lost += bool(worker.where)
            actions.append(_departure(worker, worker.rank, why))
        return [*actions, Dismiss(nonce), *self.leave(nonce, why, now)]

    # Terms.

    def _begin_generation(self) -> Actions:
        self._next_term(Cause.NEW_WORKERS)
        self.departed = {}
        waiting, self.waiting = self.waiting, []
        return [action for each in waiting for action in self._seat_or_refuse(each)]

    def _next_term(self, cause: Cause) -> None:
        self.history.terms[cause] += 1
        self.term = self.term % LAST_TERM + 1
        self.agreement, self._clear, self._installed = None, set(), {}
        for worker in self.workers.values():
            worker.told = False

    def _look(self, now: float) -> Actions:
        """Go back to the switch once it can be used again and has cleared the job's cells."""
        if self.path == pb.PATH_FALLBACK and self._cleared and not self._obstacle(now):
            return self._renew(Cause.SWITCH_USABLE, "the switch can be used", now)
        return self._advance(now)

    def _renew(self, cause: Cause, reason: str, now: float) -> Actions:
        """Begin to agree on a new term, unless that is already under way or pointless."""
        if not self.agreement or self.ending:
            return self._advance(now)
        # Cells cleared while no worker was admitted are still clear.
        clear = set() if self.path == pb.PATH_SWITCH else self._clear
        self._next_term(cause)
        self._clear = clear
        actions: Actions = []
        for worker in self.admitted:
            if worker.ready is None:
                actions.append(self._call_back(worker, reason))
        return actions + self._advance(now)

    def _call_back(self, worker: Worker, reason: str) -> Tell:
        recover = pb.Recover(term=self.term, reason=reason)
        return Tell(worker.nonce, pb.JoinEvent(recover=recover))

    def _advance(self, now: float) -> Actions:
        """Agree on how the term begins if possible, and tell the workers."""
        if not self.agreement:
            try:
                self.agreement = self._agree(now)
            except ControllerError as problem:
                return self._give_up(problem, now)
            if not self.agreement:
                return []
            self._begun = now
        actions: Actions = []
        for worker in self.admitted:
            if not worker.told and (self.path != pb.PATH_SWITCH or self._let_in(worker)):
                worker.told, worker.ready = True, None
                actions.append(Tell(worker.nonce, pb.JoinEvent(resume=self.agreement)))
        return actions

    def _agree(self, now: float) -> pb.Resume | None:
        """Return how the term begins, None while that is open. Raises ControllerError if impossible."""
        exchanges = [each.ready for each in self.admitted if each.ready is not None]
        if not exchanges or len(exchanges) < len(self.admitted):
            return None
        everybody = self.quorum >= self._left
        if not everybody and len(exchanges) < self._left:
            return None  # a worker that comes after the quorum has begun would be left behind
        if self._missing_in_tree:
            return None  # a worker that comes later might need other switches
        obstacle = self._obstacle(now)
        if obstacle and not self._can_fall_back:
            return None
        if not obstacle and not self._cleared:
            return None
        path = pb.PATH_FALLBACK if obstacle else pb.PATH_SWITCH
        exchange, shared = first_exchange(
            exchanges,
            in_step=self.spec.quorum == self.spec.workers,
            sharable=everybody or path == pb.PATH_FALLBACK,
        )
        agreement = pb.Resume(term=self.term, path=path, exchange=exchange, shared=shared)
        if self.slot_range:
            agreement.first_slot, agreement.slots = (
                self.slot_range.first_slot,
                self.slot_range.slots,
            )
        agreement.reason = obstacle or ""
        return agreement

    def _give_up(self, problem: ControllerError, now: float) -> Actions:
        actions: Actions = [Dismiss(each.nonce, problem) for each in self.admitted]
        self.workers = {each.rank: each for each in self.workers.values() if not each.where}
        self._idle_since = now
        return actions + self._begin_generation()

    def _obstacle(self, now: float) -> str | None:
        """Return the reason why the job cannot use the switch now, or None."""
        if not self.slot_range:
            return "no slots are free for the job yet"
        for switch in self._needed:
            if problem := self._problems[switch]:
                return problem
        return self._detour.reason(now, can_fall_back=self._can_fall_back)

    @property
    def _needed(self) -> Collection[str]:
        """Return the switches that sum. Several are known only once all workers are there."""
        return (self.spec.switch,) if self.fabric.single else self.plan

    @property
    def _missing_in_tree(self) -> int:
        """Return how many workers are missing before the summing switches are known."""
        return 0 if self.fabric.single else self.spec.workers - len(self.admitted)

    @property
    def _cleared(self) -> bool:
        """Return whether all cells of the job are clear at every switch that will sum."""
        return bool(self._needed) and self._clear.issuperset(self._needed)

    def _let_in(self, worker: Worker) -> bool:
        """Return whether the switches that take part admit a worker."""
        if self.fabric.single:
            return worker.rank in self._installed.get(self.spec.switch, ())
        # All switches must admit all workers: a sum that goes up too early comes again only later.
        everybody = {
            switch: {rank for rank in self.workers for share in does if share.members >> rank & 1}
            for switch, does in self.plan.items()
        }
        return all(self._installed.get(at, frozenset()) >= ranks for at, ranks in everybody.items())

    def _unreachable(self, worker: Worker, where: Attachment) -> UsageError | None:
        """Return an error if no switch joins this worker's contributions with the others'."""
        if self.fabric.single:
            return None
        others = [each.where.switch for each in self.admitted if each.where and each is not worker]
        if self.fabric.trees({where.switch, *others}):
            return None
        return UsageError(
            f"worker {worker.rank} is at the switch {where.switch!r}, and no switch of the job is above "
            f"that and above {', '.join(sorted(map(repr, set(others))))}"
        )

    @property
    def _can_fall_back(self) -> bool:
        return not self._no_fallback

    @property
    def _no_fallback(self) -> str:
        """Return why the workers cannot sum without the switch, or "" if they can."""
        if missing := self.spec.workers - len(self.admitted):
            return f"there is no fallback while {missing} of the workers are missing"
        without = [str(each.rank) for each in self.admitted if not each.fallback]
        return f"worker {', '.join(without)} has no fallback" if without else ""

    # Seats.

    def _seated(self, nonce: int) -> Worker | None:
        return next((each for each in self.workers.values() if each.nonce == nonce), None)

    def _neighbour(self, where: Attachment) -> Worker | None:
        """Return the worker with this very attachment, which the switch could not tell apart."""
        return next((each for each in self.admitted if each.where == where), None)

    def _seat_or_refuse(self, worker: Worker) -> Actions:
        if worker.rank in self.workers:
            name = self.spec.name
            problem = AlreadyExists(f"the job {name!r} has a worker {worker.rank} already")
            return [Dismiss(worker.nonce, problem)]
        return self._seat(worker)

    def _seat(self, worker: Worker) -> Actions:
        self.workers[worker.rank] = worker
        invitation = pb.Invitation()
        invitation.CopyFrom(self._invitation)
        invitation.nonce = worker.nonce
        return [Tell(worker.nonce, pb.JoinEvent(invitation=invitation))]

    def _welcome(self, worker: Worker) -> Actions:
        """Return the admission, and the departures before it."""
        admission = pb.Admission(
            job_id=self.spec.id,
            rank=worker.rank,
            workers=self.spec.workers,
            min_workers=self.spec.min_workers,
            lanes=self._invitation.lanes,
        )
        actions: Actions = [Tell(worker.nonce, pb.JoinEvent(admission=admission))]
        return actions + [
            _departure(worker, rank, reason) for rank, reason in self.departed.items()
        ]


def _departure(to: Worker, rank: int, reason: str) -> Tell:
    return Tell(to.nonce, pb.JoinEvent(departure=pb.Departure(rank=rank, reason=reason)))
