"""Stalls: workers that wait for others, and how long a wait has to be to count as one."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from innet.rpc import innet_pb2 as pb

STALLED_S = 2.0
"""Seconds without a result after which a worker counts as held up. Retransmissions take 1 s at most."""

SILENT_S = 2.0
"""Seconds without an answer after which a worker counts as cut off: switches answer every repetition."""

_MOST_TOLD = 8
"""The most stalls of which each gets a line: thousands of workers may wait for the same one."""


@dataclass(frozen=True)
class Stall:
    """A worker that is held up, and its progress. `missing` are the ranks that it waits for."""

    rank: int
    progress: pb.Progress
    missing: frozenset[int]

    @property
    def informed(self) -> bool:
        """Return whether the switch has told this worker that others are missing."""
        heard = self.progress.silent_s < SILENT_S
        return heard and bool(self.progress.missing)

    def __str__(self) -> str:
        at = self.progress
        where = f", in slot {at.slot} with sequence number {at.sequence}" if at.sequence else ""
        return (
            f"worker {self.rank} has waited {at.stuck_s:.1f} s for chunk {at.chunk} of {at.chunks} "
            f"in exchange {at.exchange}{where}"
        )


def chunk_of(at: pb.Progress) -> tuple[int, int, int]:
    """Return what tells the chunk that a worker waits for from all others."""
    return at.exchange, at.chunk, at.sequence


def in_words(stalls: Sequence[Stall]) -> Iterator[str]:
    """Yield a line for each stall, or for the first ones and for the number of the others."""
    yield from map(str, stalls[:_MOST_TOLD])
    if (more := len(stalls) - _MOST_TOLD) > 0:
        yield f"and {more} more workers wait"
