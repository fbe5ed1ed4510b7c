"""The fate of a packet on a cable with faults: its copies, their delays and their damage."""

import sys
from dataclasses import asdict, dataclass

UP, DOWN = 0, 1
"""Directions: from the agent to the switch, and back."""


@dataclass(frozen=True)
class Flip:
    """Inverted bits, counted from the frame's first bit, modulo the length of the frame."""

    bits: tuple[int, ...]

    def __call__(self, frame: bytes) -> bytes:
        """Return the damaged frame."""
        damaged = bytearray(frame)
        for bit in self.bits if frame else ():
            damaged[bit // 8 % len(frame)] ^= 0x80 >> bit % 8
        return bytes(damaged)


@dataclass(frozen=True)
class Overwrite:
    """Bytes that replace others; the frame's size stays."""

    at: int
    content: bytes

    def __call__(self, frame: bytes) -> bytes:
        """Return the damaged frame."""
        return (frame[: self.at] + self.content + frame[self.at + len(self.content) :])[
            : len(frame)
        ]


@dataclass(frozen=True)
class Resize:
    """A frame cut off after `size` bytes, or lengthened to that size by repeating `filling`."""

    size: int
    filling: bytes = b"\0"

    def __call__(self, frame: bytes) -> bytes:
        """Return the damaged frame."""
        lacking = max(0, self.size - len(frame))
        return (frame + self.filling * lacking)[: self.size]


Damage = Flip | Overwrite | Resize

UNTIL_RELEASED = sys.maxsize


@dataclass(frozen=True)
class Copy:
    """A copy of a packet that comes out at the other end.

    It comes out after `after` later packets of its direction have gone in, or when the
    program that set the fault releases it.
    """

    after: int = 0
    damage: Damage | None = None


Fate = tuple[Copy, ...]
"""All copies of one packet that come out."""

LOST: Fate = ()
TWICE: Fate = (Copy(), Copy())
OVERTAKEN: Fate = (Copy(after=1),)
HELD: Fate = (Copy(UNTIL_RELEASED),)
AGAIN_LATE: Fate = (Copy(), Copy(UNTIL_RELEASED))


def damaged(damage: Damage) -> Fate:
    """Return the fate of a packet that comes out at once, damaged."""
    return (Copy(damage=damage),)


@dataclass(frozen=True)
class Faults:
    """The probability of each fault, for every packet independently.

    A packet may be lost or come out twice. Every copy may be overtaken by a few packets, delayed by
    up to 10,000 packets, or damaged.
    """

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay: float = 0.0
    corrupt: float = 0.0

    @classmethod
    def all(cls, chance: float) -> "Faults":
        """Return all faults with the same probability."""
        return cls(chance, chance, chance, chance, chance)


@dataclass(frozen=True)
class Line:
    """The capacity of a direction: bytes of frames per second, and bytes that may wait in the queue."""

    rate: float
    queue: int


@dataclass
class FateCounts:
    """The numbers of packets in one direction so far, by fate."""

    packets: int = 0  # gone in
    scripted: int = 0  # with a fate from the script
    dropped: int = 0
    duplicated: int = 0
    reordered: int = 0
    delayed: int = 0
    corrupted: int = 0
    crowded_out: int = 0  # the queue was full
    sent: int = 0  # copies that came out
    held: int = 0  # copies still inside

    @property
    def faults(self) -> dict[str, int]:
        """Return the random faults, by the names of :class:`Faults`."""
        names = "dropped duplicated reordered delayed corrupted".split()
        return dict(zip(asdict(Faults()), (getattr(self, name) for name in names), strict=True))
