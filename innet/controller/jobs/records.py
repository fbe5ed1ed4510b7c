"""Values that the parts of the controller exchange."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from innet.controller.jobs.events import Resume
from innet.wire.frames import Address
from innet.wire.layout import MOST_CONTRIBUTORS


@dataclass(frozen=True)
class Attachment:
    """A worker's port at a switch, and its address behind the port.

    The switch's name is empty where it does not matter.
    """

    port: int
    address: Address
    switch: str = ""


@dataclass(frozen=True)
class Uplink:
    """A link of a switch to a parent, from a port of its own to one of the parent's."""

    parent: str
    port: int
    parent_port: int


@dataclass(frozen=True)
class Station:
    """A machine that is no worker, by its MAC address, and the port of a switch that leads to it."""

    mac: str
    port: int


@dataclass(frozen=True)
class SlotRange:
    """A job's slots on its switches, and the index of its counters and of its multicast group there."""

    index: int
    first_slot: int
    slots: int

    def overlaps(self, other: "SlotRange") -> bool:
        """Return whether any slot is in both ranges."""
        end, other_end = self.first_slot + self.slots, other.first_slot + other.slots
        return self.first_slot < other_end and other.first_slot < end


@dataclass(frozen=True)
class Contributor:
    """A worker that contributes to a job at a switch, or a child switch that stands for several.

    `bits`, usually a single bit, are set in the switch's bitmaps if it has contributed. `ranks` are those
    of the workers it stands for. `instance` is the number of its copy of a multicast result.
    """

    bits: int
    ranks: frozenset[int]
    instance: int
    where: Attachment

    @property
    def is_switch(self) -> bool:
        """Return whether it is a switch. Workers have lower instances, which follow from their bits."""
        return self.instance > MOST_CONTRIBUTORS


@dataclass(frozen=True)
class Share:
    """A switch's part in an aligned range of a job's slots.

    Without an `uplink` the switch is at the top, and makes the results. A sum of this switch takes
    `awaited` contributions, of workers and of switches. Where it goes up, the parent's answer counts as
    one more. The bit `level_bit` is set in all PENDING packets of the switch itself, so that workers can
    tell them from those of switches above.
    """

    first_slot: int
    slots: int
    contributors: tuple[Contributor, ...]
    uplink: Uplink | None
    awaited: int
    level_bit: int = 0

    @property
    def ranks(self) -> frozenset[int]:
        """Return the ranks of all workers below."""
        return frozenset().union(*(each.ranks for each in self.contributors))

    @property
    def is_partial(self) -> bool:
        """Return whether the result may lack contributions."""
        return not self.uplink and self.awaited < len(self.contributors)


def rank_in_group(group_ranks: Sequence[int], rank: int) -> int:
    """Return the rank in the group of a worker of a job. Without `group_ranks`, it is the same."""
    return group_ranks[rank] if group_ranks else rank


@dataclass(frozen=True)
class Assignment:
    """The entries that a switch should hold for a job that has slots there.

    While `shares` is empty, it should hold none. `workers` are those attached to this switch.
    `beyond` has the ports that lead to the other workers, by their MAC addresses. `clear` asks to
    clear the cells for this term. `fresh` asks to set the counters to zero before. `group_ranks` are
    those of the job.
    """

    job: int
    slot_range: SlotRange
    term: int
    workers: Mapping[int, Attachment] = field(default_factory=dict)
    shares: tuple[Share, ...] = ()
    clear: bool = False
    fresh: bool = False
    beyond: Mapping[str, int] = field(default_factory=dict)
    group_ranks: tuple[int, ...] = ()

    @property
    def ranks(self) -> frozenset[int]:
        """Return the workers whose contributions are let in, directly or in a sum."""
        return frozenset().union(*(each.ranks for each in self.shares))


@dataclass(frozen=True)
class JobSpec:
    """A job as it was requested. `number` counts jobs in the order of their creation.

    A result needs `quorum` contributions, or those of all workers that are left, if these are
    fewer. With fewer than `min_workers` workers there are no results. `token_digest` is the digest of
    the token of all ranks, or the digests of each rank's own. `others` are the switches besides
    `switch` on which the job has slots. `owner` is the name in the certificate of the client that
    created the job, empty without TLS.

    The job always keeps `min_slots` of its `slots`, and lends the others. If `min_slots` is 0, it lends
    none. Where several jobs want to borrow the same slots, `priority` decides.

    If the job sums a slice for a larger group, `group_ranks` are its workers' ranks in that group.
    """

    name: str
    switch: str
    id: int
    workers: int
    quorum: int
    min_workers: int
    slots: int
    lease_s: float
    token_digest: bytes
    number: int
    others: tuple[str, ...] = ()
    owner: str = ""
    min_slots: int = 0
    priority: int = 0
    group_ranks: tuple[int, ...] = ()

    def in_group(self, rank: int) -> int:
        """Return the rank in the group of a worker of the job. Logs, events and errors name this one."""
        return rank_in_group(self.group_ranks, rank)

    @property
    def switches(self) -> tuple[str, ...]:
        """Return all switches that may take part in the job."""
        return (self.switch, *self.others)

    @property
    def kept_slots(self) -> int:
        """Return the number of slots that are the job's own, whatever other jobs do."""
        return self.min_slots or self.slots

    @property
    def lends(self) -> bool:
        """Return whether the job lends slots while it does not need them, and borrows when it does."""
        return self.kept_slots < self.slots


@dataclass(frozen=True)
class WorkerRecord:
    """The stored state of a worker in a job."""

    rank: int
    nonce: int
    fallback: bool
    where: Attachment | None


@dataclass(frozen=True)
class JobRecord:
    """The stored state of a job. `agreement` says how the term begins, None until it is agreed upon.

    `slot_range` has the job's own slots, and `loan` those that it uses instead, None while it borrows
    none. `drained` and `lost` are the job's switches that this term leaves out if it can.
    """

    spec: JobSpec
    term: int
    slot_range: SlotRange | None
    fresh: bool
    agreement: Resume | None
    departed: tuple[tuple[int, str], ...]
    workers: tuple[WorkerRecord, ...]
    drained: frozenset[str] = frozenset()
    lost: frozenset[str] = frozenset()
    loan: SlotRange | None = None

    def since(
        self, before: "JobRecord | None"
    ) -> tuple[list[tuple[WorkerRecord | None, WorkerRecord]], list[int]]:
        """Return the workers that have changed since `before`, and the ranks that are gone.

        Each worker that has changed comes with its earlier record, or None, and its present one.
        """
        were = {each.rank: each for each in before.workers} if before else {}
        changed = []
        for each in self.workers:
            was = were.pop(each.rank, None)
            if was is not each and was != each:
                changed.append((was, each))
        return changed, [*were]


@dataclass(frozen=True)
class SwitchRecord:
    """The stored state of a switch: all that it was added with, and whether it is `drained`.

    `target` is the kind of switch. `artifact` is the folder of its binary, if it needs one.
    """

    name: str
    grpc_address: str
    device_id: int
    ports: tuple[int, ...]
    service: Address
    lanes: int
    uplinks: tuple[Uplink, ...] = ()
    target: str = "bmv2"
    artifact: str = ""
    drained: bool = False
    stations: tuple[Station, ...] = ()
