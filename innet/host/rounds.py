"""I/O rounds of an exchange: send due packets, receive, and learn about the path.

:class:`innet.host.numpy_rounds.NumpyRounds` defines a round, for one batch of packets. If there is a
compiler, :class:`innet.host.compiled_rounds.CompiledRounds` does the same for many batches in one call.
"""

import math
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from innet.host.integers import Flags, Integers, Reduction
from innet.host.packets import Packets

BATCHES = 256
"""The most batches in a round. Usually the time ends it, or a result that was waited for."""


@dataclass(slots=True)
class RoundLimits:
    """The limits of an I/O round, set before it; times in seconds of the agent's clock.

    Up to `most` chunks may be in flight. If nothing comes, the round ends at `until`, or `idle` seconds
    after the last result if that is later, but at most 0.1 s after `until`. A round
    ends after `batches`. It also ends with the result of a chunk sent after `round_trip_began`, if
    packets were lost or marked, or if the window is not `steady`.

    Contributions with lanes stay with the worker while `most_queued` packets wait for the host's own
    link. Rounds in numpy do not look at that queue.

    `too_soon` and `reordering` are arguments of the window's methods. A round of many batches raises
    `reordering` to the round trips that it measures, because queues fill. Since `owed_since` the switch
    owes an answer; it is infinity if the switch owes none.
    """

    most: int
    until: float
    round_trip_began: float
    too_soon: float
    reordering: float
    owed_since: float = math.inf
    steady: bool = False
    most_queued: int = sys.maxsize
    idle: float = 0.0
    batches: int = BATCHES


@dataclass(slots=True)
class RoundOutcome:
    """The events of an I/O round that ended at `now`.

    It has sent `sent` packets, the last at `sent_at`. `bare_sent` of them had no lanes, and
    `repetitions` were retransmissions. `limited` tells whether more was due. The `received` packets,
    `bare_received` of them without lanes, have completed `finished` chunks, the last at `result_at`.
    `first` tells whether the exchange's first chunk was one of them. `lost` of the finished chunks
    had been lost before, and `marked` of them found long queues on their way. `round_trips` has one
    for each batch that allows a measurement.

    `others` is a batch that contains replies other than results, if there is one. It ends the round,
    and the caller still has to process it.
    """

    now: float
    owed_since: float
    others: Packets | None = None
    sent: int = 0
    bare_sent: int = 0
    repetitions: int = 0
    limited: bool = False
    sent_at: float = -math.inf
    received: int = 0
    bare_received: int = 0
    finished: int = 0
    first: bool = False
    lost: int = 0
    marked: int = 0
    result_at: float = -math.inf
    round_trips: Sequence[float] = ()


class IoRounds(Protocol):
    """A worker's I/O rounds in one term."""

    def start(
        self,
        chunks: Integers,
        own_flags: Flags,
        result: Reduction,
        first: int = 0,
        order: Integers | None = None,
    ) -> None:
        """Begin an exchange of n chunks that fills `result`.

        `own_flags`, (n,), tell which chunks' lanes are sent (CARRIED) and received (WANTED). Those
        that are sent are the rows of `chunks`, (rows, lanes), from chunk `first` on. The chunks go in
        the given `order`, (n,), or else from first to last.

        The chunks may be a scaling, of a type that suits the implementation. It has a row for every
        chunk. If `result` has no lanes then, the scaling takes the sums.
        """

    def stop(self) -> None:
        """Release the vectors of an exchange that is over."""

    def run(self, limits: RoundLimits) -> RoundOutcome:
        """Send and receive until there is something to decide. Raises OSError."""
