"""Switches, jobs and workers: what the controller knows, and who is told when it changes.

The rules are elsewhere: :mod:`innet.controller.jobs` for a job's workers and epochs, and
:mod:`innet.controller.slots` for what of a switch belongs to whom. Here what happens comes in, under one
lock, and goes on to its job; what has to outlive the controller is kept before anybody hears of it; and
each switch's :class:`Supervisor` sees to it that the switch holds what its jobs want. No request waits
for a switch, but for the one that adds it.
"""

import contextlib
import itertools
import secrets
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import structlog

from innet import tls
from innet.controller import defaults, limits, views
from innet.controller import innet_pb2 as pb
from innet.controller.aggregation import AggregationSwitch
from innet.controller.entries import most_workers
from innet.controller.history import History
from innet.controller.inventory import Switch, check_links, children, silent_ports, uplinks
from innet.controller.jobs import LAST_EPOCH, Actions, Job, Tell
from innet.controller.names import Names
from innet.controller.slots import Places, take_place
from innet.controller.store import Store
from innet.controller.streams import Stream
from innet.controller.switches import Supervisor
from innet.controller.targets.choice import find
from innet.controller.tokens import check_token, new_token, token_digest
from innet.controller.trees import Fabric
from innet.controller.values import (
    Attachment,
    JobRecord,
    JobSpec,
    Place,
    SwitchRecord,
    Uplink,
    Wanted,
)
from innet.errors import (
    AlreadyExists,
    ControllerError,
    ControllerUnreachable,
    NoCapacity,
    NotFound,
    SwitchError,
    UsageError,
)

_LAST_ID = 0xFFFF
_TICKS_PER_LEASE = 10
_MOST_LISTED = 20
_LATE = 0.3  # of a lease: a heartbeat's worth
Thing = TypeVar("Thing")
_log = structlog.get_logger("innet.controller")


@dataclass(frozen=True)
class Policy:
    """What the operator has decided. `lease_s` is the workers'; a quota of 0 is none."""

    lease_s: float = defaults.WORKER_LEASE_S
    most_slots_per_job: int = 0
    most_jobs: int = 0


class Registry:
    """All of the controller's state. Methods may be called from any thread; they raise InnetError."""

    def __init__(
        self,
        store: Store,
        policy: Policy,
        identity: tls.Identity | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._store, self._policy, self._identity, self._clock = store, policy, identity, clock
        self._switches: dict[str, Switch] = {}
        self._adding: dict[str, SwitchRecord] = {}
        self._jobs: dict[str, Job] = {}
        self._kept: dict[str, JobRecord] = {}
        self._streams: dict[int, Stream] = {}  # by nonce
        self._stays: dict[int, Job] = {}  # by nonce
        self._probes: dict[int, tuple[str, Uplink]] = {}  # by nonce
        self._lock = threading.RLock()
        self._closed = threading.Event()
        # Of two controllers the one that started later is in charge of a switch.
        self._started, self._connections = time.time_ns(), itertools.count()
        self._last_id = self._last_number = 0
        self._restore()
        threading.Thread(target=self._keep_time, name="innet-leases", daemon=True).start()

    def close(self) -> None:
        """Let go of everything; switches and workers go on."""
        with self._lock:
            self._closed.set()
            for stream in self._streams.values():
                stream.end(ControllerUnreachable("the controller has been stopped"))
            self._streams.clear()
        for switch in self._switches.values():
            switch.supervisor.close()
        self._store.close()

    # Switches.

    def add_switch(self, request: pb.AddSwitchRequest) -> pb.Switch:
        """Take charge of a switch."""
        limits.check_switch(request)
        record = limits.switch_record(request)
        switch = self._make_switch(record)
        with self._being_added(record):
            switch.supervisor.connect()  # without the lock: nobody else is to wait for it
            with self._lock:
                self._check_open()
                check_links(record, self._switches)
                self._store.add_switch(record)
                self._switches[record.name] = switch
                switch.supervisor.start()
                for link in record.uplinks:  # where it floods may have changed
                    self._switches[link.parent].supervisor.wake()
        self._probe(switch)
        _log.info("switch added", name=record.name, address=record.grpc_address)
        return switch.view()

    def switches(self) -> list[pb.Switch]:
        """All switches."""
        with self._lock:
            return [switch.view() for switch in self._switches.values()]

    def switch(self, name: str) -> pb.Switch:
        """One switch, with its ports' counters as far as it can be asked."""
        with self._lock:
            switch = _find(self._switches, name, "switch")
            view = switch.view()
        with contextlib.suppress(SwitchError):
            for port, counts in switch.supervisor.switch().port_counters().items():
                view.port_counters.add(port=port, **counts)
        return view

    def remove_switch(self, name: str) -> None:
        """Let go of a switch that no job uses. It goes on as a bridge."""
        with self._lock:
            self._check_open()
            switch = _find(self._switches, name, "switch")
            if below := children(name, self._switches):
                raise ControllerError(
                    f"the switch {name!r} is a parent: remove {_listed(map(repr, below))} first"
                )
            users = [job.spec.name for job in self._jobs_of(name)]
            if users:
                raise ControllerError(
                    f"the switch {name!r} is in use: delete {_listed(map(repr, users))} first"
                )
            self._store.remove_switch(name)
            del self._switches[name]
            for link in switch.record.uplinks:
                self._switches[link.parent].supervisor.wake()
        switch.supervisor.finish()
        _log.info("switch removed", name=name)

    # Jobs.

    def create_job(self, request: pb.CreateJobRequest) -> pb.CreateJobResponse:
        """Reserve a place on a switch for a job, or a place in the line for one."""
        limits.check_job(request)
        with self._lock:
            self._check_open()
            if request.name in self._jobs:
                raise AlreadyExists(f"there is a job {request.name!r}")
            switch = _find(self._switches, request.switch, "switch")
            fabric = Fabric.below(request.switch, uplinks(self._switches))
            _check_tree(request, fabric)
            slots = self._slots_for(request, switch)
            if self._policy.most_jobs and len(self._jobs) >= self._policy.most_jobs:
                raise NoCapacity(
                    f"there are {len(self._jobs)} jobs, and no more are allowed: delete one"
                )
            place = self._place_for(request, fabric, slots)
            token = new_token()
            spec = JobSpec(
                name=request.name,
                switch=request.switch,
                id=self._new_id(),
                workers=request.workers,
                quorum=request.quorum or request.workers,
                fewest=request.fewest or request.quorum or request.workers,
                slots=slots,
                lease_s=request.lease_s or defaults.JOB_LEASE_S,
                token_digest=token_digest(token),
                number=self._last_number + 1,
                others=tuple(fabric.uplinks)[1:],
            )
            self._last_id, self._last_number = spec.id, spec.number
            # Random, so that packets from before a lost state do not fit.
            epoch = 1 + secrets.randbelow(LAST_EPOCH)
            job = Job(spec, epoch, self._invitation(switch), self._clock(), place, fabric)
            self._jobs[spec.name] = job
            for each in spec.switches:
                problem = self._switches[each].supervisor.problem
                self._commit(job, job.switch_changed(problem, self._clock(), each))
            if spec.name not in self._kept:
                self._end(job, "its state cannot be kept")
                raise ControllerError("the job was not created: its state cannot be kept")
            _log.info("job created", name=spec.name, switch=spec.switch, slots=place and slots)
            return pb.CreateJobResponse(job=self._view(job), token=token)

    def jobs(self) -> list[pb.Job]:
        """All jobs, without counters."""
        with self._lock:
            return [self._view(job) for job in self._jobs.values()]

    def job(self, name: str) -> pb.Job:
        """One job, with its workers, and with what the switch has counted as far as it can be asked."""
        with self._lock:
            job = _find(self._jobs, name, "job")
            view, now = self._view(job), self._clock()
            seated = sorted(job.workers.values(), key=lambda worker: worker.rank)
            view.members.extend(views.worker_view(each, job, now) for each in seated)
            view.tree.extend(views.tree_view(job))
            place = job.place
            counted = place and not job.fresh
            tops = [
                each.switch
                for each in view.tree
                if not each.parents and (job.plan or each.switch in job.fabric.tops)
            ] or [job.spec.switch]
            supervisors = {
                name: self._switches[name].supervisor
                for name in [*tops, *(each.switch for each in view.tree)]
            }
        if place and counted:
            # Without the lock: nobody else is to wait for a switch that is slow to answer.
            counters = _counters(supervisors, place)
            for each in view.tree:
                if each.switch in counters:
                    each.counters.CopyFrom(pb.Counters(**counters[each.switch]))
            if counters.keys() >= {*tops}:
                names = pb.Counters.DESCRIPTOR.fields_by_name
                total = {name: sum(counters[top][name] for top in tops) for name in names}
                view.counters.CopyFrom(pb.Counters(**total))
        return view

    def histories(self) -> dict[str, History]:
        """What has happened to the jobs, by name."""
        with self._lock:
            return {name: job.history.copy() for name, job in self._jobs.items()}

    def drifts(self) -> dict[str, int]:
        """How often what a switch held was found different from what was written, by name."""
        with self._lock:
            return {name: each.supervisor.drifts for name, each in self._switches.items()}

    def delete_job(self, name: str) -> None:
        """End a job: its workers are told, its slots are free."""
        with self._lock:
            self._check_open()
            self._end(_find(self._jobs, name, "job"), f"the job {name!r} was deleted")

    # Workers.

    def hear(self, stream: Stream, message: pb.WorkerMessage) -> None:
        """A worker says something."""
        kind = message.WhichOneof("message")
        if kind == "join":
            if stream.nonce:
                raise UsageError("a stream has one JoinRequest, and this is the second")
            self._join(stream, message.join)
            return
        if not stream.nonce:
            raise UsageError("a stream has to begin with a JoinRequest")
        nonce = stream.nonce
        with self._lock:
            job, now = self._stays.get(nonce), self._clock()
            if not job or self._streams.get(nonce) is not stream:
                return  # it has left meanwhile
            if kind == "heartbeat":
                limits.check_progress(message.heartbeat.progress)
                job.heartbeat(nonce, _known(message.heartbeat.progress), now)
            elif kind == "ready":
                ready = message.ready
                limits.check_ready(ready)
                self._commit(job, job.ready(nonce, ready.epoch, ready.exchange, now))
            elif kind == "trouble":
                trouble = message.trouble
                limits.check_trouble(trouble)
                self._commit(job, job.trouble(nonce, trouble.epoch, trouble.reason, now))
            else:
                raise UsageError("a worker's message is empty, or of a kind that is not known here")

    def leave(self, stream: Stream, reason: str) -> None:
        """A worker's stream has ended. May be called again."""
        with self._lock:
            stream.end()
            if self._closed.is_set() or self._streams.get(stream.nonce) is not stream:
                return
            job = self._forget(stream.nonce)
            if job:
                self._commit(job, job.leave(stream.nonce, reason, self._clock()))

    def _join(self, stream: Stream, request: pb.JoinRequest) -> None:
        limits.check_join(request)
        with self._lock:
            self._check_open()
            job, now = self._jobs.get(request.job), self._clock()
            if not job:
                raise NotFound(f"there is no job {request.job!r}")
            check_token(request.token, job.spec.token_digest, request.job)
            nonce = request.nonce or self._new_nonce()
            if request.nonce:
                actions = job.rejoin(nonce, now, fallback=request.fallback)
                if before := self._streams.get(nonce):
                    before.end(AlreadyExists("this worker has come back on another stream"))
            else:
                actions = job.join(request.rank, nonce, now, fallback=request.fallback)
            stream.job, stream.nonce = request.job, nonce
            self._streams[nonce], self._stays[nonce] = stream, job
            self._commit(job, actions)

    # What switches do: see :class:`innet.controller.switches.Listener`.

    def wanted(self, switch: str) -> list[Wanted]:
        """What a switch should hold for its jobs."""
        with self._lock:
            found = self._switches.get(switch)
            return [*found.wanted.values()] if found else []

    def up(self, switch: str) -> None:
        """A switch is as it should be."""
        self._switch_changed(switch, None)
        with self._lock:
            found = self._switches.get(switch)
        if found:
            self._probe(found)

    def down(self, switch: str, problem: str) -> None:
        """A switch cannot be used, or has forgotten what it held."""
        self._switch_changed(switch, problem)

    def cleared(self, switch: str, job: int, epoch: int) -> None:
        """The cells of a job are cleared for an epoch."""
        with self._known_job(switch, job) as known:
            if known:
                self._commit(known, known.cells_cleared(epoch, self._clock(), switch))

    def held(self, switch: str, job: int, epoch: int, ranks: frozenset[int]) -> None:
        """These workers of a job are let in, in this epoch."""
        with self._known_job(switch, job) as known:
            if known:
                self._commit(known, known.entries_held(epoch, ranks, self._clock(), switch))

    def refused(self, switch: str, job: int, epoch: int, reason: str) -> None:
        """A switch does not take what a job needs."""
        with self._known_job(switch, job) as known:
            if known:
                self._commit(known, known.entries_refused(epoch, reason, self._clock()))

    def _hello(self, switch: str, nonce: int, where: Attachment) -> None:
        """A worker's hello packet came out of a data plane: now it is known where it is."""
        with self._lock:
            if probe := self._probes.pop(nonce, None):
                self._found(*probe, where)
                return
            job = self._stays.get(nonce)
            if job and switch in job.spec.switches and not self._closed.is_set():
                self._commit(job, job.hello(nonce, where, self._clock()))

    def _probe(self, switch: Switch) -> None:
        """See where a switch's uplinks end."""
        for link in switch.record.uplinks:
            with self._lock:
                before = [
                    n for n, each in self._probes.items() if each == (switch.record.name, link)
                ]
                for nonce in before:  # it was lost
                    del self._probes[nonce]
                nonce = self._new_nonce()
                self._probes[nonce] = switch.record.name, link
            with contextlib.suppress(SwitchError):
                switch.supervisor.switch().probe(link, nonce)

    def _found(self, name: str, link: Uplink, where: Attachment) -> None:
        """A probe has come out of the data plane."""
        right = (where.switch, where.port) == (link.parent, link.parent_port)
        if switch := self._switches.get(name):
            switch.found[link.port] = "" if right else f"port {where.port} of {where.switch}"
        if not right:
            _log.warning(
                "a link is not where it was said to be", switch=name, port=link.port,
                said=f"port {link.parent_port} of {link.parent}",
                found=f"port {where.port} of {where.switch}",
            )  # fmt: skip

    def _switch_changed(self, switch: str, problem: str | None) -> None:
        with self._lock:
            for job in self._jobs_of(switch):
                self._commit(job, job.switch_changed(problem, self._clock(), switch))

    @contextlib.contextmanager
    def _known_job(self, switch: str, number: int) -> Iterator[Job | None]:
        """The job of a switch with this id, if it is still there, under the lock."""
        with self._lock:
            jobs = self._jobs_of(switch)
            yield next((job for job in jobs if job.spec.id == number), None)

    def _jobs_of(self, switch: str) -> list[Job]:
        if self._closed.is_set():
            return []
        return [job for job in self._jobs.values() if switch in job.spec.switches]

    # What time does.

    def _keep_time(self) -> None:
        period = self._policy.lease_s / _TICKS_PER_LEASE
        last = self._clock()
        while not self._closed.wait(period):
            with self._lock:
                now = self._clock()
                try:
                    self._tick(now, now - last - period)
                except Exception:  # noqa: BLE001 - whatever it is
                    # Time goes on for all other jobs.
                    _log.exception("a tick failed")
                last = now

    def _tick(self, now: float, late: float) -> None:
        for job in [] if self._closed.is_set() else list(self._jobs.values()):
            if late > self._policy.lease_s * _LATE:
                job.excuse(late)  # nobody was silent for so long: we were deaf
            self._commit(job, job.tick(now))
            if job.expired(now):
                name, lease = job.spec.name, job.spec.lease_s
                self._end(job, f"the job {name!r} had no worker for {lease:g} s")

    # Common.

    def _commit(self, job: Job, actions: Actions) -> None:
        """Keep what has changed, and then do what follows from it."""
        name, record = job.spec.name, job.record()
        before = self._kept.get(name)
        if record != before:
            try:
                self._store.save_job(record)
            except ControllerError as problem:
                # Better a job that the next controller does not know than one that stands still.
                _log.error("the state is not kept", job=name, problem=str(problem))
            else:
                self._kept[name] = record
            _log_changes(before, record)
        self._perform(actions)
        for each in job.spec.switches:
            switch, wanted = self._switches[each], job.wanted(self._clock(), each)
            if wanted != switch.wanted.get(name):
                if wanted:
                    switch.wanted[name] = wanted
                switch.supervisor.wake()

    def _perform(self, actions: Actions) -> None:
        for action in actions:
            stream = self._streams.get(action.nonce)
            if isinstance(action, Tell):
                if stream:
                    stream.tell(action.event)
            else:
                if stream:
                    stream.end(action.problem)
                self._forget(action.nonce)

    def _forget(self, nonce: int) -> Job | None:
        self._streams.pop(nonce, None)
        return self._stays.pop(nonce, None)

    def _end(self, job: Job, reason: str) -> None:
        name, switches = job.spec.name, [self._switches[each] for each in job.spec.switches]
        self._store.remove_job(name)
        self._perform(job.end(reason))
        del self._jobs[name]
        self._kept.pop(name, None)
        for switch in switches:
            if switch.wanted.pop(name, None):
                switch.supervisor.wake()
        _log.info("job ended", name=name, reason=reason)
        if job.place:
            for switch in switches:
                switch.places.give_back(job.place)
            self._give_places()

    def _give_places(self) -> None:
        """To the jobs that wait for one, in the order of their creation."""
        spoken_for: set[str] = set()
        for job in [] if self._closed.is_set() else list(self._jobs.values()):
            names = job.spec.switches
            if job.place or spoken_for & {*names}:
                continue
            try:
                place = take_place(self._places_of(names), job.spec.slots, job.spec.workers)
            except NoCapacity:
                spoken_for |= {*names}  # there it is this one's turn
                continue
            _log.info("slots for a job that has waited", job=job.spec.name, slots=place.slots)
            self._commit(job, job.place_given(place, self._clock()))

    def _places_of(self, names: Iterable[str]) -> list[Places]:
        return [self._switches[name].places for name in names]

    def _slots_for(self, request: pb.CreateJobRequest, switch: Switch) -> int:
        quota, have = self._policy.most_slots_per_job, switch.places.slots
        slots = request.slots or min(defaults.SLOTS, quota or have.slots, have.slots)
        have.check(slots)
        if quota and slots > quota:
            raise NoCapacity(f"{slots} slots: a job may have {quota} at most")
        return slots

    def _place_for(self, request: pb.CreateJobRequest, fabric: Fabric, slots: int) -> Place | None:
        """A place; None if the job has to wait for it, and is ready to."""
        names = fabric.uplinks.keys()
        waiting = [
            job for job in self._jobs.values() if not job.place and names & {*job.spec.switches}
        ]
        try:
            if waiting:
                raise NoCapacity(
                    f"{len(waiting)} jobs wait for slots of this switch already: "
                    "stand in line with --queue"
                )
            return take_place(self._places_of(names), slots, request.workers)
        except NoCapacity:
            if request.queue:
                return None
            raise

    def _make_switch(self, record: SwitchRecord) -> Switch:
        program = find(record.target).program(record.lanes, record.artifact)
        places = Places(program.slots, most_workers(Names(program.p4info)))

        def connect(ended: Callable[[], None], patient: bool) -> AggregationSwitch:
            return AggregationSwitch(
                record,
                program,
                partial(self._hello, record.name),
                self._identity,
                ended=ended,
                election=(self._started, next(self._connections)),
                patient=patient,
                silent=partial(self._silent, record),
            )

        supervisor = Supervisor(record.name, connect, self)
        return Switch(record, program, places, supervisor)

    def _silent(self, record: SwitchRecord) -> frozenset[int]:
        with self._lock:
            return silent_ports(record, self._switches)

    @contextlib.contextmanager
    def _being_added(self, record: SwitchRecord) -> Iterator[None]:
        """Nobody else adds a switch with this name or address meanwhile."""
        with self._lock:
            self._check_open()
            others = [switch.record for switch in self._switches.values()]
            for other in [*others, *self._adding.values()]:
                if other.name == record.name:
                    raise AlreadyExists(f"there is a switch {record.name!r}")
                if _same_device(other, record):
                    raise AlreadyExists(
                        f"{record.grpc_address} is the switch {other.name!r} already"
                    )
            check_links(record, self._switches)
            self._adding[record.name] = record
        try:
            yield
        finally:
            with self._lock:
                del self._adding[record.name]

    def _restore(self) -> None:
        """Go on where an earlier controller has ended."""
        state, now = self._store.load(), self._clock()
        self._last_id, self._last_number = state.last_id, state.last_number
        for each in state.switches:
            try:
                self._switches[each.name] = self._make_switch(each)
            except UsageError as problem:  # the folder of its binary is gone
                raise UsageError(f"the switch {each.name!r}: {problem}") from None
        for record in state.jobs:
            switch = self._switches[record.spec.switch]
            fabric = Fabric.of(record.spec.switches, uplinks(self._switches))
            job = Job.restored(record, self._invitation(switch), now, fabric)
            if record.place:
                for places in self._places_of(record.spec.switches):
                    places.keep(record.place, record.spec.workers)
            self._jobs[record.spec.name] = job
            self._stays.update(dict.fromkeys(job.nonces, job))
            self._commit(job, [])
        if state.switches:
            _log.info("state restored", switches=len(state.switches), jobs=len(state.jobs))
        for switch in self._switches.values():
            switch.supervisor.start()

    def _invitation(self, switch: Switch) -> pb.Invitation:
        service = views.address_view(switch.record.service)
        return pb.Invitation(
            service=service,
            lanes=switch.record.lanes,
            lease_s=self._policy.lease_s,
            unsealed=not find(switch.record.target).seals,
        )

    def _view(self, job: Job) -> pb.Job:
        lanes = self._switches[job.spec.switch].record.lanes
        return views.job_view(job, lanes, self._policy.lease_s, self._clock())

    def _new_id(self) -> int:
        """An id for a job that no other has; an old one comes again as late as possible."""
        taken = {job.spec.id for job in self._jobs.values()}
        if len(taken) == _LAST_ID:
            raise NoCapacity(f"there are {len(taken)} jobs, as many as can be told apart")
        later = itertools.chain(range(self._last_id + 1, _LAST_ID + 1), range(1, _LAST_ID + 1))
        return next(each for each in later if each not in taken)

    def _new_nonce(self) -> int:
        while True:
            nonce = 1 + secrets.randbelow((1 << 32) - 1)
            if nonce not in self._stays and nonce not in self._probes:
                return nonce

    def _check_open(self) -> None:
        if self._closed.is_set():
            raise ControllerUnreachable("the controller has been stopped")


def _same_device(one: SwitchRecord, other: SwitchRecord) -> bool:
    return (one.grpc_address, one.device_id) == (other.grpc_address, other.device_id)


def _check_tree(request: pb.CreateJobRequest, fabric: Fabric) -> None:
    """Several switches sum only all workers' contributions: none of them sees who is there in time."""
    fewest = request.fewest or request.quorum or request.workers
    if not fabric.single and fewest < request.workers:
        raise UsageError(
            f"{request.switch!r} has switches below it, and such a job needs all of its workers: "
            "leave the quorum and --fewest away, or create the job on one of the lowest switches"
        )


def _counters(supervisors: dict[str, Supervisor], place: Place) -> dict[str, dict[str, int]]:
    """What switches have counted for a job, as far as they can be asked."""
    found = {}
    for name, supervisor in supervisors.items():
        with contextlib.suppress(SwitchError):
            found[name] = supervisor.switch().counters(place)
    return found


def _find(things: dict[str, Thing], name: str, what: str) -> Thing:
    if name not in things:
        limits.check_name(what, name)
        raise NotFound(f"there is no {what} {name!r}; there is: {_listed(things) or 'none'}")
    return things[name]


def _listed(names: Iterable[str]) -> str:
    """Names in order, as many as fit an error message."""
    order = sorted(names)
    more = f" and {len(order) - _MOST_LISTED} more" if len(order) > _MOST_LISTED else ""
    return ", ".join(order[:_MOST_LISTED]) + more


def _known(progress: pb.Progress) -> pb.Progress:
    """What a worker says of itself, without the rest of its message and what is not known here."""
    kept = pb.Progress()
    kept.CopyFrom(progress)
    kept.DiscardUnknownFields()  # type: ignore[attr-defined]
    return kept


def _log_changes(before: JobRecord | None, after: JobRecord) -> None:
    name = after.spec.name
    were = {each.nonce: each for each in before.workers} if before else {}
    for each in after.workers:
        if each.where and (each.nonce not in were or not were[each.nonce].where):
            _log.info("worker joined", job=name, rank=each.rank, port=each.where.port)
    if not before:
        return
    for rank, reason in after.departed:
        if rank not in dict(before.departed):
            _log.info("worker left", job=name, rank=rank, reason=reason)
    if after.terms and after.terms != before.terms:
        terms = pb.Resume.FromString(after.terms)
        _log.info(
            "epoch",
            job=name,
            epoch=terms.epoch,
            path=views.PATHS[terms.path],
            exchange=terms.exchange,
            shared=terms.shared,
            reason=terms.reason,
        )
