"""The process that carries the packets of cables with faults."""

import contextlib
import heapq
import random
import select
import time
from collections import deque
from dataclasses import dataclass, field
from itertools import count
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

from innet.local.faults.ends import End, SwitchsEnd, UdpEnd, WorkersEnd
from innet.local.faults.fates import (
    LOST,
    Copy,
    Damage,
    Fate,
    FateCounts,
    Faults,
    Flip,
    Line,
    Overwrite,
    Resize,
)
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.layout import HEADER_BYTES

_MOST_HELD, _RECENT = 4096, 256
_DATAGRAMS_PER_ROUND, _MOST_WAITING = 16, 10_000
_HEADERS = ENCAPSULATION_BYTES + HEADER_BYTES
_LOOK_EVERY = 0.0005  # seconds, on a line of bounded rate


class Queue:
    """The queue before a line: packets leave at the line's rate, and are lost if there is no room."""

    def __init__(self, line: Line) -> None:
        self._line = line
        self._waiting: deque[tuple[float, bytes]] = deque()
        self._bytes = 0
        self._free_at = 0.0

    def put(self, packet: bytes, now: float) -> bool:
        """Append a packet. Return False if there is no room for it."""
        if self._bytes + len(packet) > self._line.queue:
            return False
        self._free_at = max(self._free_at, now) + len(packet) / self._line.rate
        self._waiting.append((self._free_at, packet))
        self._bytes += len(packet)
        return True

    def take(self, now: float) -> list[bytes]:
        """Return the packets that have been sent by now."""
        taken = []
        while self._waiting and self._waiting[0][0] <= now:
            taken.append(self._waiting.popleft()[1])
            self._bytes -= len(taken[-1])
        return taken

    @property
    def busy(self) -> bool:
        """Return whether any packet waits."""
        return bool(self._waiting)


@dataclass
class CableDirection:
    """A direction of a cable."""

    source: End
    target: End
    chance: random.Random
    faults: Faults
    queue: Queue | None
    counts: FateCounts = field(default_factory=FateCounts)
    recent: deque[bytes] = field(default_factory=lambda: deque(maxlen=_RECENT))
    _script: dict[int, Fate] = field(default_factory=dict)
    _held: list[tuple[int, int, bytes]] = field(default_factory=list)
    _order: "count[int]" = field(default_factory=count)

    def script(self, fates: dict[int, Fate]) -> None:
        """Set the fates of packets, counted from the next one."""
        self._script = {self.counts.packets + number: fate for number, fate in fates.items()}

    def forward(self, most: int) -> None:
        """Take the packets that have come, in at most `most` calls."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(most):
                self.arrive(self.source.receive())

    def arrive(self, packets: list[bytes]) -> None:
        """Take in packets, through the queue if there is one."""
        if self.queue:
            now = time.monotonic()
            for packet in packets:
                self.counts.crowded_out += not self.queue.put(packet, now)
        else:
            self.travel(packets)

    @property
    def busy(self) -> bool:
        """Return whether packets wait in the queue."""
        return self.queue is not None and self.queue.busy

    def leave_queue(self) -> None:
        """Move the packets on that are due to leave the queue."""
        if self.queue and (packets := self.queue.take(time.monotonic())):
            self.travel(packets)

    def travel(self, packets: list[bytes]) -> None:
        """Apply faults to packets, and send the copies that come out now."""
        self.recent.extend(packets)
        out: list[bytes] = []
        for packet in packets:
            number = self.counts.packets
            self.counts.packets += 1
            scripted = self._script.pop(number, None)
            self.counts.scripted += scripted is not None
            for copy in self.fate(len(packet)) if scripted is None else scripted:
                content = copy.damage(packet) if copy.damage else packet
                if copy.after:
                    due = number + copy.after
                    heapq.heappush(self._held, (due, next(self._order), content))
                else:
                    out.append(content)
            while self._held and (self._held[0][0] <= number or len(self._held) > _MOST_HELD):
                out.append(heapq.heappop(self._held)[-1])
        self.send(out)

    def fate(self, size: int) -> Fate:
        """Return a random fate for a packet."""
        happens, faults, counts = self.chance.random, self.faults, self.counts
        if happens() < faults.drop:
            counts.dropped += 1
            return LOST
        copies = 1
        if happens() < faults.duplicate:
            counts.duplicated += 1
            copies = 2
        return tuple(Copy(self.after(), self.damage(size)) for _ in range(copies))

    def after(self) -> int:
        """Return by how many packets a copy is late."""
        if self.chance.random() < self.faults.delay:
            self.counts.delayed += 1
            return int(10 ** self.chance.uniform(1, 4))
        if self.chance.random() < self.faults.reorder:
            self.counts.reordered += 1
            return self.chance.randint(1, 10)
        return 0

    def damage(self, size: int) -> Damage | None:
        """Return random damage for a copy, or None."""
        chance = self.chance
        if chance.random() >= self.faults.corrupt:
            return None
        self.counts.corrupted += 1
        within = chance.choice((_HEADERS, max(1, size)))  # the headers are small, but important
        match chance.randrange(5):
            case 0:
                return Flip((chance.randrange(8 * within),))
            case 1:
                several = chance.randint(2, 9)
                return Flip(tuple(chance.randrange(8 * within) for _ in range(several)))
            case 2:
                return Overwrite(chance.randrange(within), chance.randbytes(chance.randint(1, 40)))
            case 3:
                return Resize(chance.randrange(max(1, size)))
            case _:
                return Resize(size + chance.randint(1, 1000), chance.randbytes(7))

    def release(self) -> None:
        """Send the held packets, the earliest first."""
        held, self._held = sorted(self._held), []
        self.send([packet for *_, packet in held])

    def send(self, packets: list[bytes]) -> None:
        """Send packets, in order."""
        self.counts.sent += len(packets)
        self.counts.held = len(self._held)
        if packets:
            self.target.send(packets)


def carry(control: int) -> None:
    """Carry packets until the other end of the connection with this descriptor is closed."""
    with Connection(control) as connection, contextlib.ExitStack() as stack:
        switches, agents, seed, up, down, line = connection.recv()
        ways: list[CableDirection] = []
        links: list[str] = []
        for number, (switch, agent) in enumerate(zip(switches, agents, strict=True)):
            inner, outer, link = _ends(switch, agent)
            stack.callback(inner.close)
            stack.callback(outer.close)
            links.append(link)
            for source, target, faults in ((inner, outer, up), (outer, inner, down)):
                chance = random.Random(f"{seed} {number} {len(ways) % 2}")  # noqa: S311 - repeatable faults
                ways.append(
                    CableDirection(source, target, chance, faults, Queue(line) if line else None)
                )
        connection.send(links)
        with contextlib.suppress(EOFError):
            _carry(connection, ways)


def _ends(switch: Any, agent: Any) -> tuple[End, End, str]:
    """Return the ends towards the agent and the switch, and the agent's link.

    A cable in shared memory has a path on either side. For one made of UDP, `switch` has the
    addresses of both ends, and `agent` is the agent's port.
    """
    if isinstance(agent, Path):
        return SwitchsEnd(agent), WorkersEnd(switch), f"shm:{agent}"
    inner = UdpEnd(("127.0.0.1", 0), ("127.0.0.1", agent))
    return inner, UdpEnd(*switch), f"udp:127.0.0.1:{agent}/127.0.0.1:{inner.port}"


def _carry(connection: Connection, ways: list[CableDirection]) -> None:
    """Carry packets until the connection is closed; then raise EOFError."""
    sources = {way.source: way for way in ways}
    watched: list[Connection | End] = [connection, *sources]
    while True:
        # Poll and epoll round up to milliseconds, which is too coarse for a line's rate.
        soon = _LOOK_EVERY if any(way.busy for way in ways) else None
        ready, _, _ = select.select(watched, (), (), soon)
        for each in ready:
            if isinstance(each, Connection):
                connection.send(_answer(ways, *connection.recv()))
            else:
                sources[each].forward(_DATAGRAMS_PER_ROUND)
        for way in ways:
            way.leave_queue()


def _answer(ways: list[CableDirection], question: str, *arguments: Any) -> Any:
    for way in ways:
        way.forward(_MOST_WAITING)  # packets sent before the request come first
    match question, *arguments:
        case "script", cable, direction, fates:
            return ways[2 * cable + direction].script(fates)
        case "counts", cable, direction:
            return ways[2 * cable + direction].counts
        case "inject", cable, direction, packets:
            return ways[2 * cable + direction].send(packets)
        case "recent", cable, direction:
            return list(ways[2 * cable + direction].recent)
        case "chance", faults, *cables:
            for way in [way for each in cables for way in ways[2 * each : 2 * each + 2]] or ways:
                way.faults = faults
        case "release", *_:
            for way in ways:
                way.release()
    return None
