"""Stalls: workers that wait for others, and how long a wait has to be to count as one."""

from dataclasses import dataclass

from innet.rpc import innet_pb2 as pb

STALLED_S = 2.0
"""Seconds without a result after which a worker counts as held up. Retransmissions take 1 s at most."""

SILENT_S = 2.0
"""Seconds without an answer after which a worker counts as cut off: switches answer every repetition."""


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
