"""The congestion window: the number of chunks that may be in flight, which follows packet loss.

The job's slots bound the window from above. Below that bound it depends on the share of a round
trip's results that needed a retransmission because a packet was lost:

* **More than an eighth**: a queue overflows, and the window shrinks.
* **At most an eighth**: while the window is below the size at which it last shrank, it doubles
  (slow start).
* **At most a thirty-second**: from that size on, it grows by a thirty-second, or by one.

It grows only if more was due than it let through.

Loss by itself is no sign of congestion: links also lose packets at random. A window that shrank at
every loss, as TCP Reno's does, would leave a link with 1 % loss mostly idle. BBR version 2 also
tolerates some. Delay is no sign either: a result also waits for other workers, and for processors.

This module is pure logic: the caller brings the counts.
"""

from dataclasses import dataclass

_FIRST = 32
_LEAST = 4
_HEAVY, _LIGHT = 1 / 8, 1 / 32  # shares of a round trip's results
_FEW = 3  # losses that never count as heavy, however few the results
_SHRINKING = 0.7


@dataclass
class _RoundTrip:
    """The counts of a round trip, which ends with the result of a chunk that was sent during it."""

    began: float
    results: int = 0
    lost: int = 0
    limited: bool = False  # more was due than the window let through


class CongestionWindow:
    """Chunks that may be in flight at once: from 4 to `most`, or `most` if that is less."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._least = min(_LEAST, most)
        self._size = float(min(_FIRST, most))
        self._threshold = float(most)
        self._round_trip = _RoundTrip(float("-inf"))

    @property
    def size(self) -> int:
        """Return the number of chunks that may be in flight."""
        return int(self._size)

    @property
    def round_trip_began(self) -> float:
        """Return when the present round trip began. The result of a chunk sent since then ends it."""
        return self._round_trip.began

    @property
    def steady(self) -> bool:
        """Return whether the window keeps its size unless packets are lost."""
        return self._size >= self._most

    def limits(self) -> None:
        """Note that more was due than the window let through."""
        self._round_trip.limited = True

    def silence(self) -> None:
        """Shrink the window to its minimum, because nothing is answered any more."""
        self._threshold = max(self._size / 2, float(self._least))
        self._size = float(self._least)

    def delivered(self, results: int, lost: int, sent_at: float, now: float) -> None:
        """Take in `results` results; `lost` of their chunks had been lost before.

        `sent_at` is the latest time at which any chunk was sent whose result has arrived so far.
        """
        this = self._round_trip
        this.results += results
        this.lost += lost
        if sent_at < this.began:
            return
        if this.lost > max(_FEW, _HEAVY * this.results):
            self._size = self._threshold = max(_SHRINKING * self._size, float(self._least))
        elif this.limited and self._size < self._threshold:
            self._size = min(2 * self._size, self._threshold)
        elif this.limited and this.lost <= _LIGHT * this.results:
            self._size = min(self._size + max(1.0, _LIGHT * self._size), float(self._most))
        self._round_trip = _RoundTrip(now)
