"""What the parts of the controller tell each other."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from innet.wire.frames import Address


@dataclass(frozen=True)
class Attachment:
    """Where a worker is: a port of a switch, and its address behind it.

    Without the switch's name, which one it is goes without saying.
    """

    port: int
    address: Address
    switch: str = ""


@dataclass(frozen=True)
class Uplink:
    """A link of a switch to a parent: from which port of its own to which of the parent's."""

    parent: str
    port: int
    parent_port: int


@dataclass(frozen=True)
class Place:
    """What a job has of a switch: slots, and the index of its counters and of its multicast group."""

    index: int
    first_slot: int
    slots: int


@dataclass(frozen=True)
class Contributor:
    """Who contributes to a job at a switch: a worker, or a switch below that stands for some.

    `members` is the bitmap of their ranks, `instance` tells its copies of results from others'.
    """

    members: int
    instance: int
    where: Attachment


@dataclass(frozen=True)
class Share:
    """What one of several switches does for an aligned range of a job's slots.

    Without an `uplink` it is at the top. `total` workers are in a result.
    """

    first_slot: int
    slots: int
    contributors: tuple[Contributor, ...]
    uplink: Uplink | None
    total: int

    @property
    def members(self) -> int:
        """The bitmap of all who are below."""
        return sum(each.members for each in self.contributors)


@dataclass(frozen=True)
class Wanted:
    """What a switch should hold of a job, which has a place there.

    While `workers` and `shares` are empty, nothing. Where several switches sum, `workers` are those
    that are attached to this one, `beyond` has the ports that lead to the others, by their MAC addresses,
    and the `shares` say what it does. `clear` asks for the cells to be
    cleared for this epoch, and with `fresh` for the counters to be set to zero before.
    """

    job: int
    place: Place
    epoch: int
    quorum: int
    workers: Mapping[int, Attachment]
    clear: bool = False
    fresh: bool = False
    shares: tuple[Share, ...] = ()
    beyond: Mapping[str, int] = field(default_factory=dict)

    @property
    def ranks(self) -> frozenset[int]:
        """The workers whose contributions are let in, directly or in a sum."""
        members = 0
        for share in self.shares:
            members |= share.members
        return frozenset(rank for rank in range(members.bit_length()) if members >> rank & 1) | (
            frozenset(self.workers)
        )


@dataclass(frozen=True)
class JobSpec:
    """A job as it was asked for. `number` counts jobs in the order of their creation.

    `quorum` contributions make a result, or those of all who are left, if these are fewer; with
    less than `fewest` workers there are no results. `others` are the switches besides `switch` that the
    job has slots of.
    """

    name: str
    switch: str
    id: int
    workers: int
    quorum: int
    fewest: int
    slots: int
    lease_s: float
    token_digest: bytes
    number: int
    others: tuple[str, ...] = ()

    @property
    def switches(self) -> tuple[str, ...]:
        """All switches that may have to do with the job."""
        return (self.switch, *self.others)


@dataclass(frozen=True)
class WorkerRecord:
    """What is kept of a worker that is in a job."""

    rank: int
    nonce: int
    fallback: bool
    where: Attachment | None


@dataclass(frozen=True)
class JobRecord:
    """What is kept of a job. `terms` is the `Resume` of the epoch, empty where none is agreed upon."""

    spec: JobSpec
    epoch: int
    place: Place | None
    fresh: bool
    terms: bytes
    departed: tuple[tuple[int, str], ...]
    workers: tuple[WorkerRecord, ...]


@dataclass(frozen=True)
class SwitchRecord:
    """What is kept of a switch: all that it was added with.

    `target` is what kind of switch it is, `artifact` the folder of its binary, where it needs one.
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
