"""The retransmission timer: RFC 6298's estimator, with times in seconds."""

from dataclasses import dataclass

_GAIN = 1 / 8
_DEVIATION_GAIN = 1 / 4


@dataclass
class RetransmissionTimer:
    """Estimates after what time a missing reply counts as lost.

    `shortest` and `longest` bound the timeout. Pure arithmetic: the caller brings the clock.
    """

    shortest: float = 0.05
    longest: float = 1.0
    timeout: float = 0.2
    _smoothed: float | None = None
    _deviation: float = 0.0

    def sample(self, round_trip: float) -> None:
        """Learn from a round trip of a packet that was sent only once (Karn's rule)."""
        if self._smoothed is None:
            self._smoothed = round_trip
            self._deviation = round_trip / 2
        else:
            error = round_trip - self._smoothed
            self._deviation += _DEVIATION_GAIN * (abs(error) - self._deviation)
            self._smoothed += _GAIN * error
        wanted = self._smoothed + 4 * self._deviation
        self.timeout = min(max(wanted, self.shortest), self.longest)
