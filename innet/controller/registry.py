"""All switches, jobs and workers, and the events that change them.

The rules are elsewhere: :mod:`innet.controller.jobs` for a job's workers and terms, and
:mod:`innet.controller.slots` for the allocation of a switch. The registry takes every event under
one lock and passes it to its job. It stores every change before anybody hears of it. Each switch's
:class:`Supervisor` makes the switch hold its jobs' entries. Requests wait for a switch only
without the lock, so a slow switch delays nobody else.
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

from innet.controller import defaults, messages, validation
from innet.controller.aggregation import AggregationSwitch
from innet.controller.election import VACANT_FOR_S, Candidate, Id
from innet.controller.entries import most_workers
from innet.controller.history import History
from innet.controller.inventory import (
    Switch,
    check_links,
    children,
    own_addresses,
    silent_ports,
    uplinks,
)
from innet.controller.jobs import LAST_TERM, Actions, Job, Tell
from innet.controller.names import Names
from innet.controller.ports import with_ports
from innet.controller.presence import Presence
from innet.controller.records import (
    Attachment,
    JobRecord,
    JobSpec,
    SlotRange,
    SwitchRecord,
    Uplink,
    Wanted,
)
from innet.controller.slot_queue import ahead, turns
from innet.controller.slots import SwitchAllocator, allocate
from innet.controller.stations import Station, Stations, joined
from innet.controller.store import Store
from innet.controller.streams import Stream
from innet.controller.switches import Supervisor
from innet.controller.targets.choice import find
from innet.controller.trees import Fabric
from innet.controller.waits import Waits
from innet.errors import (
    AlreadyExists,
    ControllerError,
    ControllerUnreachable,
    NoCapacity,
    NotFound,
    SwitchError,
    UsageError,
)
from innet.rpc import innet_pb2 as pb
from innet.rpc import tls
from innet.rpc.tokens import check_token, digest_for, new_token, token_digest
from innet.rpc.words import PATHS

_LAST_ID = 0xFFFF
_TICKS_PER_LEASE, _LONGEST_TICK = 10, 0.5
_MOST_LISTED = 20
_PROBED_WITHIN = 2.0  # seconds to wait for an uplink's probe
_LATE = 0.3  # of a lease
Thing = TypeVar("Thing")
_log = structlog.get_logger("innet.controller")


@dataclass(frozen=True)
class Policy:
    """The operator's policy. `lease_s` is the workers' lease; a quota of 0 means no limit."""

    lease_s: float = defaults.WORKER_LEASE_S
    most_slots_per_job: int = 0
    most_jobs: int = 0


class Registry:
    """All of the controller's state. Any thread may call its methods, which raise InnetError."""

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
        self._presence = Presence(policy.lease_s, self._streams)
        self._waits = Waits()
        self._probes: dict[int, tuple[str, Uplink]] = {}  # by nonce
        self._stations = Stations()
        self._lock = threading.RLock()
        self._probed = threading.Condition(self._lock)  # a probe has come out
        self._closed = threading.Event()
        # Of two controllers the one that started later is in charge of a switch.
        self._started = time.time_ns()
        self._last_id = self._last_number = 0
        self._restore()
        threading.Thread(target=self._keep_time, name="innet-leases", daemon=True).start()

    def close(self) -> None:
        """Disconnect from all switches and workers, which continue."""
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
        validation.check_switch(request)
        record = validation.switch_record(request)
        switch = self._make_switch(record)
        with self._being_added(record):
            switch.supervisor.connect()  # without the lock, so that nobody else waits for it
            with self._lock:
                self._check_open()
                check_links(record, self._switches)
                self._store.add_switch(record)
                self._switches[record.name] = switch
                switch.supervisor.start()
                for link in record.uplinks:  # the parent's flood group may have changed
                    self._switches[link.parent].supervisor.wake()
        self._probe(switch)
        _log.info("switch added", name=record.name, address=record.grpc_address)
        with self._lock:
            self._probed.wait_for(lambda: switch.probed, _PROBED_WITHIN)
            return switch.view()

    def switches(self) -> list[pb.Switch]:
        """Return all switches."""
        with self._lock:
            return [switch.view() for switch in self._switches.values()]

    def switch(self, name: str) -> pb.Switch:
        """Return one switch, with its ports' counters if it answers."""
        with self._lock:
            switch = _find(self._switches, name, "switch")
            view = switch.view()
        with contextlib.suppress(SwitchError):
            for port, counts in switch.supervisor.switch().port_counters().items():
                view.port_counters.add(port=port, **counts)
        return view

    def set_switch_ports(self, request: pb.SetSwitchPortsRequest) -> pb.Switch:
        """Give a switch other ports. Its jobs continue."""
        with self._lock:
            switch = _find(self._switches, request.name, "switch")
            self._with_ports(switch, request)
        # Without the lock, so that nobody else waits for a slow switch.
        switch.supervisor.switch().check_ports(request.ports)
        with self._lock:
            self._check_open()
            switch = _find(self._switches, request.name, "switch")
            record = self._with_ports(switch, request)
            self._store.set_ports(record)
            switch.record = record
            switch.supervisor.wake()
            _log.info("ports changed", switch=record.name, ports=record.ports)
            return switch.view()

    def _with_ports(self, switch: Switch, request: pb.SetSwitchPortsRequest) -> SwitchRecord:
        jobs = self._jobs_of(request.name)
        return with_ports(switch.record, request.ports, self._switches, jobs)

    def remove_switch(self, name: str) -> None:
        """Release a switch that no job uses. It stays a bridge."""
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
        """Reserve slots for a job, or a position in the waiting line."""
        validation.check_job(request)
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
            slot_range = self._slots_or_wait(request, fabric, slots)
            token = "" if request.token_digests else new_token()
            spec = JobSpec(
                name=request.name,
                switch=request.switch,
                id=self._new_id(),
                workers=request.workers,
                quorum=request.quorum or request.workers,
                min_workers=request.min_workers or request.quorum or request.workers,
                slots=slots,
                lease_s=request.lease_s or defaults.JOB_LEASE_S,
                token_digest=b"".join(request.token_digests) or token_digest(token),
                number=self._last_number + 1,
                others=tuple(fabric.uplinks)[1:],
            )
            self._last_id, self._last_number = spec.id, spec.number
            # Random, so that packets from before a lost state do not fit.
            term = 1 + secrets.randbelow(LAST_TERM)
            job = Job(spec, term, self._invitation(switch), self._clock(), slot_range, fabric)
            self._jobs[spec.name] = job
            for each in spec.switches:
                problem = self._switches[each].supervisor.problem
                self._commit(job, job.switch_changed(problem, self._clock(), each))
            if spec.name not in self._kept:
                self._end(job, "its state cannot be kept")
                raise ControllerError("the job was not created: its state cannot be kept")
            _log.info("job created", name=spec.name, switch=spec.switch, slots=slot_range and slots)
            return pb.CreateJobResponse(job=self._view(job), token=token)

    def jobs(self) -> list[pb.Job]:
        """Return all jobs, without counters."""
        with self._lock:
            return [self._view(job) for job in self._jobs.values()]

    def job(self, name: str) -> pb.Job:
        """Return one job, with its workers, and with the counters of switches that answer."""
        with self._lock:
            job = _find(self._jobs, name, "job")
            view, now = self._view(job), self._clock()
            for _, worker in sorted(job.workers.items()):
                silence = self._presence.silence(worker.nonce)
                view.members.append(messages.worker_view(worker, job, now, silence))
            view.departures.extend(messages.departures(job, now))
            view.tree.extend(messages.tree_view(job))
            slot_range = job.slot_range
            counted = slot_range and not job.fresh
            tops = [
                each.switch
                for each in view.tree
                if not each.parents and (job.plan or each.switch in job.fabric.tops)
            ] or [job.spec.switch]
            supervisors = {
                name: self._switches[name].supervisor
                for name in [*tops, *(each.switch for each in view.tree)]
            }
        if slot_range and counted:
            # Without the lock, so that nobody else waits for a slow switch.
            counters = _counters(supervisors, slot_range)
            for each in view.tree:
                if each.switch in counters:
                    each.counters.CopyFrom(pb.Counters(**counters[each.switch]))
            if counters.keys() >= {*tops}:
                names = pb.Counters.DESCRIPTOR.fields_by_name
                total = {name: sum(counters[top][name] for top in tops) for name in names}
                view.counters.CopyFrom(pb.Counters(**total))
        return view

    def histories(self) -> dict[str, History]:
        """Return the jobs' histories, by name."""
        with self._lock:
            return {name: job.history.copy() for name, job in self._jobs.items()}

    def drifts(self) -> dict[str, int]:
        """Return the number of differences found between entries written and entries read, by switch."""
        with self._lock:
            return {name: each.supervisor.drifts for name, each in self._switches.items()}

    def delete_job(self, name: str) -> None:
        """End a job: notify its workers and free its slots."""
        with self._lock:
            self._check_open()
            self._end(_find(self._jobs, name, "job"), f"the job {name!r} was deleted")

    # Workers.

    def hear(self, stream: Stream, message: pb.WorkerMessage) -> None:
        """Take a message from a worker."""
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
                validation.check_progress(message.heartbeat.progress)
                job.heartbeat(nonce, _known(message.heartbeat.progress), now)
            elif kind == "ready":
                ready = message.ready
                validation.check_ready(ready)
                self._commit(job, job.ready(nonce, ready.term, ready.exchange, now))
            elif kind == "trouble":
                trouble = message.trouble
                validation.check_trouble(trouble)
                self._commit(job, job.trouble(nonce, trouble.term, trouble.reason, now))
            else:
                raise UsageError("a worker's message is empty, or of a kind that is not known here")

    def check_join(self, request: pb.CheckJoinRequest) -> pb.CheckJoinResponse:
        """Return what a worker needs to join, or raise the error that joining would raise."""
        with self._lock:
            job = self._job_for(request)
            job.check_rank(request.rank)
            service = self._switches[job.spec.switch].record.service
            taken = request.rank in job.workers
            return pb.CheckJoinResponse(service=messages.address_view(service), taken=taken)

    def leave(self, stream: Stream, reason: str) -> None:
        """Remove a worker, and end its stream. May be called again."""
        with self._lock:
            stream.end()
            if self._closed.is_set() or self._streams.get(stream.nonce) is not stream:
                return
            job = self._forget(stream.nonce)
            if job:
                self._commit(job, job.leave(stream.nonce, reason, self._clock()))

    def disconnect(self, stream: Stream) -> None:
        """Note that a worker's stream has ended: with its process, or because the network failed."""
        with self._lock:
            if reason := self._presence.just_ended(stream, self._clock()):
                self.leave(stream, reason)
            elif self._streams.get(stream.nonce) is stream and not self._closed.is_set():
                del self._streams[stream.nonce]
                self._presence.disconnected(stream.nonce)
                _log.warning("a worker's connection is lost, and may come back", job=stream.job)
            stream.end()

    def _job_for(self, request: pb.JoinRequest | pb.CheckJoinRequest) -> Job:
        """Return the job that a worker asks for, if it has the job's token."""
        validation.check_join(request)
        self._check_open()
        job = self._jobs.get(request.job)
        if not job:
            raise NotFound(f"there is no job {request.job!r}")
        digest = digest_for(request.rank, job.spec.token_digest)
        check_token(request.token, digest, request.job)
        return job

    def _join(self, stream: Stream, request: pb.JoinRequest) -> None:
        with self._lock:
            job, now = self._job_for(request), self._clock()
            nonce = request.nonce or self._new_nonce()
            if request.nonce:
                actions = job.rejoin(nonce, now, fallback=request.fallback)
                if before := self._streams.get(nonce):
                    before.end(AlreadyExists("this worker has come back on another stream"))
            else:
                unheard = self._presence.unheard()
                actions = job.join(
                    request.rank, nonce, now, fallback=request.fallback, unheard=unheard
                )
            stream.job, stream.nonce = request.job, nonce
            self._streams[nonce], self._stays[nonce] = stream, job
            self._commit(job, [*actions, *self._waits.told_again(job, nonce)])

    # Events from switches: see :class:`innet.controller.switches.Listener`.

    def wanted(self, switch: str) -> list[Wanted]:
        """Return the jobs' entries that a switch should hold."""
        with self._lock:
            found = self._switches.get(switch)
            return [*found.wanted.values()] if found else []

    def up(self, switch: str) -> None:
        """Note that a switch is ready for use."""
        self._switch_changed(switch, None)
        with self._lock:
            found = self._switches.get(switch)
        if found:
            self._probe(found)

    def down(self, switch: str, problem: str) -> None:
        """Note that a switch cannot be used, or has lost its entries."""
        self._switch_changed(switch, problem)

    def cleared(self, switch: str, job: int, term: int) -> None:
        """Note that a switch has cleared a job's cells for a term."""
        with self._known_job(switch, job) as known:
            if known:
                self._commit(known, known.cells_cleared(term, self._clock(), switch))

    def held(self, switch: str, job: int, term: int, ranks: frozenset[int]) -> None:
        """Note that a switch admits these workers of a job in this term."""
        with self._known_job(switch, job) as known:
            if known:
                self._commit(known, known.entries_held(term, ranks, self._clock(), switch))

    def refused(self, switch: str, job: int, term: int, reason: str) -> None:
        """Note that a switch has refused a job's entries."""
        with self._known_job(switch, job) as known:
            if known:
                self._commit(known, known.entries_refused(term, reason, self._clock()))

    def _hello(self, switch: str, nonce: int, where: Attachment) -> None:
        """Take a hello that came out of a data plane: it tells where a worker, or a probe, came in."""
        with self._lock:
            if probe := self._probes.pop(nonce, None):
                self._found(*probe, where)
                return
            job = self._stays.get(nonce)
            if job and switch in job.spec.switches and not self._closed.is_set():
                self._commit(job, self._place(job, nonce, where))

    def _place(self, job: Job, nonce: int, where: Attachment) -> Actions:
        """Attach a worker where its hello came in, unless its address is another host's."""
        if job.is_at(nonce, where):
            return job.hello(nonce, where, self._clock())
        area = joined(where.switch, uplinks(self._switches))
        others = [
            Station(each.nonce, each.where)
            for other in self._jobs.values()
            for each in other.admitted
            if each.where and each.where.switch in area
        ]
        try:
            self._stations.check(nonce, where, others, own_addresses(area, self._switches))
        except UsageError as problem:
            _log.warning(
                "a worker's address is refused", job=job.spec.name, port=where.port,
                switch=where.switch, address=where.address.mac, why=str(problem),
            )  # fmt: skip
            return job.refuse(nonce, problem, self._clock())
        return job.hello(nonce, where, self._clock())

    def _probe(self, switch: Switch) -> None:
        """Send a probe out of each of a switch's uplinks."""
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
        """Note where a probe has come out of the data plane."""
        right = (where.switch, where.port) == (link.parent, link.parent_port)
        if switch := self._switches.get(name):
            switch.found[link.port] = "" if right else f"port {where.port} of {where.switch}"
            self._probed.notify_all()
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
        """Yield the job of a switch with this id, or None, under the lock."""
        with self._lock:
            jobs = self._jobs_of(switch)
            yield next((job for job in jobs if job.spec.id == number), None)

    def _jobs_of(self, switch: str) -> list[Job]:
        if self._closed.is_set():
            return []
        return [job for job in self._jobs.values() if switch in job.spec.switches]

    # Events of time.

    def _keep_time(self) -> None:
        period = min(self._policy.lease_s / _TICKS_PER_LEASE, _LONGEST_TICK)
        last = self._clock()
        while not self._closed.wait(period):
            with self._lock:
                now = self._clock()
                try:
                    self._tick(now, now - last - period)
                except Exception:  # noqa: BLE001 - whatever it is
                    # Time continues for all other jobs.
                    _log.exception("a tick failed")
                last = now

    def _tick(self, now: float, late: float) -> None:
        if self._closed.is_set():
            return
        for nonce, why in self._presence.given_up(self._stays, now).items():
            if job := self._stays.get(nonce):
                self._commit(job, job.expel(nonce, why, now))
        for job in list(self._jobs.values()):
            if late > self._policy.lease_s * _LATE:
                job.excuse(late)  # not their silence: the controller stood still
            self._commit(job, [*job.tick(now), *self._waits.follow(job, now)])
            if job.expired(now):
                name, lease = job.spec.name, job.spec.lease_s
                self._end(job, f"the job {name!r} had no worker for {lease:g} s")
        self._grant_slots()  # a worker that has come or left may have changed the order

    # Common.

    def _commit(self, job: Job, actions: Actions) -> None:
        """Store the changes of a job, and then carry out its actions."""
        name, record = job.spec.name, job.record()
        before = self._kept.get(name)
        if record != before:
            try:
                self._store.save_job(record)
            except ControllerError as problem:
                # A job that the next controller does not know is better than one that stands still.
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
        self._stations.forget(nonce)
        return self._stays.pop(nonce, None)

    def _end(self, job: Job, reason: str) -> None:
        name, switches = job.spec.name, [self._switches[each] for each in job.spec.switches]
        self._store.remove_job(name)
        self._perform(job.end(reason))
        del self._jobs[name]
        self._kept.pop(name, None)
        self._waits.forget(name)
        for switch in switches:
            if switch.wanted.pop(name, None):
                switch.supervisor.wake()
        _log.info("job ended", name=name, reason=reason)
        if job.slot_range:
            for switch in switches:
                switch.allocator.release(job.slot_range)
            self._grant_slots()

    def _grant_slots(self) -> None:
        """Give slots to waiting jobs, as far as slots are free."""

        def take(job: Job) -> SlotRange:
            return allocate(
                self._allocators_of(job.spec.switches), job.spec.slots, job.spec.workers
            )

        for job, slot_range in turns([] if self._closed.is_set() else [*self._jobs.values()], take):
            _log.info("slots for a job that has waited", job=job.spec.name, slots=slot_range.slots)
            self._commit(job, job.slots_granted(slot_range, self._clock()))

    def _allocators_of(self, names: Iterable[str]) -> list[SwitchAllocator]:
        return [self._switches[name].allocator for name in names]

    def _slots_for(self, request: pb.CreateJobRequest, switch: Switch) -> int:
        quota, have = self._policy.most_slots_per_job, switch.allocator.slots
        slots = request.slots or min(defaults.SLOTS, quota or have.slots, have.slots)
        have.check(slots)
        if quota and slots > quota:
            raise NoCapacity(f"{slots} slots: a job may have {quota} at most")
        return slots

    def _slots_or_wait(
        self, request: pb.CreateJobRequest, fabric: Fabric, slots: int
    ) -> SlotRange | None:
        """Return the job's slots, or None if they are taken and the job is willing to wait."""
        names = fabric.uplinks.keys()
        waiting = ahead(self._jobs.values(), names)
        try:
            if waiting:
                raise NoCapacity(
                    f"{len(waiting)} jobs whose workers are all there wait for slots of this switch "
                    "already: stand in line with --queue"
                )
            return allocate(self._allocators_of(names), slots, request.workers)
        except NoCapacity:
            if request.queue:
                return None
            raise

    def _make_switch(self, record: SwitchRecord) -> Switch:
        program = find(record.target).program(record.lanes, record.artifact)
        allocator = SwitchAllocator(program.slots, most_workers(Names(program.p4info)))

        candidate = Candidate(self._started)

        def connect(ended: Callable[[], None], patient: bool) -> AggregationSwitch:
            def connect_as(election: Id) -> AggregationSwitch:
                return AggregationSwitch(
                    record,
                    program,
                    partial(self._hello, record.name),
                    self._identity,
                    ended=ended,
                    election=election,
                    patient=patient,
                    ports=lambda: made.record.ports,
                    silent=partial(self._silent, record),
                )

            # A person who adds a switch should not wait for a controller that is gone.
            return candidate.take_charge(connect_as, 0.0 if patient else VACANT_FOR_S)

        made = Switch(record, program, allocator, Supervisor(record.name, connect, self))
        return made

    def _silent(self, record: SwitchRecord) -> frozenset[int]:
        with self._lock:
            return silent_ports(record, self._switches)

    @contextlib.contextmanager
    def _being_added(self, record: SwitchRecord) -> Iterator[None]:
        """Prevent others from adding a switch with this name or address meanwhile."""
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
        """Restore the state that an earlier controller left."""
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
            if record.slot_range:
                for allocator in self._allocators_of(record.spec.switches):
                    allocator.reserve(record.slot_range, record.spec.workers)
            self._jobs[record.spec.name] = job
            self._stays.update(dict.fromkeys(job.nonces, job))
            self._commit(job, [])
        if state.switches:
            _log.info("state restored", switches=len(state.switches), jobs=len(state.jobs))
        self._presence.given_up(self._stays, now)  # from now on their silence counts
        for switch in self._switches.values():
            switch.supervisor.start()

    def _invitation(self, switch: Switch) -> pb.Invitation:
        service = messages.address_view(switch.record.service)
        return pb.Invitation(
            service=service,
            lanes=switch.record.lanes,
            lease_s=self._policy.lease_s,
            unsealed=not find(switch.record.target).seals,
        )

    def _view(self, job: Job) -> pb.Job:
        lanes = self._switches[job.spec.switch].record.lanes
        now = self._clock()
        view = messages.job_view(job, lanes, self._policy.lease_s, now)
        wait = self._waits.of(job)
        view.waiting_for.extend(sorted(wait.ranks))
        view.waiting_s, view.outage = wait.seconds(now), self._presence.outage
        return view

    def _new_id(self) -> int:
        """Return an id that no job has. A used id comes again as late as possible."""
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
    """Raise UsageError if a job on several switches could do without a worker.

    Several switches can sum only the contributions of all workers, because no switch knows in time
    which workers are there.
    """
    min_workers = request.min_workers or request.quorum or request.workers
    if not fabric.single and min_workers < request.workers:
        raise UsageError(
            f"{request.switch!r} has switches below it, and such a job needs all of its workers: "
            "leave the quorum and --min-workers away, or create the job on one of the lowest switches"
        )


def _counters(
    supervisors: dict[str, Supervisor], slot_range: SlotRange
) -> dict[str, dict[str, int]]:
    """Return what switches have counted for a job, leaving out those that do not answer."""
    found = {}
    for name, supervisor in supervisors.items():
        with contextlib.suppress(SwitchError):
            found[name] = supervisor.switch().counters(slot_range)
    return found


def _find(things: dict[str, Thing], name: str, what: str) -> Thing:
    if name not in things:
        validation.check_name(what, name)
        raise NotFound(f"there is no {what} {name!r}; there is: {_listed(things) or 'none'}")
    return things[name]


def _listed(names: Iterable[str]) -> str:
    """Return names in order, as many as fit an error message."""
    order = sorted(names)
    more = f" and {len(order) - _MOST_LISTED} more" if len(order) > _MOST_LISTED else ""
    return ", ".join(order[:_MOST_LISTED]) + more


def _known(progress: pb.Progress) -> pb.Progress:
    """Return a worker's progress without the rest of its message, and without unknown fields."""
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
    if after.agreement and after.agreement != before.agreement:
        agreement = pb.Resume.FromString(after.agreement)
        _log.info(
            "term",
            job=name,
            term=agreement.term,
            path=PATHS[agreement.path],
            exchange=agreement.exchange,
            shared=agreement.shared,
            reason=agreement.reason,
        )
