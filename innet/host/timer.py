"""When something is missing: RFC 6298's estimate of the round trip, and questions that back off.

Pure arithmetic over seconds: the caller brings the clock.
"""

from dataclasses import dataclass

_GAIN = 1 / 8
_DEVIATION_GAIN = 1 / 4
_MOST_DOUBLINGS = 16


@dataclass
class RetransmissionTimer:
    """Estimates after what time a missing reply counts as lost.

    `shortest` and `longest` bound the timeout; `granularity` is the least that the clock and the
    wait for packets can tell apart. Before the first sample the timeout is as given.
    """

    shortest: float = 0.005
    longest: float = 1.0
    granularity: float = 0.001
    timeout: float = 0.1
    smoothed: float | None = None
    _deviation: float = 0.0
    _least: float = float("inf")

    @property
    def queueing(self) -> float:
        """What of the usual round trip is spent in queues: how much longer it is than the shortest."""
        return self.smoothed - self._least if self.smoothed is not None else 0.0

    def sample(self, round_trip: float) -> None:
        """Learn from a round trip of a packet that was sent only once (Karn's rule)."""
        self._least = min(self._least, round_trip)
        if self.smoothed is None:
            self.smoothed = round_trip
            self._deviation = round_trip / 2
        else:
            error = round_trip - self.smoothed
            self._deviation += _DEVIATION_GAIN * (abs(error) - self._deviation)
            self.smoothed += _GAIN * error
        wanted = self.smoothed + max(self.granularity, 4 * self._deviation)
        self.timeout = min(max(wanted, self.shortest), self.longest)


@dataclass
class ProbeTimer:
    """When to ask the switch whether it has what was sent, after nothing has come for a while.

    A question that is not answered is repeated after twice the time, and so on. One that is answered,
    "others are missing", is repeated as well, since a result may get lost: again after twice the
    time. Longer than `slowest`, in seconds, it never waits: questions are few packets.
    """

    retransmission: RetransmissionTimer
    slowest: float = 0.1
    unanswered: int = 0
    _answered: int = 0
    _since: float = 0.0

    def restart(self, now: float) -> None:
        """A result has come, or an exchange begins."""
        self.unanswered = self._answered = 0
        self._since = now

    def sent(self, now: float) -> None:
        """Something else was sent, so that an answer may yet come without a question."""
        self._since = now

    def asked(self, now: float) -> None:
        """The question was sent."""
        self.unanswered += 1
        self._since = now

    def answered(self, now: float) -> None:
        """The switch says that others are missing."""
        self._answered += self.unanswered > 0
        self.unanswered = 0
        self._since = now

    @property
    def deadline(self) -> float:
        """When to ask next."""
        doublings = min(self.unanswered or self._answered, _MOST_DOUBLINGS)
        wait = self.retransmission.timeout * (1 << doublings)
        return self._since + min(wait, self.slowest)
