"""A simulation of the slot protocol, packet by packet.

It simulates workers, links with a rate, a delay and a probability of loss, and a switch, or racks
of switches below one. It follows docs/slot-protocol.md as far as that affects time. Chunk c goes
through slot c mod S, and the next chunk of a slot starts when the slot's result has arrived. A
repeated contribution counts once, and is answered from the cell if the result is there. A worker
repeats a chunk whose result is overdue by a fixed timeout. The hosts' real timer adapts, and they
notice most losses sooner, so under loss the simulated times are upper bounds.

Workers that behave the same are simulated once. On links without loss these are all workers that
start at the same time and, if all their racks are the same, all racks. So thousands of workers take
no longer to simulate than one.
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
from innet.model.all_reduce import SlotParameters


@dataclass(frozen=True)
class SimulatedLink:
    """A link, each way: bits per second, seconds of delay, and the share of packets that get lost.

    After a pause, `burst` bytes leave at once. This is the bucket of Linux's tbf, which limits
    emulated links.
    """

    rate: float
    delay: float
    loss: float = 0.0
    burst: float = 0.0


@dataclass(frozen=True)
class Scenario:
    """An all-reduce of `size` bytes."""

    workers: int
    size: float
    link: SimulatedLink
    slots: SlotParameters = field(default_factory=SlotParameters)
    racks: int = 1
    """If there are several, `uplink` links join the racks' switches to a switch above them."""
    uplink: SimulatedLink | None = None
    starts: tuple[float, ...] = ()
    """The start of every worker, in seconds; by default all start at 0."""
    timeout: float = 1e-3
    """Seconds until a chunk is sent again."""
    seed: int = 0

    def __post_init__(self) -> None:
        if self.workers < 1 or self.racks < 1 or self.workers % self.racks:
            raise UsageError(
                f"{self.workers} workers in {self.racks} racks: every rack needs the same number"
            )
        for link in (self.link, self.uplink or self.link):
            if link.rate <= 0 or min(link.delay, link.burst) < 0 or not 0 <= link.loss < 1:
                raise UsageError(
                    f"a link with rate {link.rate}, delay {link.delay}, burst {link.burst} and loss "
                    f"{link.loss}: the rate has to be above 0, delay and burst must not be negative, "
                    "and the loss has to be from 0 to below 1"
                )
        if self.starts and len(self.starts) != self.workers:
            raise UsageError(
                f"{len(self.starts)} starts for {self.workers} workers: give one for each"
            )
        if self.timeout <= 0:
            raise UsageError(f"timeout {self.timeout}: give one above zero")


@dataclass(frozen=True)
class SimulationResult:
    """The result of a simulation. The counts of packets are over all workers.

    `seconds` is the time until the last worker has all results.
    """

    seconds: float
    packets_sent: int
    retransmissions: int
    lost: int
    events: int

    def goodput(self, size: float) -> float:
        """Return the vector's bits per second."""
        return 8 * size / self.seconds


def simulate(scenario: Scenario) -> SimulationResult:
    """Run the scenario to its end."""
    return _Simulation(scenario).run()


class _Simulation:
    """The clock, the events, and the counts of a simulation."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.slots = scenario.slots.slots
        self.chunks = scenario.slots.chunks(scenario.size)
        self.bits = 8 * scenario.slots.frame
        self.lossy = bool(scenario.link.loss or (scenario.uplink or scenario.link).loss)
        self.random = random.Random(scenario.seed)  # noqa: S311 - a simulation's
        self.now = 0.0
        self.sent = self.repeated = self.lost = 0
        self._events: list[tuple[float, int, Callable[[int], None], int]] = []
        self._scheduled = 0
        self.unfinished = 0

    def schedule(self, time: float, call: Callable[[int], None], chunk: int) -> None:
        """Schedule a call. Calls for the same time run in the order of scheduling."""
        self._scheduled += 1
        heapq.heappush(self._events, (time, self._scheduled, call, chunk))

    def run(self) -> SimulationResult:
        """Run until all workers have all results."""
        self._build()
        while self.unfinished:
            self.now, _, call, chunk = heapq.heappop(self._events)
            call(chunk)
        return SimulationResult(self.now, self.sent, self.repeated, self.lost, self._scheduled)

    def _build(self) -> None:
        scenario = self.scenario
        starts = scenario.starts or (0.0,) * scenario.workers
        size = scenario.workers // scenario.racks
        racks = [tuple(sorted(starts[at : at + size])) for at in range(0, scenario.workers, size)]
        uplink = scenario.uplink or scenario.link
        root = _SimulatedSwitch(self) if scenario.racks > 1 else None
        for rack, count in _grouped(racks, scenario.link.loss or uplink.loss):
            switch = _SimulatedSwitch(self)
            if root:
                switch.connect_up(root, uplink, count)
            for start, workers in _grouped(rack, scenario.link.loss):
                worker = _SimulatedWorker(self, switch, scenario.link, count * workers)
                self.schedule(start, worker.start, 0)
                self.unfinished += 1


def _grouped(given: Sequence[Any], loss: float) -> list[tuple[Any, int]]:
    """Return each distinct item and its count; with loss, each item with a count of 1."""
    return [(each, 1) for each in given] if loss else list(Counter(given).items())


class _Channel:
    """One direction of a link. It sends one packet after the other, and then delays or loses it."""

    def __init__(self, simulation: _Simulation, link: SimulatedLink, count: int) -> None:
        self._simulation, self._link, self._count = simulation, link, count
        self._frame_time = simulation.bits / link.rate
        self._burst_time = 8 * link.burst / link.rate
        self._free = -math.inf

    def carry(self, deliver: Callable[[int], None], chunk: int) -> None:
        """Send a packet now."""
        simulation = self._simulation
        self._free = max(self._free, simulation.now - self._burst_time) + self._frame_time
        if self._link.loss and simulation.random.random() < self._link.loss:
            simulation.lost += self._count
        else:
            left = max(self._free, simulation.now)
            simulation.schedule(left + self._link.delay, deliver, chunk)


class _SimulatedSwitch:
    """A switch with its cells, its children, and its parent."""

    def __init__(self, simulation: _Simulation) -> None:
        self._simulation = simulation
        self._children: list[tuple[_SimulatedWorker | _SimulatedSwitch, _Channel]] = []
        self._arrived: dict[int, set[int]] = {}  # by chunk without a result: its contributors
        self._done: set[int] = set()  # chunks with a result
        self._send_up: Callable[[int], None] | None = None  # sends the rack's contribution

    def connect_up(self, above: "_SimulatedSwitch", link: SimulatedLink, count: int) -> None:
        """Attach this switch to the switch above it."""
        self._send_up = above.attach(self, link, count)

    def attach(
        self, child: "_SimulatedWorker | _SimulatedSwitch", link: SimulatedLink, count: int
    ) -> Callable[[int], None]:
        """Attach a child, which stands for `count` nodes. Return its function to send a contribution."""
        number = len(self._children)
        self._children.append((child, _Channel(self._simulation, link, count)))
        channel = _Channel(self._simulation, link, count)
        return partial(channel.carry, partial(self._contribution, number))

    def result(self, chunk: int) -> None:
        """Take the result from above and send it to all children."""
        if chunk not in self._done:
            self._finish(chunk)

    def _contribution(self, number: int, chunk: int) -> None:
        if chunk in self._done:  # the result is in the cell: only the asking child gets it
            child, channel = self._children[number]
            channel.carry(child.result, chunk)
            return
        arrived = self._arrived.setdefault(chunk, set())
        complete = len(arrived) == len(self._children)
        arrived.add(number)
        if len(arrived) == len(self._children):
            if self._send_up:
                self._send_up(chunk)  # also for a repetition: either way may have lost it
            elif not complete:
                self._finish(chunk)

    def _finish(self, chunk: int) -> None:
        self._arrived.pop(chunk, None)
        self._done.add(chunk)
        # All children have sent this chunk, so none still asks for the slot's last but one.
        self._done.discard(chunk - 2 * self._simulation.slots)
        for child, channel in self._children:
            channel.carry(child.result, chunk)


class _SimulatedWorker:
    """A worker with its slots and the chunks in flight."""

    def __init__(
        self, simulation: _Simulation, switch: _SimulatedSwitch, link: SimulatedLink, count: int
    ) -> None:
        self._simulation, self._count = simulation, count
        self._send = switch.attach(self, link, count)
        self._in_flight: dict[int, float] = {}  # the time of each chunk's last transmission
        self._remaining = simulation.chunks

    def start(self, _: int) -> None:
        """Fill the slots."""
        for chunk in range(min(self._simulation.slots, self._simulation.chunks)):
            self._transmit(chunk)

    def result(self, chunk: int) -> None:
        """Take a result and use the slot for the next chunk."""
        if self._in_flight.pop(chunk, None) is None:
            return
        self._remaining -= 1
        if not self._remaining:
            self._simulation.unfinished -= 1
        if chunk + self._simulation.slots < self._simulation.chunks:
            self._transmit(chunk + self._simulation.slots)

    def overdue(self, chunk: int) -> None:
        """Send a chunk again if this is the timeout of its last transmission."""
        simulation = self._simulation
        sent = self._in_flight.get(chunk)
        if sent is not None and simulation.now >= sent + simulation.scenario.timeout:
            simulation.repeated += self._count
            self._transmit(chunk)

    def _transmit(self, chunk: int) -> None:
        simulation = self._simulation
        simulation.sent += self._count
        self._in_flight[chunk] = simulation.now
        self._send(chunk)
        if simulation.lossy:
            simulation.schedule(simulation.now + simulation.scenario.timeout, self.overdue, chunk)
