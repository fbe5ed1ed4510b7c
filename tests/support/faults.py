"""A stretch of cable that loses, duplicates, delays, damages or queues packets.

It lies in a UDP cable between an agent and its switch, and belongs to neither. It sees only frames.
Faults happen at random, with a seed, or by a script to the n-th packet. Every packet is treated
separately, even where many travel as one (``UDP_GRO``). A process of its own carries the packets,
so that the tests' threads and the cable do not wait for each other.
"""

import contextlib
import heapq
import multiprocessing
import random
import select
import socket
import struct
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import count, groupby
from multiprocessing.connection import Connection
from typing import Any

from innet.host.link import parse_endpoints
from innet.local.ports import free_udp_ports
from innet.machine.sockets import UDP_GRO, UDP_SEGMENT, enlarge_buffers, join_datagrams
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.layout import HEADER_BYTES

UP, DOWN = 0, 1
"""Directions: from the agent to the switch, and back."""

_MOST_SEGMENTS, _MOST_BYTES = 64, 65_000
_MOST_HELD, _RECENT = 4096, 256
_DATAGRAMS_PER_TURN, _MOST_WAITING = 16, 10_000
_HEADERS = ENCAPSULATION_BYTES + HEADER_BYTES
_LOOK_EVERY = 0.0005  # seconds, on a line of bounded rate
_STOPS_WITHIN = 10.0


# -- faults of a packet --------------------------------------------------------------------------


@dataclass(frozen=True)
class Flip:
    """Inverted bits, counted from the frame's first; beyond its end they count from the start."""

    bits: tuple[int, ...]

    def __call__(self, frame: bytes) -> bytes:
        """Return the damaged frame."""
        damaged = bytearray(frame)
        for bit in self.bits if frame else ():
            damaged[bit // 8 % len(frame)] ^= 0x80 >> bit % 8
        return bytes(damaged)


@dataclass(frozen=True)
class Overwrite:
    """Bytes that replace others; the frame's size stays."""

    at: int
    content: bytes

    def __call__(self, frame: bytes) -> bytes:
        """Return the damaged frame."""
        return (frame[: self.at] + self.content + frame[self.at + len(self.content) :])[
            : len(frame)
        ]


@dataclass(frozen=True)
class Resize:
    """A frame cut off after `size` bytes, or lengthened to that size by repeating `filling`."""

    size: int
    filling: bytes = b"\0"

    def __call__(self, frame: bytes) -> bytes:
        """Return the damaged frame."""
        lacking = max(0, self.size - len(frame))
        return (frame + self.filling * lacking)[: self.size]


Damage = Flip | Overwrite | Resize

UNTIL_RELEASED = sys.maxsize


@dataclass(frozen=True)
class Copy:
    """A copy of a packet that comes out at the other end.

    It comes out after `after` later packets of its direction have gone in, or when the test
    releases it.
    """

    after: int = 0
    damage: Damage | None = None


Fate = tuple[Copy, ...]
"""All copies of one packet that come out."""

LOST: Fate = ()
TWICE: Fate = (Copy(), Copy())
OVERTAKEN: Fate = (Copy(after=1),)
HELD: Fate = (Copy(UNTIL_RELEASED),)
AGAIN_LATE: Fate = (Copy(), Copy(UNTIL_RELEASED))


def damaged(damage: Damage) -> Fate:
    """Return the fate of a packet that comes out at once, damaged."""
    return (Copy(damage=damage),)


@dataclass(frozen=True)
class Faults:
    """The probability of each fault, for every packet independently.

    A packet may be lost or come out twice. Every copy may be overtaken by a few packets, delayed by
    up to 10,000 packets, or damaged.
    """

    drop: float = 0.0
    duplicate: float = 0.0
    reorder: float = 0.0
    delay: float = 0.0
    corrupt: float = 0.0

    @classmethod
    def all(cls, chance: float) -> "Faults":
        """Return all faults with the same probability."""
        return cls(chance, chance, chance, chance, chance)


@dataclass(frozen=True)
class Line:
    """The capacity of a direction: bytes of frames per second, and bytes that may wait in the queue."""

    rate: float
    queue: int


@dataclass
class Counts:
    """The numbers of packets in one direction so far, by fate."""

    packets: int = 0  # gone in
    scripted: int = 0  # with a fate from the script
    dropped: int = 0
    duplicated: int = 0
    reordered: int = 0
    delayed: int = 0
    corrupted: int = 0
    crowded_out: int = 0  # the queue was full
    sent: int = 0  # copies that came out
    held: int = 0  # copies still inside

    @property
    def faults(self) -> dict[str, int]:
        """Return the random faults, by the names of :class:`Faults`."""
        names = "dropped duplicated reordered delayed corrupted".split()
        return dict(zip(asdict(Faults()), (getattr(self, name) for name in names), strict=True))


# -- the test's control of the cables ------------------------------------------------------------


class Wiring:
    """Some cables with faults. `links` are their near ends, for agents.

    A test's requests apply to packets sent later. Its counts include all packets sent before.
    """

    def __init__(self, links: list[str], control: Connection) -> None:
        self.links = links
        self._control = control

    def script(self, cable: int, direction: int, fates: Mapping[int, Fate]) -> None:
        """Set the fates of the next packets of a direction, counted from 0."""
        self._ask("script", cable, direction, dict(fates))

    def chance(self, faults: Faults) -> None:
        """Set the probability of faults from now on, on all cables, in both directions."""
        self._ask("chance", faults)

    def cut(self, cable: int) -> None:
        """Let nothing through in either direction, until the cable is mended."""
        self._ask("chance", Faults(drop=1.0), cable)

    def mend(self, cable: int) -> None:
        """Repair a cable."""
        self._ask("chance", Faults(), cable)

    def release(self) -> None:
        """Release all held packets."""
        self._ask("release")

    def inject(self, cable: int, direction: int, packets: Sequence[bytes]) -> None:
        """Send packets out of one end, as if they had come in at the other."""
        self._ask("inject", cable, direction, packets)

    def recent(self, cable: int, direction: int) -> list[bytes]:
        """Return the last packets that have gone in, up to 256."""
        found: list[bytes] = self._ask("recent", cable, direction)
        return found

    def counts(self, cable: int, direction: int) -> Counts:
        """Return the counts of one cable in one direction."""
        found: Counts = self._ask("counts", cable, direction)
        return found

    def total(self) -> Counts:
        """Return the counts of all cables in both directions, added up."""
        each = [
            asdict(self.counts(cable, direction))
            for cable in range(len(self.links))
            for direction in (UP, DOWN)
        ]
        return Counts(**{name: sum(one[name] for one in each) for name in each[0]})

    def _ask(self, *question: Any) -> Any:
        self._control.send(question)
        return self._control.recv()


@contextlib.contextmanager
def faulty(
    links: Sequence[str],
    seed: int,
    up: Faults | None = None,
    down: Faults | None = None,
    line: Line | None = None,
) -> Iterator[Wiring]:
    """Lengthen free cables by a stretch with faults; `line` bounds the rate of each direction.

    The seed decides about the faults of each packet.
    """
    ends = [parse_endpoints(link) for link in links]
    agents = free_udp_ports(len(links))
    ours, theirs = multiprocessing.Pipe()
    program = (
        f"import sys; sys.path[:] = {sys.path!r}; import {__name__} as faults; "
        f"faults.carry({theirs.fileno()})"
    )
    with ours, theirs, subprocess.Popen(
        [sys.executable, "-c", program], pass_fds=[theirs.fileno()]
    ) as process:  # fmt: skip
        theirs.close()
        try:
            ours.send((ends, agents, seed, up or Faults(), down or Faults(), line))
            inner = ours.recv()
            near = [
                f"udp:127.0.0.1:{agent}/127.0.0.1:{port}"
                for agent, port in zip(agents, inner, strict=True)
            ]
            yield Wiring(near, ours)
            ours.close()  # this tells the process to end
            assert process.wait(_STOPS_WITHIN) == 0
        finally:
            process.kill()


# -- the process that carries the packets --------------------------------------------------------


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
class Way:
    """A direction of a cable."""

    source: socket.socket
    target: socket.socket
    chance: random.Random
    faults: Faults
    queue: Queue | None
    counts: Counts = field(default_factory=Counts)
    recent: deque[bytes] = field(default_factory=lambda: deque(maxlen=_RECENT))
    _script: dict[int, Fate] = field(default_factory=dict)
    _held: list[tuple[int, int, bytes]] = field(default_factory=list)
    _order: "count[int]" = field(default_factory=count)

    def script(self, fates: dict[int, Fate]) -> None:
        """Set the fates of packets, counted from the next one."""
        self._script = {self.counts.packets + number: fate for number, fate in fates.items()}

    def forward(self, most: int) -> None:
        """Take the packets that have come."""
        with contextlib.suppress(BlockingIOError):
            for _ in range(most):
                self.arrive(_receive(self.source))

    def arrive(self, packets: list[bytes]) -> None:
        """Take in packets, by the queue if there is one."""
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
        """Send packets, in order, as many as possible with one call."""
        self.counts.sent += len(packets)
        self.counts.held = len(self._held)
        for size, run in groupby(packets, len):
            equal = list(run)
            most = max(1, min(_MOST_SEGMENTS, _MOST_BYTES // size)) if size else 1
            for start in range(0, len(equal), most):
                _send(self.target, equal[start : start + most], size)


def carry(control: int) -> None:
    """Carry packets until the other end of the connection with this descriptor is closed."""
    with Connection(control) as connection, contextlib.ExitStack() as stack:
        ends, agents, seed, up, down, line = connection.recv()
        ways, inner_ports = [], []
        for number, ((near, switch), agent) in enumerate(zip(ends, agents, strict=True)):
            inner = stack.enter_context(_socket(("127.0.0.1", 0), ("127.0.0.1", agent)))
            outer = stack.enter_context(_socket(near, switch))
            inner_ports.append(inner.getsockname()[1])
            for source, target, faults in ((inner, outer, up), (outer, inner, down)):
                chance = random.Random(f"{seed} {number} {len(ways) % 2}")
                ways.append(Way(source, target, chance, faults, Queue(line) if line else None))
        connection.send(inner_ports)
        with contextlib.suppress(EOFError):
            _carry(connection, ways)


def _carry(connection: Connection, ways: list[Way]) -> None:
    """Carry packets until the connection is closed; then raise EOFError."""
    sources = {way.source: way for way in ways}
    while True:
        # Poll and epoll round up to milliseconds, which is too coarse for a line's rate.
        soon = _LOOK_EVERY if any(way.busy for way in ways) else None
        ready, _, _ = select.select([connection, *sources], (), (), soon)
        for each in ready:
            if each is connection:
                connection.send(_answer(ways, *connection.recv()))
            else:
                sources[each].forward(_DATAGRAMS_PER_TURN)
        for way in ways:
            way.leave_queue()


def _answer(ways: list[Way], question: str, *arguments: Any) -> Any:
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


def _socket(local: tuple[str, int], remote: tuple[str, int]) -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(local)
    sock.connect(remote)
    enlarge_buffers(sock)
    join_datagrams(sock)
    return sock


def _receive(sock: socket.socket) -> list[bytes]:
    """Return the packets of the next datagram, or of many joined into one. Raises BlockingIOError."""
    try:
        content, ancillary, _, _ = sock.recvmsg(1 << 16, 64, socket.MSG_DONTWAIT)
    except ConnectionRefusedError:  # nobody listens, so the packet is lost
        return []
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_UDP, UDP_GRO):
            [size] = struct.unpack("=i", data[:4])
            return [content[start : start + size] for start in range(0, len(content), size)]
    return [content]


def _send(sock: socket.socket, packets: list[bytes], size: int) -> None:
    segment = (socket.SOL_UDP, UDP_SEGMENT, struct.pack("=H", size))
    with contextlib.suppress(ConnectionRefusedError):
        sock.sendmsg(packets, [segment] if len(packets) > 1 else [])
