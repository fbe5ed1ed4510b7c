"""Models of jobs and workers, for a controller that is driven by hand (:mod:`walked_controller`)."""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from walked_controller import World

from innet.controller.jobs.records import Attachment, Share, SlotRange
from innet.errors import InnetError
from innet.rpc import innet_pb2 as pb


class Wire:
    """A worker's stream, in the place of Stream, and its connection."""

    def __init__(self, world: World) -> None:
        self.job, self.rank, self.nonce, self.certificate = "", 0, 0, ""
        self.connection, self._world = self, world
        self.broken, self.remote, self.silent = False, True, 0.0
        self.inbox: list[pb.JoinEvent] = []
        self.over = False

    def silence(self) -> float | None:
        return None if self.broken else self.silent

    def send(self, event: pb.JoinEvent) -> None:
        if not (self.over or self._world.dead):
            self.inbox.append(event)

    def end(self, _: InnetError | None = None) -> None:
        self.over |= not self._world.dead


@dataclass(eq=False)
class JobModel:
    """A job, as its creator and its workers know it.

    It continues with `least` workers. `agreements` are those on its terms. `contributed` has the ranks
    that have contributed to an exchange in a term, and `done` its result.
    """

    name: str
    token: str
    id: int
    workers: int
    least: int
    switches: tuple[str, ...]
    agreements: dict[int, Any] = field(default_factory=dict)
    contributed: dict[tuple[int, int], set[int]] = field(default_factory=dict)
    done: dict[tuple[int, int], object] = field(default_factory=dict)


@dataclass(eq=False)
class WorkerModel:
    """A worker process, which has not finished the exchange `number`.

    It has left when it is `gone`. Only jobs that need all their workers make exchanges.
    """

    world: World
    job: JobModel
    rank: int
    where: Attachment
    fallback: bool
    wire: Wire | None = None
    nonce: int = 0
    admitted: bool = False
    gone: bool = False
    number: int = 0
    resume: Any = None
    stopped: bool = True
    owes: bool = False
    results: dict[int, object] = field(default_factory=dict)
    departed: set[int] = field(default_factory=set)

    def open(self) -> None:
        """Open a stream, for the first time or again."""
        self.wire = Wire(self.world)
        request = pb.JoinRequest(
            job=self.job.name, rank=self.rank, token=self.job.token, fallback=self.fallback,
            nonce=self.nonce,
        )  # fmt: skip
        self.say(join=request)

    def say(self, **message: Any) -> None:
        """Send a message, if there is a stream. An error ends it."""
        if not self.wire or self.wire.over or self.world.dead:
            return
        events = self.world.controller.workers
        try:
            events.hear(self.wire, pb.WorkerMessage(**message))
        except InnetError as problem:
            events.leave(self.wire, "it was refused", problem)

    def hang_up(self, *, broken: bool = False) -> None:
        """End the process."""
        self.gone = True
        if self.wire and not (self.wire.over or self.world.dead):
            self.wire.broken = broken
            self.world.controller.workers.disconnect(self.wire)

    def lose_connection(self) -> None:
        """Lose the stream because of the network, or because the controller has died."""
        wire, self.wire, self.gone = self.wire, None, self.gone or not self.admitted
        if wire and self.world.registry.members.has(wire):
            self.world.registry.members.lose_stream(wire.nonce)

    def attend(self) -> None:
        """Take in all messages."""
        while self.wire and self.wire.inbox and not self.gone:
            self._take(self.wire.inbox.pop(0))
        self.gone |= bool(self.wire and self.wire.over)

    def _take(self, event: pb.JoinEvent) -> None:
        match event.WhichOneof("event"):
            case "invitation":
                self.nonce = event.invitation.nonce
            case "admission":
                assert event.admission.job_id == self.job.id
                self.admitted = True
            case "departure":
                self.departed |= {each.rank for each in (event.departure, *event.departure.more)}
                if self.rank in self.departed:
                    self.gone = True
                elif self.job.workers - len(self.departed) < self.job.least:
                    self.hang_up()
            case "recover":
                self.stopped = True
                self.say(ready=pb.Ready(term=event.recover.term, exchange=self.number))
            case "resume":
                self._begin(event.resume)

    def _begin(self, resume: pb.Resume) -> None:
        agreed = resume.path, resume.first_slot, resume.slots, resume.exchange, resume.shared
        assert self.job.agreements.setdefault(resume.term, agreed) == agreed
        self.stopped = False
        if self.resume and self.resume.term == resume.term:
            return
        if self.job.least == self.job.workers:
            assert self.number in (resume.exchange, resume.exchange + resume.shared)
        self.resume, self.owes = resume, self.number > resume.exchange

    @property
    def exchange(self) -> int:
        """Return the exchange that it takes part in next, also a shared one whose result it has."""
        if self.resume.shared and self.number == self.resume.exchange + 1 and self.owes:
            return self.resume.exchange
        return self.number

    def contribute(self, workers: Iterable["WorkerModel"]) -> None:
        """Contribute to the exchange, and complete it if this is the last contribution."""
        job, resume = self.job, self.resume
        if self.stopped or job.least < job.workers:
            return
        if resume.path == pb.PATH_SWITCH and not self._reach_switches():
            return
        at = resume.term, self.exchange
        have = job.contributed.setdefault(at, set())
        have.add(self.rank)
        if len(have) == job.workers and at not in job.done:
            known = {
                each.results[self.exchange]
                for each in workers
                if each.job is job and self.exchange in each.results
            }
            shared = resume.shared and self.exchange == resume.exchange
            assert len(known) == shared, "a result is made anew, or a lost one is shared"
            job.done[at] = known.pop() if shared else at

    def finish(self) -> None:
        """Take the result of the exchange, if there is one."""
        job, resume = self.job, self.resume
        if self.stopped or job.least < job.workers:
            return
        at = resume.term, self.exchange
        if at not in job.done or self.rank not in job.contributed[at]:
            return
        self.owes = False
        if self.exchange == self.number:
            self.results = {self.number: job.done[at]}
            self.number += 1
        self.say(heartbeat=pb.Heartbeat(progress=pb.Progress(exchange=self.number)))

    def _reach_switches(self) -> bool:
        """Return whether the switches sum a contribution. If they do, its cells are in use."""
        here = self.world.devices[self.where.switch]
        held = here.entries.get(self.job.id)
        if not held or held.workers.get(self.rank) != self.where:
            return False
        term = self.resume.term
        slots = SlotRange(held.slot_range.index, self.resume.first_slot, self.resume.slots)
        path, shares = [here], [*here.shares(self.job.id, term, slots)]
        if not shares:
            return False
        for share in shares:
            if link := share.uplink:
                above = self.world.devices[link.parent]
                found = self._above(share, above.shares(self.job.id, term, slots))
                if not found:
                    return False
                path.append(above)
                shares.append(found)
        for each in path:
            each.use(self.job.id, term, slots)
        return True

    def _above(self, share: Share, shares: Iterable[Share]) -> Share | None:
        """Return the share of a parent's that takes in a child's sums."""
        fit = (each for each in shares if each.first_slot == share.first_slot)
        return next((each for each in fit if self.rank in each.ranks), None)
