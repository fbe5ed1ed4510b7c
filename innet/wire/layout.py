"""The innet header and its constants: Python's copy of ``innet/p4/shared``.

P4 cannot import Python, so the format is written down twice. ``tests/wire/test_wire.py`` compares the
compiled P4 program, this table, the numpy view and the Scapy layer, field by field.
"""

import enum
from dataclasses import dataclass

UDP_PORT = 19790
"""The UDP port on which a switch receives contributions."""

VERSION = 4
"""The version of the format described here."""

LANE_BYTES = 4
"""A lane is a signed 32-bit integer in network byte order."""

MAX_LANES = 1024
"""The most lanes of a packet: as many as ``innet/p4/shared/unroll.p4`` can write out."""

MOST_CONTRIBUTORS = 64
"""The most contributors of a job at one switch, workers or switches below: the bits of ``workers``."""

MOST_WORKERS = 4096
"""The most workers of a job: as many as a controller was tried with."""


class Kind(enum.IntEnum):
    """The kind of an innet packet."""

    CONTRIBUTION = 1  # worker -> switch: one chunk of a worker's vector
    RESULT = 2  # switch -> worker: the chunk's sum over the workers
    PENDING = 3  # switch -> worker: a repeated contribution; others are still missing
    HELLO = 4  # worker -> controller, through the switch: where am I attached?
    CLEAR = 5  # controller -> switch: clear this cell
    STALE = 6  # switch -> worker: the slot is already used for a later chunk
    QUERY = 7  # worker -> switch: does the chunk have a result?


WITH_LANES = frozenset({Kind.CONTRIBUTION, Kind.RESULT})
"""The kinds of packets that may carry a chunk. The others are bare headers."""


class Operation(enum.IntEnum):
    """The operation that combines lanes."""

    SUM = 1  # signed, saturating
    MAX = 2  # signed
    WRAPPING_SUM = 3  # modulo 2**32; Tofino's program has no room for it


class Flag(enum.IntFlag):
    """A contribution's flags. A result has the flags of all its contributions."""

    OVERFLOW = 1  # a lane has left the range in which no sum can overflow, or a sum has overflowed
    NOT_FINITE = 2  # a worker has a NaN or an infinity here that the agreed scale does not reveal
    MARKED = 4  # a queue on the way was long
    CARRIED = 8  # lanes are contributed
    WANTED = 16  # the result's lanes are wanted


TRANSPORT_FLAGS = Flag.MARKED | Flag.CARRIED | Flag.WANTED
"""The flags that hosts and switches set for each other. They are taken out of a result."""


class Ecn(enum.IntEnum):
    """Explicit congestion notification (RFC 3168): the low two bits of IPv4's type of service."""

    NOT_CAPABLE = 0
    CAPABLE = 2  # the sender takes part: ECT(0)
    CONGESTED = 3  # a hop had a long queue: CE


@dataclass(frozen=True)
class Field:
    """One unsigned field of a header."""

    name: str
    bits: int


HEADER = (
    Field("version", 8),
    Field("kind", 4),
    Field("operation", 4),
    Field("count", 16),
    Field("job", 16),
    Field("term", 16),
    Field("slot", 16),
    Field("flags", 16),
    Field("sequence", 32),
    Field("workers", 64),
    Field("check", 32),
)
"""The header behind UDP, in order. ``innet/p4/shared/headers.p4`` explains the fields."""

HEADER_BYTES = sum(field.bits for field in HEADER) // 8

OPERATION_BITS = next(field.bits for field in HEADER if field.name == "operation")
"""The bits of ``operation``, the lower part of the byte that it shares with ``kind``."""
