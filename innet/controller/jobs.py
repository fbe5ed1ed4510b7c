"""One job: who is in it, and how its epochs follow upon each other. docs/epochs.md tells why.

Nothing here talks to anybody or looks at a clock. What happens comes in, with the time at which it does;
what the workers are to be told goes out; and what the switch should hold follows from the state.
"""

import math
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from innet.controller import innet_pb2 as pb
from innet.controller.agreement import Detour, first_exchange
from innet.controller.history import Cause, History
from innet.controller.trees import Fabric, shares
from innet.controller.values import (
    Attachment,
    JobRecord,
    JobSpec,
    Place,
    Share,
    Wanted,
    WorkerRecord,
)
from innet.errors import AlreadyExists, ControllerError, InnetError, NotFound, UsageError

LAST_EPOCH = 0xFFFF

_HELLO_WITHIN = 60.0
"""Seconds that a worker has for its hello packet to get through the switch."""


@dataclass(frozen=True)
class Tell:
    """An event for the worker with this nonce."""

    nonce: int
    event: pb.JoinEvent


@dataclass(frozen=True)
class Dismiss:
    """The end of the stream of the worker with this nonce, with an error or without."""

    nonce: int
    problem: InnetError | None = None


Actions = list[Tell | Dismiss]


@dataclass(eq=False)
class Worker:
    """A worker that has a seat. `where` is known once its hello packet is in: then it is admitted.

    `ready` is the exchange that it will begin with; None while it is at work, or when that is not known.
    `told` once it knows the terms of the present epoch, as far as this stream goes.
    """

    rank: int
    nonce: int
    fallback: bool
    heard: float
    where: Attachment | None = None
    ready: int | None = 0
    told: bool = False
    answer_by: float = math.inf
    progress: pb.Progress = field(default_factory=pb.Progress)


class Job:
    """A job. `invitation` is what every worker is told at first, but for its nonce.

    `place` is what the job has of its switches, `terms` what is agreed upon for the epoch, None while it
    is not; `departed` are those who have left the present generation of workers, and why. The `fabric`
    says how its switches are joined; by default there is one.
    """

    def __init__(
        self,
        spec: JobSpec,
        epoch: int,
        invitation: pb.Invitation,
        now: float,
        place: Place | None = None,
        fabric: Fabric | None = None,
    ) -> None:
        self.spec, self.epoch, self.place = spec, epoch, place
        self.fabric = fabric or Fabric.of((spec.switch,), {})
        self.workers: dict[int, Worker] = {}
        self.waiting: list[Worker] = []
        self.departed: dict[int, str] = {}
        self.terms: pb.Resume | None = None
        self.fresh = True  # the counters are not the job's yet
        self.history = History()
        self._invitation, self._lease = invitation, invitation.lease_s
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
        """A job as an earlier controller left it. Its workers have a lease's time to come back."""
        job = cls(record.spec, record.epoch, invitation, now, record.place, fabric)
        job.fresh, job.departed = record.fresh, dict(record.departed)
        for each in record.workers:
            worker = Worker(each.rank, each.nonce, each.fallback, now, each.where)
            if each.where:
                worker.ready = None  # not known
            else:
                worker.heard += job._lease - _HELLO_WITHIN
            job.workers[each.rank] = worker
        if record.terms:
            job.terms = pb.Resume.FromString(record.terms)
        elif job.workers:  # what they have answered to the controller before is lost
            job._next_epoch(Cause.CONTROLLER_RESTARTED)
        return job

    def record(self) -> JobRecord:
        """What has to outlive the controller."""
        workers = tuple(
            WorkerRecord(each.rank, each.nonce, each.fallback, each.where)
            for each in self.workers.values()
        )
        terms = self.terms.SerializeToString() if self.terms else b""
        departed = tuple(self.departed.items())
        return JobRecord(self.spec, self.epoch, self.place, self.fresh, terms, departed, workers)

    @property
    def admitted(self) -> list[Worker]:
        """The workers of which it is known where they are, by rank."""
        return [worker for _, worker in sorted(self.workers.items()) if worker.where]

    @property
    def path(self) -> pb.Path:
        """How exchanges are summed at present."""
        return self.terms.path if self.terms else pb.PATH_NONE

    @property
    def ending(self) -> bool:
        """Too many have left: no exchange can be finished any more."""
        return self._left < self.spec.fewest

    @property
    def quorum(self) -> int:
        """How many contributions make a result in this epoch."""
        return min(self.spec.quorum, max(self._left, self.spec.fewest))

    @property
    def _left(self) -> int:
        """How many have not left, of those who are there, and those who are still to come."""
        return self.spec.workers - len(self.departed)

    @property
    def nonces(self) -> set[int]:
        """Of all who have a seat or wait for one."""
        return {each.nonce for each in [*self.workers.values(), *self.waiting]}

    def reason(self, now: float) -> str:
        """Why the path is not the switch; empty where it is, or where nobody is there to ask."""
        if not self.workers or self.path == pb.PATH_SWITCH:
            return ""
        if obstacle := self._obstacle(now):
            return obstacle if self._can_fall_back else f"{obstacle}, and {self._no_fallback}"
        if missing := self._missing_in_tree:
            return f"several switches sum, and {missing} of the workers are missing"
        unready = [str(each.rank) for each in self.admitted if each.ready is None]
        if unready:
            return f"an epoch begins; not ready yet: worker {', '.join(unready)}"
        return "an epoch begins"

    def expired(self, now: float) -> bool:
        """Nobody has been there for the time of the job's lease."""
        empty = not self.workers and not self.waiting
        return empty and now - self._idle_since > self.spec.lease_s

    @property
    def plan(self) -> Mapping[str, tuple[Share, ...]]:
        """What each of several switches does, once all workers are there; empty before."""
        if self.fabric.single or not self.place or self._missing_in_tree:
            return {}
        places = {each.rank: each.where for each in self.admitted if each.where}
        trees = self.fabric.trees({where.switch for where in places.values()})
        return shares(trees, self.place, places)

    def wanted(self, now: float, switch: str = "") -> Wanted | None:
        """What a switch, by default the first, should hold of the job."""
        switch = switch or self.spec.switch
        if not self.place:
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
            self.place,
            self.epoch,
            self.quorum,
            here,
            clear=idle and switch in self._needed and switch not in self._clear,
            fresh=self.fresh,
            shares=self.plan.get(switch, ()) if running else (),
            beyond=self._beyond(switch) if running else {},
        )

    def _beyond(self, switch: str) -> dict[str, int]:
        """Which port of a switch leads to the workers at others, by their MAC addresses."""
        places = [each.where for each in self.admitted if each.where]
        if self.fabric.single:
            return {}
        return {
            where.address.mac: port
            for where in places
            if where.switch != switch and (port := self.fabric.port_towards(where.switch, switch))
        }

    # What workers do.

    def join(self, rank: int, nonce: int, now: float, *, fallback: bool) -> Actions:
        """Somebody asks for a seat: there is an invitation, at once or when a new generation begins.

        Raises UsageError or AlreadyExists.
        """
        if rank >= self.spec.workers:
            raise UsageError(f"rank {rank}: the job has {self.spec.workers} workers, from 0 on")
        worker = Worker(rank, nonce, fallback, now)
        if self.ending or rank in self.departed:
            self.waiting.append(worker)
            return []
        if rank in self.workers:
            raise AlreadyExists(f"the job {self.spec.name!r} has a worker {rank} already")
        if not self.workers:
            self._begin_generation()
        return self._seat(worker)

    def rejoin(self, nonce: int, now: float, *, fallback: bool) -> Actions:
        """A worker is back after its stream broke. Raises NotFound if it has left meanwhile."""
        worker = self._seated(nonce)
        if not worker:
            raise NotFound(
                f"this worker's stay in the job {self.spec.name!r} is over: it has to join anew"
            )
        worker.heard, worker.fallback, worker.told = now, fallback, False
        actions = self._seat(worker)
        if worker.where:
            actions += self._welcome(worker)
            if not self.terms and worker.ready is None:
                actions += self._call_back(worker, "the controller asks again", now)
            actions += self._advance(now)
        return actions

    def hello(self, nonce: int, where: Attachment, now: float) -> Actions:
        """A worker's hello packet came out of the data plane."""
        worker = self._seated(nonce)
        if not worker:
            return []
        worker.heard = now
        if worker.where == where or (self.ending and not worker.where):
            return []  # who comes late is admitted when the next generation begins
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

    def heartbeat(self, nonce: int, progress: pb.Progress, now: float) -> None:
        """A worker lives, and says how far it is."""
        if worker := self._seated(nonce):
            worker.heard, worker.progress = now, progress

    def ready(self, nonce: int, epoch: int, exchange: int, now: float) -> Actions:
        """A worker has stopped for a new epoch."""
        worker = self._seated(nonce)
        if not worker:
            return []
        worker.heard = now
        if self.terms or epoch != self.epoch or worker.ready is not None:
            return []  # it answers to what is over
        worker.ready, worker.answer_by = exchange, math.inf
        return self._advance(now)

    def trouble(self, nonce: int, epoch: int, reason: str, now: float) -> Actions:
        """A worker cannot go on in this epoch."""
        worker = self._seated(nonce)
        if not worker:
            return []
        worker.heard = now
        if not self.terms or epoch != self.epoch:
            return []  # that epoch is over
        reason = f"worker {worker.rank}: {reason}"
        if self.path == pb.PATH_SWITCH:
            self._detour.begin(reason, self._begun, now, strict=False)
        return self._renew(Cause.WORKER_TROUBLE, reason, now)

    def leave(self, nonce: int, reason: str, now: float) -> Actions:
        """A worker has gone, and its stream with it. May be called again."""
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
        if not self.admitted:
            return self._begin_generation()
        actions: Actions = [_departure(each, worker.rank, reason) for each in self.admitted]
        counted_on = self.path == pb.PATH_FALLBACK or self._left < self.spec.quorum
        if counted_on:
            left = f"worker {worker.rank} has left"
            return actions + self._renew(Cause.WORKER_LEFT, left, now)
        return actions + self._advance(now)

    def end(self, reason: str) -> Actions:
        """The job is over, for all."""
        actions: Actions = []
        for worker in self.workers.values():
            actions += [_departure(worker, worker.rank, reason), Dismiss(worker.nonce)]
        actions += [Dismiss(each.nonce, NotFound(reason)) for each in self.waiting]
        self.workers, self.waiting = {}, []
        return actions

    # What the switch does.

    def switch_changed(self, problem: str | None, now: float, switch: str = "") -> Actions:
        """A switch is there, with all that it should hold, or is not, for the reason given."""
        switch = switch or self.spec.switch
        self._problems[switch] = problem
        if problem:
            self._clear.discard(switch)
            self._installed.pop(switch, None)
            if self.path == pb.PATH_SWITCH and switch in self._needed:
                return self._renew(Cause.SWITCH_LOST, problem, now)
        return self._look(now)

    def place_given(self, place: Place, now: float) -> Actions:
        """There are slots for the job, which has waited for them."""
        self.place = place
        return self._look(now)

    def cells_cleared(self, epoch: int, now: float, switch: str = "") -> Actions:
        """A switch has cleared the job's cells for an epoch."""
        if epoch != self.epoch or self.path == pb.PATH_SWITCH:
            return []
        self._clear.add(switch or self.spec.switch)
        self.fresh = self.fresh and not self._cleared
        return self._look(now)

    def entries_held(
        self, epoch: int, ranks: Collection[int], now: float, switch: str = ""
    ) -> Actions:
        """A switch lets these workers in, in this epoch, alone or in the sum of a switch below."""
        switch = switch or self.spec.switch
        if epoch != self.epoch or self._problems[switch]:
            return []
        self._installed[switch] = frozenset(ranks)
        return self._advance(now)

    def entries_refused(self, epoch: int, reason: str, now: float) -> Actions:
        """The switch does not take what the job needs there."""
        if epoch != self.epoch:
            return []
        self._detour.begin(reason, self._begun, now, strict=True)
        if self.path != pb.PATH_SWITCH:
            return []
        return self._renew(Cause.SWITCH_REFUSED, reason, now)

    # What time does.

    def tick(self, now: float) -> Actions:
        """Time passes: who is silent for too long has left."""
        actions: Actions = []
        for worker in list(self.workers.values()):
            if why := self._lapse(worker, now):
                self.history.leases_lost += bool(worker.where)
                actions += [_departure(worker, worker.rank, why), Dismiss(worker.nonce)]
                actions += self.leave(worker.nonce, why, now)
        return actions + self._look(now)

    def excuse(self, seconds: float) -> None:
        """For so long nobody could be heard, for it was the controller that stood still."""
        for worker in self.workers.values():
            worker.heard += seconds
            worker.answer_by += seconds

    def _lapse(self, worker: Worker, now: float) -> str:
        """Why the worker's lease is over; empty while it is not."""
        if not worker.where:
            over = now - worker.heard > _HELLO_WITHIN
            return "its hello packet has not come through the switch" if over else ""
        if now - worker.heard > self._lease:
            return f"it was silent for {self._lease:g} s"
        if now > worker.answer_by:
            return f"it has not stopped for a new epoch within {self._lease:g} s"
        return ""

    # Epochs.

    def _begin_generation(self) -> Actions:
        self._next_epoch(Cause.NEW_WORKERS)
        self.departed = {}
        waiting, self.waiting = self.waiting, []
        return [action for each in waiting for action in self._seat_or_refuse(each)]

    def _next_epoch(self, cause: Cause) -> None:
        self.history.epochs[cause] += 1
        self.epoch = self.epoch % LAST_EPOCH + 1
        self.terms, self._clear, self._installed = None, set(), {}
        for worker in self.workers.values():
            worker.told = False

    def _look(self, now: float) -> Actions:
        """Go back to the switch if it can be used again: when it has cleared the job's cells."""
        if self.path == pb.PATH_FALLBACK and self._cleared and not self._obstacle(now):
            return self._renew(Cause.SWITCH_USABLE, "the switch can be used", now)
        return self._advance(now)

    def _renew(self, cause: Cause, reason: str, now: float) -> Actions:
        """Begin to agree on a new epoch, unless that is under way, or vain."""
        if not self.terms or self.ending:
            return self._advance(now)
        # What was cleared while nobody was let in is still clear.
        clear = set() if self.path == pb.PATH_SWITCH else self._clear
        self._next_epoch(cause)
        self._clear = clear
        actions: Actions = []
        for worker in self.admitted:
            if worker.ready is None:
                actions += self._call_back(worker, reason, now)
        return actions + self._advance(now)

    def _call_back(self, worker: Worker, reason: str, now: float) -> Actions:
        worker.answer_by = now + self._lease
        recover = pb.Recover(epoch=self.epoch, reason=reason)
        return [Tell(worker.nonce, pb.JoinEvent(recover=recover))]

    def _advance(self, now: float) -> Actions:
        """Do what can be done by now: agree on the epoch's terms, and tell them."""
        if not self.terms:
            try:
                self.terms = self._agree(now)
            except ControllerError as problem:
                return self._give_up(problem, now)
            if not self.terms:
                return []
            self._begun = now
        actions: Actions = []
        for worker in self.admitted:
            if not worker.told and (self.path != pb.PATH_SWITCH or self._let_in(worker)):
                worker.told, worker.ready = True, None
                actions.append(Tell(worker.nonce, pb.JoinEvent(resume=self.terms)))
        return actions

    def _agree(self, now: float) -> pb.Resume | None:
        """The epoch's terms, if they can be had. Raises ControllerError if there are none."""
        exchanges = [each.ready for each in self.admitted if each.ready is not None]
        if not exchanges or len(exchanges) < len(self.admitted):
            return None
        everybody = self.quorum >= self._left
        if not everybody and len(exchanges) < self._left:
            return None  # who comes after the quorum has begun is left behind
        if self._missing_in_tree:
            return None  # who comes later might need other switches
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
        terms = pb.Resume(epoch=self.epoch, path=path, exchange=exchange, shared=shared)
        if self.place:
            terms.first_slot, terms.slots = self.place.first_slot, self.place.slots
        terms.reason = obstacle or ""
        return terms

    def _give_up(self, problem: ControllerError, now: float) -> Actions:
        actions: Actions = [Dismiss(each.nonce, problem) for each in self.admitted]
        self.workers = {each.rank: each for each in self.workers.values() if not each.where}
        self._idle_since = now
        return actions + self._begin_generation()

    def _obstacle(self, now: float) -> str | None:
        """What keeps the job from the switch."""
        if not self.place:
            return "no slots are free for the job yet"
        for switch in self._needed:
            if problem := self._problems[switch]:
                return problem
        return self._detour.reason(now, can_fall_back=self._can_fall_back)

    @property
    def _needed(self) -> Collection[str]:
        """The switches that take part in summing; of several not known before all workers are there."""
        return (self.spec.switch,) if self.fabric.single else self.plan

    @property
    def _missing_in_tree(self) -> int:
        """How many workers have to come before it is known which of several switches sum."""
        return 0 if self.fabric.single else self.spec.workers - len(self.admitted)

    @property
    def _cleared(self) -> bool:
        """All cells of the job are clear, wherever it will be summed."""
        return bool(self._needed) and self._clear.issuperset(self._needed)

    def _let_in(self, worker: Worker) -> bool:
        """Whether the switches that take part let a worker in."""
        if self.fabric.single:
            return worker.rank in self._installed.get(self.spec.switch, ())
        # All of them, and all workers: a sum that goes up before it is let in only comes again later.
        everybody = {
            switch: {rank for rank in self.workers for share in does if share.members >> rank & 1}
            for switch, does in self.plan.items()
        }
        return all(self._installed.get(at, frozenset()) >= ranks for at, ranks in everybody.items())

    def _unreachable(self, worker: Worker, where: Attachment) -> UsageError | None:
        """Why there is no way for a worker's contributions from there to those of the others."""
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
        """Why the workers cannot sum without the switch; empty if they can."""
        if missing := self.spec.workers - len(self.admitted):
            return f"there is no fallback while {missing} of the workers are missing"
        without = [str(each.rank) for each in self.admitted if not each.fallback]
        return f"worker {', '.join(without)} has no fallback" if without else ""

    # Seats.

    def _seated(self, nonce: int) -> Worker | None:
        return next((each for each in self.workers.values() if each.nonce == nonce), None)

    def _neighbour(self, where: Attachment) -> Worker | None:
        """Another worker of the job that the switch could not tell from one who is there."""
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
        """The admission, and who has left before."""
        admission = pb.Admission(
            job_id=self.spec.id,
            rank=worker.rank,
            workers=self.spec.workers,
            fewest=self.spec.fewest,
            lanes=self._invitation.lanes,
        )
        actions: Actions = [Tell(worker.nonce, pb.JoinEvent(admission=admission))]
        return actions + [
            _departure(worker, rank, reason) for rank, reason in self.departed.items()
        ]


def _departure(to: Worker, rank: int, reason: str) -> Tell:
    return Tell(to.nonce, pb.JoinEvent(departure=pb.Departure(rank=rank, reason=reason)))
