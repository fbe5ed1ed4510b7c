"""How many chunks may be under way: as many as the way to the switch and back carries.

The slots of a job bound it from above. Below that, the window follows how many of the results of a round
trip took a repetition, because a packet was lost:

* **More than an eighth**: a queue overflows, and the window shrinks.
* **Less than a thirty-second**: it grows; doubling up to where it was last too large (slow start), and
  by a thirty-second, or one, from there on.

Loss as such is no sign: links lose packets by chance too, and a window that shrank at every loss, as
TCP Reno's does, would leave a link with 1 % loss mostly idle. Tolerating some is what BBR version 2 does
as well. Delay is no sign either: a result also waits for other workers, and for processors.

Pure logic: the caller brings the counts.
"""

from dataclasses import dataclass

_FIRST = 32
_LEAST = 4
_HEAVY, _LIGHT = 1 / 8, 1 / 32  # of the results of a round trip
_FEW = 3  # losses that are never heavy, however few the results
_SHRINKING = 0.7


@dataclass
class _Round:
    """What was noticed in a round trip: it lasts until a chunk has its result that was sent in it."""

    began: float
    results: int = 0
    lost: int = 0
    limited: bool = False  # there was more to send than the window let through


class CongestionWindow:
    """Chunks that may be in the network at once: 4 to `most`, or `most`, if that is less."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._least = min(_LEAST, most)
        self._size = float(min(_FIRST, most))
        self._threshold = float(most)
        self._round = _Round(float("-inf"))

    @property
    def size(self) -> int:
        """Chunks that may be in the network."""
        return int(self._size)

    @property
    def round_began(self) -> float:
        """When the present round trip did: it lasts until a chunk has its result that was sent since."""
        return self._round.began

    @property
    def steady(self) -> bool:
        """Whether without losses the window stays as it is."""
        return self._size >= self._most

    def limits(self) -> None:
        """There is more to send than the window lets through."""
        self._round.limited = True

    def silence(self) -> None:
        """Nothing is answered any more: begin again with the least."""
        self._threshold = max(self._size / 2, float(self._least))
        self._size = float(self._least)

    def delivered(self, results: int, lost: int, sent_at: float, now: float) -> None:
        """So many results have come, of which some were `lost` before.

        The latest of their chunks was sent at `sent_at`, or an earlier one was, later than that.
        """
        this = self._round
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
        self._round = _Round(now)
