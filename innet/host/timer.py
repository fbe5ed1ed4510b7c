"""Timers for missing replies: RFC 6298's estimate of the round trip, and probes that back off.

This is pure arithmetic over seconds: the caller brings the clock.
"""

from collections.abc import Sequence
from dataclasses import dataclass

_GAIN = 1 / 8
_DEVIATION_GAIN = 1 / 4
_MOST_DOUBLINGS = 16


@dataclass
class RetransmissionTimer:
    """The time after which a missing reply counts as lost.

    `shortest` and `longest` bound the timeout. `granularity` is the smallest time that the clock
    and the wait for packets can resolve. `timeout` is used as it is before the first sample.

    `least` is the shortest round trip, or 0 before the first. `queueing` is the usual round trip minus
    the shortest: the time that packets spend in queues.
    """

    shortest: float = 0.005
    longest: float = 1.0
    granularity: float = 0.001
    timeout: float = 0.1
    smoothed: float | None = None
    least: float = 0.0
    queueing: float = 0.0
    _deviation: float = 0.0

    def learn(self, round_trips: Sequence[float]) -> None:
        """Learn from the round trips of packets that were sent only once (Karn's rule), in order."""
        if not round_trips:
            return
        if self.smoothed is None:
            self.smoothed = self.least = round_trips[0]
            self._deviation = round_trips[0] / 2
            round_trips = round_trips[1:]
        smoothed, deviation = self.smoothed, self._deviation
        for round_trip in round_trips:
            error = round_trip - smoothed
            deviation += _DEVIATION_GAIN * (abs(error) - deviation)
            smoothed += _GAIN * error
        self.least = min([self.least, *round_trips])
        self.smoothed, self._deviation = smoothed, deviation
        self.queueing = smoothed - self.least
        wanted = smoothed + max(self.granularity, 4 * deviation)
        self.timeout = min(max(wanted, self.shortest), self.longest)


@dataclass
class ProbeTimer:
    """The time to ask the switch whether it has the contributions, after a silence.

    A probe that is not answered is repeated after twice the time, and so on. One that is answered
    with "others are missing" is repeated too, since a result may get lost, again after twice the
    time. The wait never exceeds `slowest`, in seconds: probes are few packets.
    """

    retransmission: RetransmissionTimer
    slowest: float = 0.1
    unanswered: int = 0
    _answered: int = 0
    _since: float = 0.0

    def restart(self, now: float) -> None:
        """Start over, because a result has come or an exchange begins."""
        self.unanswered = self._answered = 0
        self._since = now

    def sent(self, now: float) -> None:
        """Note that packets other than a probe were sent, which may yet be answered."""
        self._since = now

    def asked(self, now: float) -> None:
        """Note that the probe was sent."""
        self.unanswered += 1
        self._since = now

    def answered(self, now: float) -> None:
        """Note the switch's answer that others are missing."""
        self._answered += self.unanswered > 0
        self.unanswered = 0
        self._since = now

    @property
    def first_wait(self) -> float:
        """Return the seconds from a result to the probe after it."""
        return self._wait(0)

    @property
    def deadline(self) -> float:
        """Return the time of the next probe."""
        return self._since + self._wait(self.unanswered or self._answered)

    def _wait(self, doublings: int) -> float:
        wait = self.retransmission.timeout * (1 << min(doublings, _MOST_DOUBLINGS))
        return min(wait, self.slowest)
