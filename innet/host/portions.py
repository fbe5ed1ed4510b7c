"""Portions of a vector: the chunks whose lanes a worker sends, and those whose lanes it receives.

Every worker contributes to every chunk, and gets an answer for each. But a contribution without lanes
adds nothing, and a result may come without them. So a reduce-scatter's lanes come down for their owner
only, and an all-gather's go up from their owner only.
"""

from dataclasses import dataclass

import numpy as np

from innet.host.integers import Flags
from innet.wire.layout import Flag


@dataclass(frozen=True)
class Portions:
    """A worker's portions of an exchange of n chunks.

    `flags`, (n,) uint16, have CARRIED and WANTED. A contribution has a row for each chunk of `sent`, and
    a result for each of `received`, which are ranges that hold at least the flagged chunks.
    """

    flags: Flags
    sent: range
    received: range

    @classmethod
    def of(cls, chunks: int, sent: range, received: range) -> "Portions":
        """Return the portions that are these ranges."""
        flags = np.zeros(chunks, np.uint16)
        flags[sent.start : sent.stop] = Flag.CARRIED
        flags[received.start : received.stop] |= np.uint16(Flag.WANTED)
        return cls(flags, sent, received)

    @classmethod
    def whole(cls, chunks: int) -> "Portions":
        """Return the portions of an all-reduce."""
        return cls.of(chunks, range(chunks), range(chunks))
