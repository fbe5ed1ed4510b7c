"""The subjects of rules: a job as a whole, one of its workers, one of its switches."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

from innet.model.all_reduce import SlotParameters
from innet.model.capacity import slots_needed
from innet.observe.rates import lost_packets
from innet.observe.sample import Observation
from innet.observe.stalls import SILENT_S, STALLED_S, Stall, chunk_of, in_words
from innet.rpc import group_ranks
from innet.rpc import innet_pb2 as pb
from innet.rpc.words import misplaced, workers_text

_MIN_PACKETS = 100
_MIN_LOSS_RATE = 0.01


@dataclass(frozen=True)
class ObservedJob:
    """A job, sampled twice."""

    observation: Observation

    @property
    def now(self) -> pb.Job:
        """Return the job as it is now."""
        return self.observation.now.job

    @property
    def before(self) -> pb.Job:
        """Return the job as it was in the first sample."""
        return self.observation.before.job

    @property
    def switch(self) -> pb.Switch:
        """Return the job's switch as it is now."""
        return self.observation.now.switch

    @property
    def label(self) -> str:
        """Return the job's name for findings."""
        return f"job {self.now.name}"

    @cached_property
    def workers(self) -> tuple["ObservedWorker", ...]:
        """Return a worker for every rank of the job, also for absent ones."""
        return tuple(ObservedWorker(self, rank) for rank in group_ranks.ranks(self.now))

    @cached_property
    def present(self) -> tuple["ObservedWorker", ...]:
        """Return the workers that have joined."""
        return tuple(worker for worker in self.workers if worker.joined)

    @cached_property
    def busy(self) -> tuple["ObservedWorker", ...]:
        """Return the workers that are in an exchange."""
        return tuple(worker for worker in self.present if worker.progress.busy)

    @cached_property
    def unanswered_workers(self) -> tuple["ObservedWorker", ...]:
        """Return the busy workers that the switch does not answer."""
        return tuple(worker for worker in self.busy if worker.unanswered)

    @property
    def switch_silent(self) -> bool:
        """Return whether the switch answers nobody. One worker is not enough: its link may be down."""
        return len(self.unanswered_workers) == len(self.busy) >= min(2, self.now.workers)

    @cached_property
    def switches(self) -> tuple["ObservedSwitch", ...]:
        """Return every switch of the job's tree but its own."""
        others = (each.switch for each in self.now.tree if each.switch != self.now.switch)
        return tuple(ObservedSwitch(self, name) for name in others)

    @property
    def reachable(self) -> bool:
        """Return whether the controller reaches all switches of the job."""
        return all(each.reachable for each in self.observation.now.switches.values())

    @property
    def drained(self) -> list[str]:
        """Return the drained switches of the job."""
        return [name for name, each in self.observation.now.switches.items() if each.drained]

    @cached_property
    def ranks_unanswered_above(self) -> frozenset[int]:
        """Return the ranks below a switch that gets no answer from above. They have contributed."""
        return frozenset().union(*(each.below for each in self.switches if each.unanswered_above))

    @property
    def lossy(self) -> tuple["ObservedWorker", ...]:
        """Return the workers that lose more packets than they should."""
        return tuple(worker for worker in self.present if worker.lossy)

    @property
    def loss_everywhere(self) -> bool:
        """Return whether all workers lose packets, and no counter of damage explains it."""
        unexplained = [worker for worker in self.lossy if not worker.damaged]
        return len(unexplained) == len(self.present) > 1

    @property
    def stuck(self) -> tuple["ObservedWorker", ...]:
        """Return the workers that are held up."""
        return tuple(worker for worker in self.busy if worker.progress.stuck_s >= STALLED_S)

    @cached_property
    def stalls(self) -> tuple[Stall, ...]:
        """Return a stall for each worker that is held up, with the ranks that it waits for."""
        return tuple(
            Stall(worker.rank, worker.progress, self._missing(worker)) for worker in self.stuck
        )

    @property
    def departures(self) -> list[str]:
        """Return the departures from the job and their reasons, in order."""
        return [
            f"worker {each.rank} left {each.ago_s:.0f} s ago: {each.reason}"
            for each in self.now.departures
        ]

    @cached_property
    def has_summed(self) -> bool:
        """Return whether a worker has done an exchange."""
        return any(worker.progress.exchange for worker in self.present)

    @cached_property
    def _behind(self) -> Mapping[int, frozenset[int]]:
        # By the exchange of a worker that is held up, the ranks that have not begun it.
        begun = {each.rank: each.progress.exchange for each in self.busy}
        return {
            exchange: frozenset(
                rank for rank in group_ranks.ranks(self.now) if begun.get(rank, -1) < exchange
            )
            for exchange in {each.progress.exchange for each in self.stuck}
        }

    @cached_property
    def _confirmed(self) -> Mapping[tuple[int, int, int], set[int]]:
        # By chunk, the ranks that have contributed: a switch tells only them that others are missing.
        found: dict[tuple[int, int, int], set[int]] = {}
        for each in self.workers:
            if each.progress.busy and each.progress.missing and not each.unanswered:
                found.setdefault(chunk_of(each.progress), set()).add(each.rank)
        return found

    def _missing(self, stalled: "ObservedWorker") -> frozenset[int]:
        """Return the ranks that a worker waits for, as far as they are known.

        On the switch path the switch has reported them. On the fallback path they are the workers
        that have not begun the exchange.
        """
        at = stalled.progress
        if self.now.path == pb.PATH_FALLBACK:
            return self._behind[at.exchange]
        lacking = set(at.missing).intersection(group_ranks.ranks(self.now))
        if stalled.unanswered:
            return frozenset()
        # The switches above only know of the rack's sum. The workers there know who has contributed.
        there = self._confirmed.get(chunk_of(at), ()) if self.now.tree else ()
        return frozenset(lacking.difference(there, self.ranks_unanswered_above))


@dataclass(frozen=True)
class ObservedWorker:
    """One worker of a job, which may be absent."""

    job: ObservedJob
    rank: int

    @property
    def label(self) -> str:
        """Return the worker's name for findings."""
        return f"worker {self.rank}"

    @cached_property
    def member(self) -> pb.WorkerStatus:
        """Return what the controller knows of it, or an empty message if it is absent."""
        return self.job.observation.now.members.get(self.rank, pb.WorkerStatus())

    @property
    def progress(self) -> pb.Progress:
        """Return its last progress report."""
        return self.member.progress

    @property
    def slots_needed(self) -> int:
        """Return the slots that fill its link, or 0 if its rate or its round trip is not known."""
        rate, seconds = self.progress.link_bits_per_s, self.progress.least_round_trip_s
        frame = SlotParameters(lanes=self.job.now.lanes).frame
        return slots_needed(rate, seconds, frame) if rate and seconds else 0

    @property
    def invited(self) -> bool:
        """Return whether the controller has a stream to it."""
        return self.rank in self.job.observation.now.members

    @property
    def joined(self) -> bool:
        """Return whether the controller knows where it is attached, and so has admitted it."""
        return self.invited and self.member.HasField("address")

    @property
    def was_present(self) -> bool:
        """Return whether it was in the job before.

        It was if the first sample has it. It was, too, if sums have been finished, and they need all
        workers or it has departed. Without sums, its departure may be older than these workers.
        """
        now = self.job.now
        needed = now.quorum == now.workers or any(each.rank == self.rank for each in now.departures)
        return self.rank in self.job.observation.before.members or (needed and self.job.has_summed)

    @cached_property
    def stalls(self) -> tuple[Stall, ...]:
        """Return the stalls of the workers that it holds up."""
        return tuple(stall for stall in self.job.stalls if self.rank in stall.missing)

    @property
    def blocks(self) -> bool:
        """Return whether it keeps others from continuing. A term begins only when all have joined."""
        lacking = len(self.job.present) < self.job.now.quorum
        needed = lacking or self.job.now.path == pb.PATH_NONE
        return bool(self.stalls) or self.awaited or (not self.joined and needed)

    @property
    def awaited(self) -> bool:
        """Return whether the controller reports that others have waited long for it."""
        now = self.job.now
        return self.rank in now.waiting_for and now.waiting_s >= STALLED_S

    @property
    def waiting_evidence(self) -> tuple[str, ...]:
        """Return the workers that wait for it, in words."""
        sentence = f"the others have waited {self.job.now.waiting_s:.1f} s for worker {self.rank}"
        return (*in_words(self.stalls), *([sentence] if self.awaited else []))

    @property
    def waited_for(self) -> int:
        """Return the number of the exchange in which others wait for it."""
        return max(stall.progress.exchange for stall in self.stalls)

    @property
    def unanswered(self) -> bool:
        """Return whether the switch has owed it an answer for too long."""
        return self.progress.busy and self.progress.silent_s >= SILENT_S

    @property
    def unanswered_above(self) -> bool:
        """Return whether the silence is that of a switch above its own."""
        return self.rank in self.job.ranks_unanswered_above

    @property
    def lost_packets(self) -> int:
        """Return how many packets must have been lost, at least, in either direction."""
        sent, received, again = map(
            self.growth, ("packets_sent", "packets_received", "retransmissions")
        )
        return lost_packets(sent, received, again, self.progress)

    @property
    def lossy(self) -> bool:
        """Return whether it loses more packets than it should, although it gets results."""
        sent = self.growth("packets_sent")
        progressing = self.growth("chunks_done") > 0
        return progressing and sent >= _MIN_PACKETS and self.lost_packets >= _MIN_LOSS_RATE * sent

    @property
    def partly_refused(self) -> bool:
        """Return whether the switch takes some of its packets and refuses others.

        If the refused packets were a stranger's, this worker would lose none of its own.
        """
        progressing = self.progress.stuck_s < STALLED_S
        return self.lossy and progressing and self.port_growth("refused") > 0

    @property
    def damaged(self) -> bool:
        """Return whether counters of changed or refused packets explain its losses."""
        return (
            self.partly_refused or self.port_growth("corrupted") > 0 or self.growth("corrupted") > 0
        )

    def growth(self, counter: str) -> int:
        """Return by how much a counter of the worker's own has grown."""
        return self.job.observation.worker_growth(self.rank, counter)

    def port_growth(self, counter: str) -> int:
        """Return by how much one of its port's counters has grown."""
        if not self.joined:
            return 0
        return self.job.observation.port_growth(self.switch, self.member.port, counter)

    @property
    def port(self) -> str:
        """Return the port that it is attached to, in words."""
        return f"port {self.member.port} of {self.switch}"

    @property
    def switch_unreachable(self) -> bool:
        """Return whether the controller does not reach the switch that it is attached to."""
        switch = self.job.observation.now.switches.get(self.switch)
        return switch is not None and not switch.reachable

    @property
    def switch(self) -> str:
        """Return the name of the switch that it is attached to."""
        return str(self.member.switch) or str(self.job.now.switch)

    @property
    def loss_summary(self) -> str:
        """Return its losses and retransmissions, in words."""
        again, sent = self.growth("retransmissions"), self.growth("packets_sent")
        return (
            f"worker {self.rank} sent {sent} packets, and {self.lost_packets} of them "
            f"({self.lost_packets / sent:.1%}) were not answered; it sent {again} again"
        )


@dataclass(frozen=True)
class ObservedSwitch:
    """A switch of a job's tree other than the job's own. Most often it is below that one."""

    job: ObservedJob
    name: str

    @property
    def label(self) -> str:
        """Return the switch's name for findings."""
        return f"switch {self.name}"

    @cached_property
    def state(self) -> pb.Switch:
        """Return what the controller knows of it. An unlisted switch counts as reachable."""
        return self.job.observation.now.switches.get(self.name, pb.Switch(reachable=True))

    @cached_property
    def misplaced(self) -> tuple[str, ...]:
        """Return its uplinks that end in a wrong place, in words."""
        sentences = (misplaced(self.name, link) for link in self.state.uplinks)
        return tuple(each for each in sentences if each)

    @property
    def unanswered_workers(self) -> tuple[ObservedWorker, ...]:
        """Return the workers attached to it that wait for an answer in vain."""
        return tuple(each for each in self.job.unanswered_workers if each.switch == self.name)

    @property
    def parents(self) -> str:
        """Return the switches that its sums are sent to, in words."""
        [mine] = [each for each in self.job.now.tree if each.switch == self.name]
        return " and ".join(mine.parents)

    @cached_property
    def below(self) -> frozenset[int]:
        """Return the ranks below it: its own workers, and those at switches below it."""
        found: set[int] = set()
        for each in self.job.now.tree:
            if each.switch == self.name:
                found |= set(each.workers)
            elif self.name in each.parents:
                found |= ObservedSwitch(self.job, each.switch).below
        return frozenset(found)

    @cached_property
    def stalls(self) -> tuple[Stall, ...]:
        """Return the stalls of workers elsewhere for which all ranks below this switch are missing."""
        return tuple(
            stall
            for stall in self.job.stalls
            if stall.rank not in self.below
            and stall.informed
            and self.below
            and self.below <= {*stall.progress.missing}
        )

    @cached_property
    def held_up(self) -> tuple[Stall, ...]:
        """Return the stalls of workers below it."""
        return tuple(stall for stall in self.job.stalls if stall.rank in self.below)

    @cached_property
    def unanswered_above(self) -> bool:
        """Return whether its sums go up and get no answer, not even that others are missing."""
        raised = self.growth("raised")
        # `pending` also counts its own answers to those below, so a few answers prove nothing.
        answers = self.growth("completed") + self.growth("pending") + self.growth("stale")
        waits = any(worker.rank in self.below for worker in self.job.stuck)
        return waits and raised > 2 * answers and not self.growth("completed")

    def growth(self, counter: str) -> int:
        """Return by how much one of the job's counters there has grown."""
        return self.job.observation.tree_growth(self.name, counter)


def ranks(workers: Iterable[ObservedWorker]) -> str:
    """Return ``worker 1`` or ``workers 0, 2``."""
    return workers_text(worker.rank for worker in workers)
