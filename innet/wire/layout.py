"""The innet header and its constants: Python's copy of ``innet/p4/shared``.

P4 cannot import Python, so the format stands twice; ``tests/test_wire.py`` holds the compiled
P4 program, this table, the numpy view and the Scapy layer equal, field by field.
"""

import enum
from dataclasses import dataclass

UDP_PORT = 19790
"""The UDP port on which a switch takes contributions."""

VERSION = 2
"""The format described here."""

LANE_BYTES = 4
"""A lane is a signed 32-bit integer in network byte order."""

MAX_WORKERS = 32
"""Workers of one job on one switch: the bits of ``workers``."""


class Kind(enum.IntEnum):
    """What an innet packet is."""

    CONTRIBUTION = 1  # worker -> switch: one chunk of a worker's vector
    RESULT = 2  # switch -> worker: the chunk's sum over the workers
    PENDING = 3  # switch -> worker: had that already, still waiting for others
    HELLO = 4  # worker -> controller, through the switch: where am I attached?
    CLEAR = 5  # controller -> switch: forget what this cell holds
    STALE = 6  # switch -> worker: the slot has gone on without this contribution


WITH_LANES = frozenset({Kind.CONTRIBUTION, Kind.RESULT, Kind.PENDING, Kind.STALE})
"""The kinds of packets that carry a chunk; the others are bare headers."""


class Operation(enum.IntEnum):
    """How lanes combine."""

    SUM = 1  # signed, saturating
    MAX = 2  # signed


class Flag(enum.IntFlag):
    """What a contribution says of itself; in a result, what any of its contributions said."""

    OVERFLOW = 1  # a lane has left the range in which no sum can overflow, or a sum has overflowed
    NOT_FINITE = 2  # a worker has a NaN or an infinity here that the agreed scale does not tell


@dataclass(frozen=True)
class Field:
    """One unsigned field of a header."""

    name: str
    bits: int


HEADER = (
    Field("version", 8),
    Field("kind", 8),
    Field("operation", 8),
    Field("count", 8),
    Field("job", 16),
    Field("epoch", 16),
    Field("slot", 16),
    Field("flags", 16),
    Field("sequence", 32),
    Field("workers", 32),
    Field("check", 32),
)
"""The header behind UDP, in order; see ``innet/p4/shared/headers.p4`` for what the fields mean."""

HEADER_BYTES = sum(field.bits for field in HEADER) // 8
