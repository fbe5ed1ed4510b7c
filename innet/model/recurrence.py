"""The slot protocol without loss, for all workers at once, chunk by chunk.

Without loss, every link carries the chunks in their order. So the times of chunk c follow from those
of earlier chunks, with maxima and additions only::

    sent(c)      = result(c - S), or the worker's start for the first S chunks
    free(c)      = max(free(c - 1), arrival(c)) + packet      of each link, for the next packet
    complete(c)  = max of arrivals(c) over the nodes below    of each switch

This is a max-plus linear system (Baccelli et al., "Synchronization and Linearity", 1992, chapter 2).
It gives the same times as :mod:`innet.model.events`, by array operations over all links of a level.

Such a system becomes periodic: from some chunk on, each window of S chunks takes as long as the one
before, for every worker and every link. All that follows is then known. This does not hold with
background traffic, whose bursts come at times of their own.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from innet.errors import UsageError
from innet.model.nodes import Direction, ModelNode, nodes
from innet.model.scenario import Scenario, SimulationResult

Seconds = npt.NDArray[np.float64]

_EQUAL = 1e-9
"""Two windows take equally long if their times differ by no more than this share."""


def run(scenario: Scenario) -> SimulationResult:
    """Return the result of :func:`innet.model.events.run`, also for thousands of workers.

    Raises UsageError if a link loses packets: chunks then overtake each other.
    """
    if scenario.lossy:
        raise UsageError("a recurrence knows no lost packets: simulate them with events")
    return _Recurrence(scenario).run()


class _Recurrence:
    """The times of the last S results, for each worker, and the tree that they pass."""

    def __init__(self, scenario: Scenario) -> None:
        self._scenario = scenario
        self._chunks, self._slots = scenario.chunks, scenario.slots.slots
        self._levels = _levels(nodes(scenario))
        starts = np.array([node.start for node in self._levels[0].nodes])
        self._results = np.tile(starts, (min(self._slots, self._chunks), 1))

    def run(self) -> SimulationResult:
        """Go through the chunks, by windows, until the rest is periodic."""
        chunk = carried = 0
        while chunk < self._chunks:
            before = [each.free for each in self._lines()]
            window = min(self._slots, self._chunks - chunk)
            shifts = self._window(window)
            chunk, carried = chunk + window, carried + window
            if shift := self._period(shifts, before):
                chunk += self._skip(shift, (self._chunks - chunk) // self._slots)
        last = (self._chunks - 1) % self._slots
        links = sum(len(level.nodes) for level in self._levels)
        return SimulationResult(
            float(self._results[last].max()),
            self._scenario.workers * self._chunks, 0, 0, 2 * carried * links,
        )  # fmt: skip

    def _window(self, window: int) -> tuple[float, float]:
        """Carry a window of chunks. Return the shortest and the longest time between uses of a slot."""
        least, greatest = np.inf, 0.0
        for row in self._results[:window]:
            arrived = self._carried(row)
            shift = arrived - row
            least, greatest = min(least, shift.min()), max(greatest, shift.max())
            row[:] = arrived
        return float(least), float(greatest)

    def _carried(self, now: Seconds) -> Seconds:
        """Return the arrival of a chunk's result at each worker, given when each sends the chunk."""
        for level in self._levels:
            now = level.complete(level.up.carry(now))
        for level in reversed(self._levels):
            now = level.down.carry(now[level.parents])
        return now

    def _lines(self) -> list["_Lines"]:
        return [line for level in self._levels for line in (level.up, level.down)]

    def _period(self, shifts: tuple[float, float], before: Sequence[Seconds]) -> float:
        """Return the seconds of a window if all later windows take as long; otherwise 0."""
        least, greatest = shifts
        for line, free in zip(self._lines(), before, strict=True):
            if line.loaded or not np.isfinite(free).all():
                return 0.0
            shift = line.free - free
            least, greatest = min(least, shift.min()), max(greatest, shift.max())
        return greatest if greatest - least <= _EQUAL * greatest else 0.0

    def _skip(self, period: float, windows: int) -> int:
        """Move all times on by `windows` windows. Return the number of chunks in them."""
        self._results += windows * period
        for line in self._lines():
            line.free = line.free + windows * period
        return windows * self._slots


class _Level:
    """The nodes of one level, in the order of their parents, with their links up and down."""

    def __init__(self, families: Sequence[tuple[ModelNode, ...]]) -> None:
        self.nodes = [node for family in families for node in family]
        sizes = [len(family) for family in families]
        self.parents = np.repeat(np.arange(len(sizes)), sizes)
        self._first = np.cumsum([0, *sizes[:-1]])
        self.up = _Lines([node.up for node in self.nodes])
        self.down = _Lines([node.down for node in self.nodes])

    def complete(self, arrivals: Seconds) -> Seconds:
        """Return when each parent has the contributions of all its nodes."""
        found: Seconds = np.maximum.reduceat(arrivals, self._first)
        return found


def _levels(top: tuple[ModelNode, ...]) -> list[_Level]:
    """Return the levels from the workers upwards, given the nodes below the top switch."""
    found = [_Level([top])]
    while found[0].nodes[0].below:
        found.insert(0, _Level([node.below for node in found[0].nodes]))
    return found


class _Lines:
    """One direction of all links of a level. Each sends one packet after the other.

    `free` is the time at which each link has sent all packets that came so far.
    """

    def __init__(self, directions: Sequence[Direction]) -> None:
        self._packet = _column(directions, "packet")
        self._bucket = _column(directions, "bucket")
        self._delay = _column(directions, "delay")
        self.loaded = any(each.work for each in directions)
        if self.loaded:
            self._background = _Background(directions, self._bucket)
        self.free: Seconds = np.full(len(directions), -np.inf)

    def carry(self, now: Seconds) -> Seconds:
        """Send a packet at the given time of each link. Return the time of each arrival."""
        free = self._background.sent(self.free, now) if self.loaded else self.free
        self.free = np.maximum(free, now - self._bucket)
        self.free += self._packet
        arrival: Seconds = np.maximum(self.free, now)
        arrival += self._delay
        return arrival


class _Background:
    """The background traffic of the links in one direction of a level."""

    def __init__(self, directions: Sequence[Direction], bucket: Seconds) -> None:
        self._work, self._bucket = _column(directions, "work"), bucket
        self._period = _column(directions, "period")
        self._phase = _column(directions, "phase")
        self._last = np.full(len(directions), -2.0)

    def sent(self, free: Seconds, now: Seconds) -> Seconds:
        """Return when each link is free after the bursts that have come by now.

        A burst takes less time than the period between bursts. So there are two cases. If the
        backlog lasts until the last burst, the link sends all bursts one after the other. Otherwise
        the last burst finds the link free. The later of the two times is right.
        """
        last = np.floor((now - self._phase) / self._period)
        alone = self._phase + last * self._period - self._bucket + self._work
        after = np.maximum(free + (last - self._last) * self._work, alone)
        after = np.where(last > self._last, after, free)
        self._last = last
        return after


def _column(directions: Sequence[Direction], name: str) -> Seconds:
    """Return one value of each link, or one for all if they are the same."""
    values = np.array([getattr(each, name) for each in directions])
    return values[:1] if (values == values[0]).all() else values
