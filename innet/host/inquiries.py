"""Inquiries: questions about the workers that a chunk lacks when it is past its deadline.

A worker whose chunk has no result by the deadline repeats its contribution. The switch answers PENDING,
with the bitmap of those that have contributed. The others are late, and an `Inquiries` counts how often
each of them was. This is pure logic: the caller brings the clock, and sends the packets.

The deadline is a number of seconds after the contribution was sent. Without one it adapts: it is four
times the shortest round trip that this worker has had. The delay of the network alone does not make a
contribution so late. Many contributions are late for a moment, since processors are busy. So one answer
says little, and :mod:`innet.host.late_workers` looks at all answers of an exchange.

An inquiry is a packet with lanes. While the worker's own link is busy, an inquiry would delay the
worker's chunks, and the worker waits for nobody else. So it asks only when its link has nothing to send.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

_ROUND_TRIPS = 4
_SHORTEST = 0.004  # seconds, the least deadline: processors delay packets by about so much
_SPACING = 1 / 2  # of the time since the exchange began, so that a long exchange has few inquiries
_FEWEST = 3  # answers that say something about an exchange


@dataclass
class Inquiries:
    """The inquiries of an exchange, with a `deadline` in seconds; None adapts it."""

    deadline: float | None = None
    age: float = float("inf")
    """The seconds after which a chunk without a result is past its deadline."""
    at: float = float("inf")
    """The time of the next inquiry."""
    seconds: float = 0.0
    """The time that the exchanges over the switch have taken so far."""
    answers: int = 0
    lacking: Counter[int] = field(default_factory=Counter)
    _began: float = 0.0

    def begin(self, now: float, least_round_trip: float) -> None:
        """Begin an exchange, or go on with it in another term."""
        self.age = self.deadline or max(_SHORTEST, _ROUND_TRIPS * least_round_trip)
        self._began, self.at = now, now + self.age

    def end(self, now: float) -> None:
        """Note that an exchange is over."""
        self.seconds += now - self._began

    def postpone(self, now: float) -> None:
        """Note that it was time for an inquiry, and that this worker's own link was busy."""
        self.at = now + self.age

    def asked(self, now: float) -> None:
        """Note that it was time for an inquiry, whether a chunk was past its deadline or not."""
        self.at = now + max(self.age, _SPACING * (now - self._began))

    def take(self, missing: Iterable[frozenset[int]]) -> None:
        """Take the ranks that each answer of a switch names."""
        for ranks in missing:
            self.answers += 1
            self.lacking.update(ranks)

    def lateness(self, rank: int) -> int | None:
        """Return the percentage of answers that lack a rank, or None if there were too few."""
        return 100 * self.lacking[rank] // self.answers if self.answers >= _FEWEST else None
