"""A simulation of the slot protocol, packet by packet.

The simulation has workers, links with a rate, a delay and a probability of loss, and a tree of
switches. It follows docs/slot-protocol.md as far as that affects time. Chunk c goes through slot c
mod S, and the next chunk of a slot starts when the slot's result has arrived. A repeated
contribution counts once, and is answered from the cell if the result is there. A worker repeats a
chunk whose result is overdue by a fixed timeout. The hosts' real timer adapts, and they notice most
losses sooner, so under loss the simulated times are upper bounds.
"""

import heapq
import math
import random
from collections.abc import Callable, Sequence
from functools import partial

from innet.model.nodes import Direction, ModelNode, nodes
from innet.model.scenario import Scenario, SimulationResult


def run(scenario: Scenario) -> SimulationResult:
    """Simulate a scenario to its end."""
    return _Simulation(scenario).run()


class _Simulation:
    """The clock, the events, and the counts of a simulation."""

    def __init__(self, scenario: Scenario) -> None:
        self.scenario = scenario
        self.slots = scenario.slots.slots
        self.chunks = scenario.chunks
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
        self._build(_SimulatedSwitch(self), nodes(self.scenario), 1)
        while self.unfinished:
            self.now, _, call, chunk = heapq.heappop(self._events)
            call(chunk)
        return SimulationResult(self.now, self.sent, self.repeated, self.lost, self._scheduled)

    def _build(self, switch: "_SimulatedSwitch", below: Sequence[ModelNode], count: int) -> None:
        """Attach nodes to a switch, which stands for `count` switches."""
        for node in below:
            alike = count * node.count
            if node.below:
                self._build(_SimulatedSwitch(self, switch, node, alike), node.below, alike)
            else:
                worker = _SimulatedWorker(self, switch, node, alike)
                self.schedule(node.start, worker.start, 0)
                self.unfinished += 1


class _Channel:
    """One direction of a link. It sends one packet at a time, and then delays or loses the packet."""

    def __init__(self, simulation: _Simulation, direction: Direction, count: int) -> None:
        self._simulation, self._direction, self._count = simulation, direction, count
        self._free = -math.inf
        self._bursts = -1  # the number of the next burst of background traffic

    def carry(self, deliver: Callable[[int], None], chunk: int) -> None:
        """Send a packet now."""
        simulation, direction = self._simulation, self._direction
        if direction.work:
            self._send_background()
        self._send(simulation.now, direction.packet)
        if direction.loss and simulation.random.random() < direction.loss:
            simulation.lost += self._count
        else:
            left = max(self._free, simulation.now)
            simulation.schedule(left + direction.delay, deliver, chunk)

    def _send_background(self) -> None:
        """Send the bursts that have come since the last packet."""
        direction = self._direction
        while (comes := direction.phase + self._bursts * direction.period) <= self._simulation.now:
            self._send(comes, direction.work)
            self._bursts += 1

    def _send(self, comes: float, takes: float) -> None:
        self._free = max(self._free, comes - self._direction.bucket) + takes


class _SimulatedSwitch:
    """A switch with its cells, its children, and its parent."""

    def __init__(
        self,
        simulation: _Simulation,
        above: "_SimulatedSwitch | None" = None,
        node: ModelNode | None = None,
        count: int = 1,
    ) -> None:
        self._simulation = simulation
        self._children: list[tuple[_SimulatedWorker | _SimulatedSwitch, _Channel]] = []
        self._arrived: dict[int, set[int]] = {}  # the contributors of each chunk without a result
        self._done: set[int] = set()  # chunks with a result
        self._send_up = above.attach(self, node, count) if above and node else None

    def attach(
        self, child: "_SimulatedWorker | _SimulatedSwitch", node: ModelNode, count: int
    ) -> Callable[[int], None]:
        """Attach a child, which stands for `count` nodes. Return its function to send a contribution."""
        number = len(self._children)
        self._children.append((child, _Channel(self._simulation, node.down, count)))
        channel = _Channel(self._simulation, node.up, count)
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
                self._send_up(chunk)  # also a repetition: the sum or its result may be lost
            elif not complete:
                self._finish(chunk)

    def _finish(self, chunk: int) -> None:
        self._arrived.pop(chunk, None)
        self._done.add(chunk)
        # All children have sent this chunk, so they have the result of the slot's chunk before it.
        # None of them asks any more for the result before that.
        self._done.discard(chunk - 2 * self._simulation.slots)
        for child, channel in self._children:
            channel.carry(child.result, chunk)


class _SimulatedWorker:
    """A worker with its slots and the chunks in flight."""

    def __init__(
        self, simulation: _Simulation, switch: _SimulatedSwitch, node: ModelNode, count: int
    ) -> None:
        self._simulation, self._count = simulation, count
        self._send = switch.attach(self, node, count)
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
        if simulation.scenario.lossy:
            simulation.schedule(simulation.now + simulation.scenario.timeout, self.overdue, chunk)
