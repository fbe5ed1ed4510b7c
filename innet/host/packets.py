"""A batch of packets of both lengths: those with lanes, and bare headers."""

from dataclasses import dataclass

from innet.wire.records import Records


@dataclass(frozen=True)
class Packets:
    """Packets that were received together, or that are sent together, each length in order."""

    full: Records
    bare: Records

    def __len__(self) -> int:
        return len(self.full) + len(self.bare)
