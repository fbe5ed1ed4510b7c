"""The messages between a job and its workers, as plain values.

:mod:`innet.controller.state.messages` turns them into the messages of innet.proto, which have the same
names and fields.
"""

from dataclasses import dataclass
from enum import IntEnum

from innet.errors import InnetError
from innet.wire.frames import Address


class Path(IntEnum):
    """The way in which the integers of an exchange are summed, with the numbers of innet.proto."""

    NONE = 0
    SWITCH = 1
    FALLBACK = 2


@dataclass(frozen=True)
class Invitation:
    """The destination and the nonce of a worker's hello packet, and what its packets look like."""

    service: Address
    lanes: int
    lease_s: float
    unsealed: bool = False
    nonce: int = 0


@dataclass(frozen=True)
class Admission:
    """The answer to a worker's hello packet."""

    job_id: int
    rank: int
    workers: int
    min_workers: int
    lanes: int
    lends: bool = False


@dataclass(frozen=True)
class Departure:
    """Another worker of the job has gone, or the job itself."""

    rank: int
    reason: str


@dataclass(frozen=True)
class Recover:
    """The end of a term: the worker stops and answers with its exchange. `term` is the next one."""

    term: int
    reason: str


@dataclass(frozen=True)
class Resume:
    """The agreement on how a term begins."""

    term: int
    path: Path
    first_slot: int = 0
    slots: int = 0
    exchange: int = 0
    shared: bool = False
    reason: str = ""


@dataclass(frozen=True)
class SwitchBits:
    """The meaning of a switch's bitmaps in PENDING packets, in the slots from `first_slot` on.

    Only this switch's packets have the bit `level_bit`. If it is 0, they have no such bit.
    `contributors` are the ranks that each of the other bits stands for, from the lowest bit on.
    """

    first_slot: int
    slots: int
    level_bit: int
    contributors: tuple[frozenset[int], ...]


@dataclass(frozen=True)
class Bitmaps:
    """The meaning of the bitmaps that a worker gets in the coming term, from its switch and above."""

    switches: tuple[SwitchBits, ...]


@dataclass(frozen=True)
class Waiting:
    """The ranks that the job waits for."""

    ranks: tuple[int, ...]


Event = Invitation | Admission | Departure | Recover | Bitmaps | Resume | Waiting


@dataclass(frozen=True)
class Notify:
    """An event for the worker with this nonce."""

    nonce: int
    event: Event


@dataclass(frozen=True)
class EndStream:
    """The end of the stream of the worker with this nonce, with or without an error."""

    nonce: int
    problem: InnetError | None = None


Action = Notify | EndStream
Actions = list[Action]


@dataclass(frozen=True)
class Progress:
    """A worker's progress, as its heartbeats report it. innet.proto explains the fields."""

    exchange: int = 0
    busy: bool = False
    chunks: int = 0
    remaining: int = 0
    stuck_s: float = 0.0
    silent_s: float = 0.0
    chunk: int = 0
    slot: int = 0
    sequence: int = 0
    missing: tuple[int, ...] = ()
    packets_sent: int = 0
    packets_received: int = 0
    bytes_sent: int = 0
    bytes_received: int = 0
    retransmissions: int = 0
    chunks_done: int = 0
    corrupted: int = 0
    round_trip_s: float = 0.0
    timeout_s: float = 0.0
    window: int = 0
    fallback_exchanges: int = 0
    least_round_trip_s: float = 0.0
    link_bits_per_s: int = 0
