"""The congestion window: the number of chunks that may be in flight, which follows loss and marks.

The job's slots bound the window from above. Below that bound, the window depends on the results of each
round trip. A result counts as lost if it needed a retransmission because a packet was lost. It is marked
if a switch, or another hop, had a long queue on the way of a contribution or of the result.

* **More than an eighth lost**: a queue overflows, and the window shrinks.
* **Some marked**: the window shrinks by half the share of marked results, averaged over round trips.
  This is DCTCP (RFC 8257): a long queue halves the window, and a queue that is just too long costs
  little.
* **Some lost, while packets queue**: a window of more than 128 chunks shrinks, but not below 128. On a
  path that has marked packets not long ago, this limit is the window's first size, 32 chunks. Packets
  queue if a round trip takes more than twice the shortest. If they do not queue, losses are chance.
* **At most an eighth lost**: while the window is below the size at which it last shrank, it doubles
  (slow start).
* **At most a thirty-second lost**: from that size on, it grows by a thirty-second, or by one. While a
  single loss would shrink it, it grows only as fast as that of a TCP Reno with the same factor (RFC
  9438, section 4.3).

The window grows only if more was due than it let through.

Loss by itself is no sign of congestion: links also lose packets at random. A window that shrank at
every loss, as TCP Reno's does, would leave a link with 1 % loss mostly idle. BBR version 2 also
tolerates some loss. Delay by itself is no sign either: a result also waits for other workers, and for
processors. Both together may still be chance where processors are busy, so they shrink only a large
window.

Flows that ignore marks may keep a queue long, whatever this window does. A TCP without ECN does so. A
window that obeyed the marks would leave the whole link to such a flow. So the window competes if nearly
all results of many round trips stay marked although it shrinks. It begins again with slow start, and
follows loss, as TCP's window does. It obeys the marks again after a round trip without marks. It also
does so from time to time, because the queue may then consist of its own packets.

This module is pure logic: the caller brings the counts.
"""

from dataclasses import dataclass

_FIRST = 32
_LEAST = 4
_LARGE = 128
_HEAVY, _LIGHT = 1 / 8, 1 / 32  # shares of a round trip's results
_FEW = 3  # losses that never count as heavy, however few the results
_SHRINKING = 0.7
_FRIENDLY = 3 * (1 - _SHRINKING) / (1 + _SHRINKING)  # chunks in a round trip, as in RFC 9438
_GAIN = 1 / 16  # of the marked share's average, as in RFC 8257
_FORGOTTEN = 1 / 64  # below this average share, the last marks are long ago
_IN_VAIN = 16  # round trips with nearly all results marked, after which marks do not count
_COMPETING = 256  # round trips in which marks did not count, after which they count again


@dataclass(slots=True)
class _RoundTrip:
    """The counts of a round trip, which ends with the result of a chunk that was sent during it."""

    began: float
    results: int = 0
    lost: int = 0
    marked: int = 0
    limited: bool = False  # more was due than the window let through

    @property
    def heavily_lost(self) -> bool:
        return self.lost > max(_FEW, _HEAVY * self.results)

    @property
    def nearly_all_marked(self) -> bool:
        return self.marked > (1 - _HEAVY) * self.results


class CongestionWindow:
    """The number of chunks that may be in flight: from 4 to `most`, or `most` if that is below 4."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._least = min(_LEAST, most)
        self._first = min(_FIRST, most)
        self._size = float(self._first)
        self._threshold = float(most)
        self._round_trip = _RoundTrip(float("-inf"))
        self._marked_share = 1.0  # RFC 8257's alpha, which begins with 1
        self._path_marks = False
        # Round trips with nearly all results marked, minus the others. While competing: all with marks.
        self._in_vain = 0

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
        """Return whether the window keeps its size unless packets are lost or marked."""
        return self._size >= self._most

    @property
    def _competing(self) -> bool:
        return self._in_vain >= _IN_VAIN

    def limits(self) -> None:
        """Note that more was due than the window let through."""
        self._round_trip.limited = True

    def silence(self) -> None:
        """Shrink the window to its minimum, because nothing is answered any more."""
        self._threshold = max(self._size / 2, float(self._least))
        self._size = float(self._least)

    def delivered(
        self,
        results: int,
        lost: int,
        sent_at: float,
        now: float,
        marked: int = 0,
        *,
        queueing: bool = False,
    ) -> None:
        """Take in `results` results, of which `marked` are marked. `lost` of their chunks had been lost.

        `sent_at` is the latest time at which any chunk was sent whose result has arrived so far.
        `queueing` tells whether a round trip takes more than twice the shortest.
        """
        this = self._round_trip
        this.results += results
        this.lost += lost
        this.marked += marked
        if sent_at >= this.began:
            self._learn(this)
            self._adapt(this, queueing=queueing)
            self._round_trip = _RoundTrip(now)

    def _learn(self, this: _RoundTrip) -> None:
        """Average the share of marked results, and notice that the window shrinks in vain."""
        self._marked_share += _GAIN * (this.marked / this.results - self._marked_share)
        recent = self._marked_share > _FORGOTTEN
        self._path_marks = this.marked > 0 or (self._path_marks and recent)
        if not this.marked or self._in_vain == _IN_VAIN + _COMPETING:
            self._in_vain = 0
        elif this.nearly_all_marked or self._competing:
            self._in_vain += 1
            if self._in_vain == _IN_VAIN:
                self._threshold = float(self._most)
        else:
            self._in_vain = max(0, self._in_vain - 1)

    def _adapt(self, this: _RoundTrip, *, queueing: bool) -> None:
        patience = self._first if self._path_marks else min(_LARGE, self._most)
        congested = queueing and self._size > patience
        if this.heavily_lost:
            self._shrink(_SHRINKING, self._least)
        elif this.marked and not self._competing:
            self._shrink(1 - self._marked_share / 2, self._least)
        elif this.lost and congested:
            self._shrink(_SHRINKING, patience)
        elif this.limited and self._size < self._threshold:
            self._size = min(2 * self._size, self._threshold)
        elif this.limited and this.lost <= _LIGHT * this.results:
            step = _FRIENDLY if congested else max(1.0, _LIGHT * self._size)
            self._size = min(self._size + step, float(self._most))

    def _shrink(self, factor: float, least: int) -> None:
        if self._size > least:
            self._size = self._threshold = max(factor * self._size, float(least))
