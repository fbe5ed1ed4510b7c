"""What rules are about: a job as a whole, one of its workers, its switches, a port of its switch."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from innet.controller import innet_pb2 as pb
from innet.observe.sample import PORT_COUNTERS, View

STALLED_S = 2.0
"""So long without a result, and a worker counts as held up; retransmissions take 1 s at most."""

SILENT_S = 2.0
"""So long without an answer, and a worker counts as cut off: the switch answers every repetition."""

_FEW_PACKETS = 100
_LOSS_SHARE = 0.01


@dataclass(frozen=True)
class Stall:
    """A worker that is held up, and where; `missing` are the ranks whose contributions lack."""

    rank: int
    progress: pb.Progress
    missing: frozenset[int]

    @property
    def told(self) -> bool:
        """Whether a switch has said who is missing: then this worker is not."""
        heard = self.progress.silent_s < SILENT_S
        return heard and not self.progress.missing >> self.rank & 1

    def __str__(self) -> str:
        at = self.progress
        where = f", in slot {at.slot} with sequence number {at.sequence}" if at.sequence else ""
        return (
            f"worker {self.rank} has waited {at.stuck_s:.1f} s for chunk {at.chunk} of {at.chunks} "
            f"in exchange {at.exchange}{where}"
        )


@dataclass(frozen=True)
class JobCase:
    """A job, seen twice."""

    view: View

    @property
    def job(self) -> pb.Job:
        """The job, as it is now."""
        return self.view.now.job

    @property
    def before(self) -> pb.Job:
        """The job, as it was."""
        return self.view.before.job

    @property
    def switch(self) -> pb.Switch:
        """Its switch, as it is now."""
        return self.view.now.switch

    @property
    def subject(self) -> str:
        """Who findings are about."""
        return f"job {self.job.name}"

    @cached_property
    def workers(self) -> tuple["WorkerCase", ...]:
        """A case for every rank of the job."""
        return tuple(WorkerCase(self, rank) for rank in range(self.job.workers))

    @cached_property
    def present(self) -> tuple["WorkerCase", ...]:
        """Those that have joined."""
        return tuple(worker for worker in self.workers if worker.joined)

    @cached_property
    def busy(self) -> tuple["WorkerCase", ...]:
        """Those that are in an exchange."""
        return tuple(worker for worker in self.present if worker.progress.busy)

    @cached_property
    def unheard(self) -> tuple["WorkerCase", ...]:
        """Those that the switch does not answer."""
        return tuple(worker for worker in self.busy if worker.hears_nothing)

    @property
    def switch_silent(self) -> bool:
        """Whether the switch answers nobody; of a single worker it could be the link."""
        return len(self.unheard) == len(self.busy) >= min(2, self.job.workers)

    @cached_property
    def switches(self) -> tuple["SwitchCase", ...]:
        """A case for every switch of the job's tree that has another above it."""
        return tuple(SwitchCase(self, each.switch) for each in self.job.tree if each.parents)

    @cached_property
    def unheeded(self) -> frozenset[int]:
        """The ranks below a switch that gets no answer from above: they have done their part."""
        return frozenset().union(*(each.below for each in self.switches if each.unheeded))

    @property
    def lossy(self) -> tuple["WorkerCase", ...]:
        """Those that repeat more than they should."""
        return tuple(worker for worker in self.present if worker.lossy)

    @property
    def loss_everywhere(self) -> bool:
        """Whether loss is the switch's or everybody's, not one worker's."""
        return len(self.lossy) == len(self.present) > 1

    @property
    def stuck(self) -> tuple["WorkerCase", ...]:
        """Those that are held up."""
        return tuple(worker for worker in self.busy if worker.progress.stuck_s >= STALLED_S)

    @cached_property
    def stalls(self) -> tuple[Stall, ...]:
        """Who is held up, and by whom."""
        return tuple(
            Stall(worker.rank, worker.progress, self._missing(worker)) for worker in self.stuck
        )

    def _missing(self, stalled: "WorkerCase") -> frozenset[int]:
        """By what the switch said; on the fallback path nobody does, but not all are in there."""
        at = stalled.progress
        if self.job.path == pb.PATH_FALLBACK:
            return frozenset(
                other.rank
                for other in self.workers
                if not (other.joined and other.progress.busy)
                or other.progress.exchange < at.exchange
            )
        told = not at.missing >> stalled.rank & 1  # who has an answer has contributed
        if stalled.hears_nothing or not told:
            return frozenset()
        lacking = {rank for rank in range(self.job.workers) if at.missing >> rank & 1}
        # From above a rack's sum is there or not: in the rack they know better who has come.
        there = {rank for rank in lacking if self.job.tree and self.workers[rank].is_in(at)}
        return frozenset(lacking - there - self.unheeded)


@dataclass(frozen=True)
class WorkerCase:
    """One worker of a job, which may not be there."""

    whole: JobCase
    rank: int

    @property
    def subject(self) -> str:
        """Who findings are about."""
        return f"worker {self.rank}"

    @cached_property
    def member(self) -> pb.WorkerStatus:
        """What the controller knows of it; empty if it is not there."""
        return self.whole.view.now.members.get(self.rank, pb.WorkerStatus())

    @property
    def progress(self) -> pb.Progress:
        """What it said last."""
        return self.member.progress

    @property
    def invited(self) -> bool:
        """Whether the controller has a stream to it."""
        return self.rank in self.whole.view.now.members

    @property
    def joined(self) -> bool:
        """Whether the controller knows where it is attached, and so has let it in."""
        return self.invited and self.member.HasField("address")

    @property
    def has_been_there(self) -> bool:
        """Whether it was there, and is not now; told by what cannot have been without it."""
        job = self.whole.job
        went_on = any(worker.progress.exchange for worker in self.whole.present)
        return self.rank in self.whole.view.before.members or (
            job.quorum == job.workers and went_on
        )

    @cached_property
    def stalls(self) -> tuple[Stall, ...]:
        """Those that it holds up."""
        return tuple(stall for stall in self.whole.stalls if self.rank in stall.missing)

    @property
    def blocks(self) -> bool:
        """Whether others cannot go on for it: an epoch begins when all have come."""
        lacking = len(self.whole.present) < self.whole.job.quorum
        needed = lacking or self.whole.job.path == pb.PATH_NONE
        return bool(self.stalls) or (not self.joined and needed)

    @property
    def waited_for(self) -> int:
        """The number of the exchange in which others wait for it."""
        return max(stall.progress.exchange for stall in self.stalls)

    @property
    def hears_nothing(self) -> bool:
        """Whether the switch owes it an answer for too long."""
        return self.progress.busy and self.progress.silent_s >= SILENT_S

    @property
    def unheeded(self) -> bool:
        """Whether the silence is that of a switch above its own."""
        return self.rank in self.whole.unheeded

    @property
    def lossy(self) -> bool:
        """Whether it repeats more than it should, while it gets on."""
        sent = self.grown("packets_sent")
        return (
            self.grown("chunks_done") > 0
            and sent >= _FEW_PACKETS
            and self.grown("retransmissions") >= _LOSS_SHARE * sent
        )

    def grown(self, counter: str) -> int:
        """By how much a counter of the worker's own has grown."""
        return self.whole.view.growth(self.rank, counter)

    def at_port(self, counter: str) -> int:
        """By how much one of its port's counters has grown."""
        seen = self.joined and self.at == self.whole.job.switch
        return self.whole.view.port_growth(self.member.port, counter) if seen else 0

    def is_in(self, at: pb.Progress) -> bool:
        """Whether it has been told that its contribution to a chunk is in, at its own switch."""
        mine = self.progress
        same = (mine.exchange, mine.chunk, mine.sequence) == (at.exchange, at.chunk, at.sequence)
        return mine.busy and same and not self.hears_nothing and not mine.missing >> self.rank & 1

    @property
    def at(self) -> str:
        """The switch that it is attached to. Of others than the job's own, ports are not looked at."""
        return str(self.member.switch) or str(self.whole.job.switch)

    @property
    def repeats(self) -> str:
        """Its retransmissions, in words."""
        again, sent = self.grown("retransmissions"), self.grown("packets_sent")
        return f"worker {self.rank} sent {again} of {sent} packets again ({again / sent:.1%})"


@dataclass(frozen=True)
class SwitchCase:
    """A switch of a job's tree that is below another."""

    whole: JobCase
    name: str

    @property
    def subject(self) -> str:
        """Who findings are about."""
        return f"switch {self.name}"

    @property
    def parents(self) -> str:
        """Where its sums go."""
        [mine] = [each for each in self.whole.job.tree if each.switch == self.name]
        return " and ".join(mine.parents)

    @cached_property
    def below(self) -> frozenset[int]:
        """The ranks whose sums it makes: of its own workers, and of those at switches below it."""
        found: set[int] = set()
        for each in self.whole.job.tree:
            if each.switch == self.name:
                found |= set(each.workers)
            elif self.name in each.parents:
                found |= SwitchCase(self.whole, each.switch).below
        return frozenset(found)

    @cached_property
    def stalls(self) -> tuple[Stall, ...]:
        """Those elsewhere that wait for its sum: all ranks below it are missing there."""
        return tuple(
            stall
            for stall in self.whole.stalls
            if stall.rank not in self.below
            and stall.told
            and self.below
            and all(stall.progress.missing >> rank & 1 for rank in self.below)
        )

    @cached_property
    def held_up(self) -> tuple[Stall, ...]:
        """Those below it that are held up."""
        return tuple(stall for stall in self.whole.stalls if stall.rank in self.below)

    @cached_property
    def unheeded(self) -> bool:
        """Whether it sends sums up, and is not answered, not even that others are missing above."""
        raised = self.grown("raised")
        # Its own answers to those below, that one of them is missing, are counted with the parent's.
        answers = self.grown("completed") + self.grown("pending") + self.grown("stale")
        waits = any(worker.rank in self.below for worker in self.whole.stuck)
        return waits and raised > 2 * answers and not self.grown("completed")

    def grown(self, counter: str) -> int:
        """By how much one of the job's counters there has grown."""
        return self.whole.view.tree_growth(self.name, counter)


@dataclass(frozen=True)
class PortCase:
    """A port of the job's switch."""

    view: View
    port: int

    @property
    def subject(self) -> str:
        """Who findings are about."""
        return f"port {self.port} of {self.view.now.job.switch}"

    @property
    def taken(self) -> bool:
        """Whether a worker of the job is there."""
        return any(
            member.HasField("address")
            and member.port == self.port
            and member.switch in {"", self.view.now.job.switch}
            for member in self.view.now.job.members
        )

    def grown(self) -> dict[str, int]:
        """What grows, by how much."""
        growth = {name: self.view.port_growth(self.port, name) for name in PORT_COUNTERS}
        return {name: count for name, count in growth.items() if count}

    def counted(self) -> dict[str, int]:
        """What is not 0."""
        counters = self.view.now.ports[self.port]
        counts = {name: int(getattr(counters, name)) for name in PORT_COUNTERS}
        return {name: count for name, count in counts.items() if count}


def ranks(workers: Iterable[WorkerCase]) -> str:
    """``worker 1``, or ``workers 0, 2``."""
    numbers = [str(worker.rank) for worker in workers]
    return f"worker{'s' if len(numbers) != 1 else ''} {', '.join(numbers)}"
