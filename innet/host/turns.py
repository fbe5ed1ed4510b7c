"""An exchange's turns: send what is due, take what comes, and see what that says about the way.

:class:`innet.host.numpy_turns.NumpyTurns` says what a turn is, for one batch of packets. Where there is a
compiler, :class:`innet.host.fastpath.Turns` does the same to many batches in one call.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from innet.host.integers import Flags, Integers, Reduction
from innet.wire.records import Records

BATCHES = 16
"""How many batches a turn has at most: so that what is said from outside is soon heard."""


@dataclass(frozen=True)
class Terms:
    """What is decided before a turn; times in seconds of the agent's clock.

    `most` chunks may be under way. If nothing comes, the turn ends at `until`. While there is more to
    send than `most`, `pause` lets packets come together. A turn ends when a chunk has its result that
    was sent after `round_began`, if packets were lost or the window is not `steady`, and after `batches`.
    `too_soon` and `reordering` are the window's; a turn of many batches raises `reordering` to the round
    trips that it sees, as queues fill. `owed_since`: since when the switch owes an answer, or infinity.
    """

    most: int
    until: float
    pause: float
    round_began: float
    too_soon: float
    reordering: float
    owed_since: float = math.inf
    steady: bool = False
    batches: int = BATCHES


@dataclass
class Turn:
    """What has happened in a turn that ended at `now`.

    `sent` packets, of which `repetitions`, the last at `sent_at`; `limited`: there was more to send.
    `received` packets have `finished` chunks, the `first` of the exchange among them or not, the last at
    `result_at`; `lost` of them had been lost before. `round_trips`: one for each batch that tells it.
    `others` is a batch with replies that are not results: the turn ends, and it is still to be taken.
    """

    now: float
    owed_since: float
    others: Records
    sent: int = 0
    repetitions: int = 0
    limited: bool = False
    sent_at: float = -math.inf
    received: int = 0
    finished: int = 0
    first: bool = False
    lost: int = 0
    result_at: float = -math.inf
    round_trips: Sequence[float] = ()


class Turns(Protocol):
    """Those of a worker in one epoch."""

    def start(self, chunks: Integers, own_flags: Flags, result: Reduction) -> None:
        """Begin an exchange: `chunks` go out, (n, lanes), and `result` comes in, of the same shape."""

    def stop(self) -> None:
        """The exchange is over: its vectors are let go."""

    def turn(self, terms: Terms) -> Turn:
        """Send and take until there is something to decide. Raises OSError."""
