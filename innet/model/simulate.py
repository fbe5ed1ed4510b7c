"""The slot protocol, packet by packet, in simulated time.

Workers, links with a rate, a delay and a chance of loss, a switch or racks of switches under one. It
follows docs/slot-protocol.md as far as that takes time: chunk c goes through slot c mod S, and a slot's
next chunk starts when its result is in; a contribution that is repeated counts once, and is answered
from the cell when the result is there. A worker repeats a chunk when its result is overdue by a fixed
timeout. The hosts' real timer adapts, and they notice most losses sooner: under loss the simulated times
are upper ones.

Workers that behave the same are simulated once: on links without loss, all that start at the same time
and, where all their racks are the same, all racks. So thousands take as long as one.
"""

import heapq
import math
import random
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from innet.errors import UsageError
from innet.model.all_reduce import Slots


@dataclass(frozen=True)
class Line:
    """A link, each way: bits a second, seconds of delay, and the share of packets that get lost.

    After a rest, `burst` bytes leave at once: the bucket of Linux's tbf, with which emulated links are
    capped.
    """

    rate: float
    delay: float
    loss: float = 0.0
    burst: float = 0.0


@dataclass(frozen=True)
class Scenario:
    """One all-reduce of `size` bytes."""

    workers: int
    size: float
    line: Line
    slots: Slots = field(default_factory=Slots)
    racks: int = 1
    """With more than one, rack switches are joined by `uplink` lines to one above them."""
    uplink: Line | None = None
    starts: tuple[float, ...] = ()
    """When every worker begins, seconds; by default all at 0."""
    timeout: float = 1e-3
    """Seconds until a chunk is sent again."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.workers < 1 or self.racks < 1 or self.workers % self.racks:
            raise UsageError(
                f"{self.workers} workers in {self.racks} racks: every rack takes the same number"
            )
        for line in (self.line, self.uplink or self.line):
            if line.rate <= 0 or min(line.delay, line.burst) < 0 or not 0 <= line.loss < 1:
                raise UsageError(
                    f"{line}: rate above 0, delay and burst from 0 on, loss from 0 to below 1"
                )
        if self.starts and len(self.starts) != self.workers:
            raise UsageError(f"{len(self.starts)} starts for {self.workers} workers")
        if self.timeout <= 0:
            raise UsageError(f"timeout {self.timeout}: it has to be above zero")


@dataclass(frozen=True)
class Outcome:
    """What happened. `seconds` is when the last worker had all; packets are over all workers."""

    seconds: float
    packets_sent: int
    retransmissions: int
    lost: int
    events: int

    def goodput(self, size: float) -> float:
        """Bits of the vector a second."""
        return 8 * size / self.seconds


def simulate(scenario: Scenario) -> Outcome:
    """Run the scenario to its end."""
    return _Simulation(scenario).run()


class _Simulation:
    """The clock and the events, and what is counted."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.slots = scenario.slots.slots
        self.chunks = scenario.slots.chunks(scenario.size)
        self.bits = 8 * scenario.slots.frame
        self.lossy = bool(scenario.line.loss or (scenario.uplink or scenario.line).loss)
        self.random = random.Random(scenario.seed)  # noqa: S311 - a simulation's
        self.now = 0.0
        self.sent = self.repeated = self.lost = 0
        self._events: list[tuple[float, int, Callable[[int], None], int]] = []
        self._scheduled = 0
        self.unfinished = 0

    def at(self, time: float, call: Callable[[int], None], chunk: int) -> None:
        """Let something happen; what is for the same time happens in the order of these calls."""
        self._scheduled += 1
        heapq.heappush(self._events, (time, self._scheduled, call, chunk))

    def run(self) -> Outcome:
        """Until all workers have all results."""
        self._build()
        while self.unfinished:
            self.now, _, call, chunk = heapq.heappop(self._events)
            call(chunk)
        return Outcome(self.now, self.sent, self.repeated, self.lost, self._scheduled)

    def _build(self) -> None:
        scenario = self.scenario
        starts = scenario.starts or (0.0,) * scenario.workers
        size = scenario.workers // scenario.racks
        racks = [tuple(sorted(starts[at : at + size])) for at in range(0, scenario.workers, size)]
        uplink = scenario.uplink or scenario.line
        root = _Switch(self) if scenario.racks > 1 else None
        for rack, alike in _alike(racks, scenario.line.loss or uplink.loss):
            switch = _Switch(self)
            if root:
                switch.join(root, uplink, alike)
            for start, workers in _alike(rack, scenario.line.loss):
                worker = _Worker(self, switch, scenario.line, alike * workers)
                self.at(start, worker.begin, 0)
                self.unfinished += 1


def _alike(given: Sequence[Any], loss: float) -> list[tuple[Any, int]]:
    """Each of the given, and how often it is there; each on its own if they lose different packets."""
    return [(each, 1) for each in given] if loss else list(Counter(given).items())


class _Pipe:
    """One direction of a line: a packet after the other, then the delay, or the loss."""

    def __init__(self, simulation: _Simulation, line: Line, alike: int) -> None:
        self._simulation, self._line, self._alike = simulation, line, alike
        self._takes = simulation.bits / line.rate
        self._ahead = 8 * line.burst / line.rate
        self._free = -math.inf

    def carry(self, deliver: Callable[[int], None], chunk: int) -> None:
        """Send a packet now."""
        simulation = self._simulation
        self._free = max(self._free, simulation.now - self._ahead) + self._takes
        if self._line.loss and simulation.random.random() < self._line.loss:
            simulation.lost += self._alike
        else:
            left = max(self._free, simulation.now)
            simulation.at(left + self._line.delay, deliver, chunk)


class _Switch:
    """Cells that count, and what is below and above."""

    def __init__(self, simulation: _Simulation) -> None:
        self._simulation = simulation
        self._below: list[tuple[_Worker | _Switch, _Pipe]] = []
        self._arrived: dict[int, set[int]] = {}  # of every chunk without a result: which children
        self._done: set[int] = set()  # chunks that have their result
        self._up: Callable[[int], None] | None = None  # send the rack's contribution

    def join(self, above: "_Switch", line: Line, alike: int) -> None:
        """Be a rack's switch."""
        self._up = above.way_up(self, line, alike)

    def way_up(self, child: "_Worker | _Switch", line: Line, alike: int) -> Callable[[int], None]:
        """Attach a child, which stands for `alike` nodes. Returns how it sends a contribution."""
        number = len(self._below)
        self._below.append((child, _Pipe(self._simulation, line, alike)))
        pipe = _Pipe(self._simulation, line, alike)
        return partial(pipe.carry, partial(self._contribution, number))

    def result(self, chunk: int) -> None:
        """The result from above: hand it to all."""
        if chunk not in self._done:
            self._finish(chunk)

    def _contribution(self, number: int, chunk: int) -> None:
        if chunk in self._done:  # from the cell, to whom it asks only
            child, pipe = self._below[number]
            pipe.carry(child.result, chunk)
            return
        arrived = self._arrived.setdefault(chunk, set())
        complete = len(arrived) == len(self._below)
        arrived.add(number)
        if len(arrived) == len(self._below):
            if self._up:
                self._up(chunk)  # once more for a repetition: the way up or down may have lost it
            elif not complete:
                self._finish(chunk)

    def _finish(self, chunk: int) -> None:
        self._arrived.pop(chunk, None)
        self._done.add(chunk)
        # Whoever sends this chunk has the result of the last but one in the slot.
        self._done.discard(chunk - 2 * self._simulation.slots)
        for child, pipe in self._below:
            pipe.carry(child.result, chunk)


class _Worker:
    """Slots, and what is in them."""

    def __init__(self, simulation: _Simulation, switch: _Switch, line: Line, alike: int) -> None:
        self._simulation, self._alike = simulation, alike
        self._send = switch.way_up(self, line, alike)
        self._flying: dict[int, float] = {}  # when the chunk was sent last
        self._missing = simulation.chunks

    def begin(self, _: int) -> None:
        """Fill the slots."""
        for chunk in range(min(self._simulation.slots, self._simulation.chunks)):
            self._transmit(chunk)

    def result(self, chunk: int) -> None:
        """Take a result, and use the slot again."""
        if self._flying.pop(chunk, None) is None:
            return
        self._missing -= 1
        if not self._missing:
            self._simulation.unfinished -= 1
        if chunk + self._simulation.slots < self._simulation.chunks:
            self._transmit(chunk + self._simulation.slots)

    def overdue(self, chunk: int) -> None:
        """Send it again, if this is the last sending's timeout."""
        simulation = self._simulation
        sent = self._flying.get(chunk)
        if sent is not None and simulation.now >= sent + simulation.scenario.timeout:
            simulation.repeated += self._alike
            self._transmit(chunk)

    def _transmit(self, chunk: int) -> None:
        simulation = self._simulation
        simulation.sent += self._alike
        self._flying[chunk] = simulation.now
        self._send(chunk)
        if simulation.lossy:
            simulation.at(simulation.now + simulation.scenario.timeout, self.overdue, chunk)
