"""Switches, jobs and workers: what the controller knows, and the rules for changing it.

A job has one generation of workers at a time. It begins when a worker joins a job that nobody is in:
the job's cells are cleared and its epoch changes, so that nothing of an earlier generation counts. It
ends when its last worker has left; whoever wants to join after the first has left waits for that,
because the slots of those who stayed are already in use.
"""

import contextlib
import queue
import secrets
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TypeVar

import structlog

from innet.controller import innet_pb2 as pb
from innet.controller.aggregation import AggregationSwitch, Attachment, JobKey
from innet.controller.slots import SlotAllocator
from innet.errors import AlreadyExists, ControllerError, InnetError, NotFound, UsageError
from innet.p4.artifacts import artifact
from innet.wire.frames import Address
from innet.wire.layout import MAX_WORKERS

MOST_JOBS = 256
"""Jobs on one switch, as many as its program can count apart."""

CPU_PORT = 510
"""The port that leads to the controller: a constant of the program."""

DEFAULT_SLOTS = 128
DEFAULT_LANES = 64
DEFAULT_SERVICE = Address("02:00:00:00:00:fe", "10.255.255.254")
_LAST_EPOCH = _LAST_ID = 0xFFFF
Thing = TypeVar("Thing")
_log = structlog.get_logger("innet.controller")

Event = pb.JoinEvent | InnetError | None
"""What a worker's stream carries: an event, an error that ends it, or None, which ends it."""


@dataclass(eq=False)
class Worker:
    """A worker that has joined; `where` it is attached is known from its hello packet."""

    rank: int
    nonce: int
    events: "queue.SimpleQueue[Event]" = field(default_factory=queue.SimpleQueue)
    where: Attachment | None = None


@dataclass(eq=False)
class Job:
    """A job; `ending` once a worker of the present generation has left.

    `stranded` once the switch has refused to remove what it holds of the job: its slots are then
    nobody else's, for old packets could still write to them.
    """

    name: str
    switch: "Switch"
    key: JobKey
    epoch: int
    workers: dict[int, Worker] = field(default_factory=dict)
    starting: bool = False
    ending: bool = False
    deleted: bool = False
    stranded: bool = False

    def describe(self) -> pb.Job:
        """The job as clients see it, without counters."""
        return pb.Job(
            name=self.name,
            switch=self.switch.request.name,
            id=self.key.job,
            epoch=self.epoch,
            workers=self.key.workers,
            lanes=self.switch.data_plane.lanes,
            first_slot=self.key.first_slot,
            slots=self.key.slots,
            joined=sorted(worker.rank for worker in self.workers.values() if worker.where),
        )


@dataclass(eq=False)
class Switch:
    """A switch, and what of it is in use."""

    request: pb.AddSwitchRequest
    data_plane: AggregationSwitch
    slots: SlotAllocator
    indices: set[int] = field(default_factory=set)

    def describe(self) -> pb.Switch:
        """The switch as clients see it."""
        return pb.Switch(
            name=self.request.name,
            grpc_address=self.request.grpc_address,
            device_id=self.request.device_id,
            ports=self.request.ports,
            service=self.request.service,
            lanes=self.data_plane.lanes,
            slots=self.slots.slots,
            free_slots=self.slots.free,
        )


class Registry:
    """All of the controller's state. Methods may be called from any thread; they raise InnetError."""

    def __init__(self) -> None:
        self._switches: dict[str, Switch] = {}
        self._jobs: dict[str, Job] = {}
        self._last_id = 0
        # Switches are written under the lock, so that their tables change in the state's order.
        self._changed = threading.Condition(threading.RLock())

    def add_switch(self, request: pb.AddSwitchRequest) -> pb.Switch:
        """Take charge of a switch."""
        _check_name("switch", request.name)
        if not request.ports:
            raise UsageError("which ports does the switch have? Name those that workers are at")
        if len(set(request.ports)) < len(request.ports) or max(request.ports) >= CPU_PORT:
            raise UsageError(f"ports are numbers below {CPU_PORT}, each once: {[*request.ports]}")
        if not request.HasField("service"):
            request.service.CopyFrom(pb_address(DEFAULT_SERVICE))
        service = _address(request.service)
        program = artifact(request.lanes or DEFAULT_LANES)
        with self._changed:
            if request.name in self._switches:
                raise AlreadyExists(f"there is a switch {request.name!r}")
            for name, switch in self._switches.items():
                if _same_device(switch.request, request):
                    raise AlreadyExists(f"{request.grpc_address} is the switch {name!r} already")
            data_plane = AggregationSwitch(
                request.grpc_address,
                request.device_id,
                program,
                service,
                request.ports,
                lambda nonce, where: self._hello(request.name, nonce, where),
            )
            switch = Switch(request, data_plane, SlotAllocator(program.slots))
            self._switches[request.name] = switch
            _log.info("switch added", name=request.name, address=request.grpc_address)
            return switch.describe()

    def switches(self) -> list[pb.Switch]:
        """All switches."""
        with self._changed:
            return [switch.describe() for switch in self._switches.values()]

    def create_job(self, request: pb.CreateJobRequest) -> pb.Job:
        """Reserve slots and a counter for a job."""
        _check_name("job", request.name)
        if not 1 <= request.workers <= MAX_WORKERS:
            raise UsageError(
                f"{request.workers} workers: a job on one switch has 1 to {MAX_WORKERS}, "
                "as many as the bitmap has bits"
            )
        with self._changed:
            if request.name in self._jobs:
                raise AlreadyExists(f"there is a job {request.name!r}")
            switch = _find(self._switches, request.switch, "switch")
            if len(switch.indices) == MOST_JOBS:
                raise ControllerError(f"the switch has {MOST_JOBS} jobs, no more can be counted")
            size = request.slots or min(DEFAULT_SLOTS, switch.slots.slots)
            first = switch.slots.take(size)
            index = next(each for each in range(MOST_JOBS) if each not in switch.indices)
            key = JobKey(self._new_id(), index, first, size, request.workers)
            try:
                switch.data_plane.open_job(key)
            except BaseException:
                switch.slots.give_back(first)
                raise
            switch.indices.add(index)
            # Random, so that packets from before a restart of the controller do not fit.
            job = Job(request.name, switch, key, 1 + secrets.randbelow(_LAST_EPOCH))
            self._jobs[request.name] = job
            _log.info("job created", name=job.name, switch=request.switch, slots=size)
            return job.describe()

    def jobs(self) -> list[pb.Job]:
        """All jobs, without counters."""
        with self._changed:
            return [job.describe() for job in self._jobs.values()]

    def job(self, name: str) -> pb.Job:
        """One job, with what the switch has counted for it."""
        with self._changed:
            job = _find(self._jobs, name, "job")
            description = job.describe()
        # Without the lock: nobody else is to wait for a switch that is slow to answer.
        counters = job.switch.data_plane.counters(job.key)
        description.counters.CopyFrom(pb.Counters(**counters))
        return description

    def delete_job(self, name: str) -> None:
        """End a job: its workers are told, its slots are free."""
        with self._changed:
            job = _find(self._jobs, name, "job")
            reason = f"the job {name!r} was deleted"
            # Slots that are being cleared cannot be another's yet.
            self._changed.wait_for(lambda: not job.starting)
            if job.deleted:
                raise NotFound(f"there is no job {name!r} any more")
            job.deleted = True
            for worker in list(job.workers.values()):
                worker.events.put(_departure(worker.rank, reason))
                worker.events.put(None)
                self._remove(job, worker)
            with _tolerated(job):
                job.switch.data_plane.close_job(job.key)
            if not job.stranded:
                job.switch.slots.give_back(job.key.first_slot)
                job.switch.indices.discard(job.key.index)
            del self._jobs[name]
            self._changed.notify_all()
            _log.info("job deleted", name=name)

    def join(self, name: str, rank: int, is_active: Callable[[], bool]) -> tuple[Job, Worker]:
        """Give a worker its seat; it is admitted when its hello packet arrives.

        Waits while workers of the generation before are still there, as long as `is_active`.
        """
        with self._changed:
            job = _find(self._jobs, name, "job")
            if not rank < job.key.workers:
                raise UsageError(f"rank {rank}: the job has {job.key.workers} workers, from 0 on")
            while (job.ending or job.starting) and not job.deleted and is_active():
                self._changed.wait(0.5)
            if job.deleted or not is_active():
                raise NotFound(f"there is no job {name!r} any more")
            if job.stranded:
                raise ControllerError(
                    f"the switch has kept entries of the job {name!r}: delete it, and create another"
                )
            if rank in job.workers:
                raise AlreadyExists(f"the job {name!r} has a worker {rank} already")
            worker = Worker(rank, 1 + secrets.randbelow((1 << 32) - 1))
            first = not job.workers
            job.workers[rank] = worker
            if first:
                job.starting = True
                job.epoch = job.epoch % _LAST_EPOCH + 1
        if first:
            self._start(job, worker)
        service = job.switch.request.service
        invitation = pb.Invitation(
            nonce=worker.nonce, service=service, lanes=job.switch.data_plane.lanes
        )
        worker.events.put(pb.JoinEvent(invitation=invitation))
        return job, worker

    def leave(self, job: Job, worker: Worker, reason: str) -> None:
        """A worker has gone: the others of its generation are told. May be called again."""
        with self._changed:
            if job.workers.get(worker.rank) is not worker:
                return
            self._remove(job, worker)
            job.ending = bool(job.workers)
            for other in job.workers.values():
                other.events.put(_departure(worker.rank, reason))
            worker.events.put(None)
            self._changed.notify_all()
            _log.info("worker left", job=job.name, rank=worker.rank, reason=reason)

    def close(self) -> None:
        """Let go of everything; the switches go on."""
        with self._changed:
            for job in self._jobs.values():
                job.deleted = True
                for worker in job.workers.values():
                    worker.events.put(None)
                job.workers.clear()  # they go on without us: nobody is to be dismissed
            self._changed.notify_all()
            for switch in self._switches.values():
                switch.data_plane.close()

    def _new_id(self) -> int:
        """An id for a job that no other has; an old one comes again as late as possible."""
        taken = {job.key.job for job in self._jobs.values()}
        while True:
            self._last_id = self._last_id % _LAST_ID + 1
            if self._last_id not in taken:
                return self._last_id

    def _start(self, job: Job, worker: Worker) -> None:
        """Clear a new generation's cells. Without the lock: the acknowledgements take it."""
        try:
            job.switch.data_plane.clear(job.key)
        except InnetError:
            with self._changed:
                job.workers.pop(worker.rank, None)
            raise
        finally:
            with self._changed:
                job.starting = False
                self._changed.notify_all()

    def _hello(self, switch_name: str, nonce: int, where: Attachment) -> None:
        """A worker's hello packet came out of the data plane: now it is known where it is."""
        with self._changed:
            found = [
                (job, worker)
                for job in self._jobs.values()
                for worker in job.workers.values()
                if worker.nonce == nonce and job.switch.request.name == switch_name
            ]
            for job, worker in found:
                if worker.where is None:
                    self._admit(job, worker, where)

    def _admit(self, job: Job, worker: Worker, where: Attachment) -> None:
        data_plane, key = job.switch.data_plane, job.key
        worker.where = where  # from here on there may be something to dismiss
        try:
            data_plane.admit(key, job.epoch, worker.rank, where)
            data_plane.set_members(key, _members(job))
        except InnetError as problem:
            worker.events.put(problem)
            return
        admission = pb.Admission(
            job_id=key.job,
            epoch=job.epoch,
            rank=worker.rank,
            workers=key.workers,
            lanes=data_plane.lanes,
            first_slot=key.first_slot,
            slots=key.slots,
        )
        worker.events.put(pb.JoinEvent(admission=admission))
        _log.info("worker joined", job=job.name, rank=worker.rank, port=where.port)

    def _remove(self, job: Job, worker: Worker) -> None:
        del job.workers[worker.rank]
        if worker.where is None:
            return
        data_plane = job.switch.data_plane
        with _tolerated(job):
            data_plane.set_members(job.key, _members(job))
        with _tolerated(job):
            data_plane.dismiss(job.key, job.epoch, worker.rank, worker.where)


@contextlib.contextmanager
def _tolerated(job: Job) -> Iterator[None]:
    """Who is gone is gone, whatever the switch says."""
    try:
        yield
    except InnetError as problem:
        job.stranded = True
        _log.warning("entries left in the switch", job=job.name, problem=str(problem))


def _same_device(one: pb.AddSwitchRequest, other: pb.AddSwitchRequest) -> bool:
    return (one.grpc_address, one.device_id) == (other.grpc_address, other.device_id)


def pb_address(address: Address) -> pb.Address:
    """An address as a message."""
    return pb.Address(mac=address.mac, ip=address.ip, udp_port=address.udp_port)


def _address(message: pb.Address) -> Address:
    """A message as an address. Raises UsageError."""
    address = Address(message.mac, message.ip, message.udp_port)
    try:
        complete = len(address.mac_bytes) == 6 and len(address.ip_bytes) == 4
    except ValueError:
        complete = False
    if not complete:
        raise UsageError(
            f"{address.mac!r} and {address.ip!r} are no MAC and IPv4 address: "
            f"write them as in {DEFAULT_SERVICE.mac} and {DEFAULT_SERVICE.ip}"
        )
    return address


def _members(job: Job) -> list[tuple[int, int]]:
    return [(each.rank, each.where.port) for each in job.workers.values() if each.where]


def _departure(rank: int, reason: str) -> pb.JoinEvent:
    return pb.JoinEvent(departure=pb.Departure(rank=rank, reason=reason))


def _check_name(what: str, name: str) -> None:
    if not name or len(name) > 64 or not name.isprintable():
        raise UsageError(f"{name!r} is no name for a {what}: 1 to 64 printable characters")


def _find(things: dict[str, Thing], name: str, what: str) -> Thing:
    if name not in things:
        have = ", ".join(sorted(things)) or "none"
        raise NotFound(f"there is no {what} {name!r}; there is: {have}")
    return things[name]
