"""Cases that rules are about: a job as a whole, one of its workers, one of its switches."""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

from innet.host.waiting import named
from innet.observe.sample import View
from innet.rpc import innet_pb2 as pb
from innet.rpc.words import misplaced

STALLED_S = 2.0
"""Seconds without a result after which a worker is held up. Retransmissions take 1 s at most."""

SILENT_S = 2.0
"""Seconds without an answer after which a worker is cut off: the switch answers every repetition."""

_FEW_PACKETS = 100
_LOSS_SHARE = 0.01


@dataclass(frozen=True)
class Stall:
    """A worker that is held up, and its progress. `missing` are the ranks that it waits for."""

    rank: int
    progress: pb.Progress
    missing: frozenset[int]

    @property
    def told(self) -> bool:
        """Return whether the switch has told this worker who is missing, so that itself is not."""
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
    """A job, sampled twice."""

    view: View

    @property
    def job(self) -> pb.Job:
        """Return the job as it is now."""
        return self.view.now.job

    @property
    def before(self) -> pb.Job:
        """Return the job as it was in the first sample."""
        return self.view.before.job

    @property
    def switch(self) -> pb.Switch:
        """Return the job's switch as it is now."""
        return self.view.now.switch

    @property
    def subject(self) -> str:
        """Return the job's name for findings."""
        return f"job {self.job.name}"

    @cached_property
    def workers(self) -> tuple["WorkerCase", ...]:
        """Return a case for every rank of the job."""
        return tuple(WorkerCase(self, rank) for rank in range(self.job.workers))

    @cached_property
    def present(self) -> tuple["WorkerCase", ...]:
        """Return the workers that have joined."""
        return tuple(worker for worker in self.workers if worker.joined)

    @cached_property
    def busy(self) -> tuple["WorkerCase", ...]:
        """Return the workers that are in an exchange."""
        return tuple(worker for worker in self.present if worker.progress.busy)

    @cached_property
    def unheard(self) -> tuple["WorkerCase", ...]:
        """Return the busy workers that the switch does not answer."""
        return tuple(worker for worker in self.busy if worker.hears_nothing)

    @property
    def switch_silent(self) -> bool:
        """Return whether the switch answers nobody. For a single worker it could be the link."""
        return len(self.unheard) == len(self.busy) >= min(2, self.job.workers)

    @cached_property
    def switches(self) -> tuple["SwitchCase", ...]:
        """Return a case for every switch of the job's tree but its own."""
        others = (each.switch for each in self.job.tree if each.switch != self.job.switch)
        return tuple(SwitchCase(self, name) for name in others)

    @property
    def reachable(self) -> bool:
        """Return whether the controller reaches all switches of the job."""
        return all(each.reachable for each in self.view.now.switches.values())

    @cached_property
    def unheeded(self) -> frozenset[int]:
        """Return the ranks below a switch that gets no answer from above. They have contributed."""
        return frozenset().union(*(each.below for each in self.switches if each.unheeded))

    @property
    def lossy(self) -> tuple["WorkerCase", ...]:
        """Return the workers that lose more packets than they should."""
        return tuple(worker for worker in self.present if worker.lossy)

    @property
    def loss_everywhere(self) -> bool:
        """Return whether all workers lose packets, and no counter of damage explains it."""
        unexplained = [worker for worker in self.lossy if not worker.damaged]
        return len(unexplained) == len(self.present) > 1

    @property
    def stuck(self) -> tuple["WorkerCase", ...]:
        """Return the workers that are held up."""
        return tuple(worker for worker in self.busy if worker.progress.stuck_s >= STALLED_S)

    @cached_property
    def stalls(self) -> tuple[Stall, ...]:
        """Return a stall for each worker that is held up, with the ranks that it waits for."""
        return tuple(
            Stall(worker.rank, worker.progress, self._missing(worker)) for worker in self.stuck
        )

    def _missing(self, stalled: "WorkerCase") -> frozenset[int]:
        """Return the ranks that a worker waits for, as far as they are known.

        On the switch path the switch has reported them. On the fallback path they are the workers
        that have not begun the exchange.
        """
        at = stalled.progress
        if self.job.path == pb.PATH_FALLBACK:
            return frozenset(
                other.rank
                for other in self.workers
                if not (other.joined and other.progress.busy)
                or other.progress.exchange < at.exchange
            )
        told = not at.missing >> stalled.rank & 1  # a worker with an answer has contributed
        if stalled.hears_nothing or not told:
            return frozenset()
        lacking = {rank for rank in range(self.job.workers) if at.missing >> rank & 1}
        # From above, a rack's sum is there or not. Workers in the rack know who of them has
        # contributed.
        there = {rank for rank in lacking if self.job.tree and self.workers[rank].is_in(at)}
        return frozenset(lacking - there - self.unheeded)


@dataclass(frozen=True)
class WorkerCase:
    """One worker of a job, which may be absent."""

    whole: JobCase
    rank: int

    @property
    def subject(self) -> str:
        """Return the worker's name for findings."""
        return f"worker {self.rank}"

    @cached_property
    def member(self) -> pb.WorkerStatus:
        """Return what the controller knows of it, or an empty message if it is absent."""
        return self.whole.view.now.members.get(self.rank, pb.WorkerStatus())

    @property
    def progress(self) -> pb.Progress:
        """Return its last progress report."""
        return self.member.progress

    @property
    def invited(self) -> bool:
        """Return whether the controller has a stream to it."""
        return self.rank in self.whole.view.now.members

    @property
    def joined(self) -> bool:
        """Return whether the controller knows where it is attached, and so has admitted it."""
        return self.invited and self.member.HasField("address")

    @property
    def has_been_there(self) -> bool:
        """Return whether it was there, and is not now.

        It was there if the first sample has it, or if sums that need all workers have been
        finished.
        """
        job = self.whole.job
        went_on = any(worker.progress.exchange for worker in self.whole.present)
        return self.rank in self.whole.view.before.members or (
            job.quorum == job.workers and went_on
        )

    @cached_property
    def stalls(self) -> tuple[Stall, ...]:
        """Return the stalls of the workers that it holds up."""
        return tuple(stall for stall in self.whole.stalls if self.rank in stall.missing)

    @property
    def blocks(self) -> bool:
        """Return whether it keeps others from continuing: a term begins when all have come."""
        lacking = len(self.whole.present) < self.whole.job.quorum
        needed = lacking or self.whole.job.path == pb.PATH_NONE
        return bool(self.stalls) or self.awaited or (not self.joined and needed)

    @property
    def awaited(self) -> bool:
        """Return whether the controller reports that others have waited long for it."""
        job = self.whole.job
        return self.rank in job.waiting_for and job.waiting_s >= STALLED_S

    @property
    def waiting(self) -> tuple[str, ...]:
        """Return the workers that wait for it, in words."""
        said = f"the others have waited {self.whole.job.waiting_s:.1f} s for it"
        return (*map(str, self.stalls), *([said] if self.awaited else []))

    @property
    def waited_for(self) -> int:
        """Return the number of the exchange in which others wait for it."""
        return max(stall.progress.exchange for stall in self.stalls)

    @property
    def hears_nothing(self) -> bool:
        """Return whether the switch has owed it an answer for too long."""
        return self.progress.busy and self.progress.silent_s >= SILENT_S

    @property
    def unheeded(self) -> bool:
        """Return whether the silence is that of a switch above its own."""
        return self.rank in self.whole.unheeded

    @property
    def lost(self) -> int:
        """Return how many packets must have been lost, at least, in either direction.

        The switch answers every packet with one packet: a first contribution with its chunk's
        result, and a repeated one on the spot. So a repetition that came too soon gets an answer of
        its own. A packet that never gets an answer was lost on one of the two ways.
        """
        at = self.progress
        under_way = min(at.window, at.remaining) if at.busy else 0
        unanswered = self.grown("packets_sent") - self.grown("packets_received") - under_way
        return max(0, min(unanswered, self.grown("retransmissions")))

    @property
    def lossy(self) -> bool:
        """Return whether it loses more packets than it should, although it gets results."""
        sent = self.grown("packets_sent")
        getting_on = self.grown("chunks_done") > 0
        return getting_on and sent >= _FEW_PACKETS and self.lost >= _LOSS_SHARE * sent

    @property
    def unread(self) -> bool:
        """Return whether the switch takes some of its packets and refuses others.

        A stranger's packets would be refused without a loss of this worker's.
        """
        getting_on = self.progress.stuck_s < STALLED_S
        return self.lossy and getting_on and self.at_port("refused") > 0

    @property
    def damaged(self) -> bool:
        """Return whether counters of changed or refused packets explain its losses."""
        return self.unread or self.at_port("corrupted") > 0 or self.grown("corrupted") > 0

    def grown(self, counter: str) -> int:
        """Return by how much a counter of the worker's own has grown."""
        return self.whole.view.growth(self.rank, counter)

    def at_port(self, counter: str) -> int:
        """Return by how much one of its port's counters has grown."""
        if not self.joined:
            return 0
        return self.whole.view.port_growth(self.at, self.member.port, counter)

    @property
    def port(self) -> str:
        """Return the port that it is attached to, in words."""
        return f"port {self.member.port} of {self.at}"

    @property
    def switch_lost(self) -> bool:
        """Return whether the controller does not reach the switch that it is attached to."""
        switch = self.whole.view.now.switches.get(self.at)
        return switch is not None and not switch.reachable

    def is_in(self, at: pb.Progress) -> bool:
        """Return whether its own switch has confirmed that its contribution to a chunk is in."""
        mine = self.progress
        same = (mine.exchange, mine.chunk, mine.sequence) == (at.exchange, at.chunk, at.sequence)
        return mine.busy and same and not self.hears_nothing and not mine.missing >> self.rank & 1

    @property
    def at(self) -> str:
        """Return the name of the switch that it is attached to."""
        return str(self.member.switch) or str(self.whole.job.switch)

    @property
    def repeats(self) -> str:
        """Return its losses and retransmissions, in words."""
        again, sent = self.grown("retransmissions"), self.grown("packets_sent")
        return (
            f"worker {self.rank} sent {sent} packets, and {self.lost} of them ({self.lost / sent:.1%}) "
            f"were not answered; it sent {again} again"
        )


@dataclass(frozen=True)
class SwitchCase:
    """A switch of a job's tree beside the job's own, most often below it."""

    whole: JobCase
    name: str

    @property
    def subject(self) -> str:
        """Return the switch's name for findings."""
        return f"switch {self.name}"

    @cached_property
    def state(self) -> pb.Switch:
        """Return what the controller knows of it. An unlisted switch counts as reachable."""
        return self.whole.view.now.switches.get(self.name, pb.Switch(reachable=True))

    @cached_property
    def misplaced(self) -> tuple[str, ...]:
        """Return its uplinks that end in a wrong place, in words."""
        said = (misplaced(self.name, link) for link in self.state.uplinks)
        return tuple(each for each in said if each)

    @property
    def unheard(self) -> tuple[WorkerCase, ...]:
        """Return the workers attached to it that wait for an answer in vain."""
        return tuple(each for each in self.whole.unheard if each.at == self.name)

    @property
    def parents(self) -> str:
        """Return the switches that its sums are sent to, in words."""
        [mine] = [each for each in self.whole.job.tree if each.switch == self.name]
        return " and ".join(mine.parents)

    @cached_property
    def below(self) -> frozenset[int]:
        """Return the ranks below it: its own workers, and those at switches below it."""
        found: set[int] = set()
        for each in self.whole.job.tree:
            if each.switch == self.name:
                found |= set(each.workers)
            elif self.name in each.parents:
                found |= SwitchCase(self.whole, each.switch).below
        return frozenset(found)

    @cached_property
    def stalls(self) -> tuple[Stall, ...]:
        """Return the stalls of workers elsewhere for which all ranks below this switch are missing."""
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
        """Return the stalls of workers below it."""
        return tuple(stall for stall in self.whole.stalls if stall.rank in self.below)

    @cached_property
    def unheeded(self) -> bool:
        """Return whether its sums go up and get no answer, not even that others are missing."""
        raised = self.grown("raised")
        # `pending` also counts its own answers to those below, so only half as many are expected.
        answers = self.grown("completed") + self.grown("pending") + self.grown("stale")
        waits = any(worker.rank in self.below for worker in self.whole.stuck)
        return waits and raised > 2 * answers and not self.grown("completed")

    def grown(self, counter: str) -> int:
        """Return by how much one of the job's counters there has grown."""
        return self.whole.view.tree_growth(self.name, counter)


def departures(job: pb.Job) -> list[str]:
    """Return the departures from a job and their reasons, in order."""
    return [
        f"worker {each.rank} left {each.ago_s:.0f} s ago: {each.reason}" for each in job.departures
    ]


def ranks(workers: Iterable[WorkerCase]) -> str:
    """Return ``worker 1`` or ``workers 0, 2``."""
    return named(worker.rank for worker in workers)
