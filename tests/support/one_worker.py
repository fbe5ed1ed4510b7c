"""One worker's end of a cable; the test is the switch at the other end, and the controller."""

import contextlib
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
from switches import receive, udp_socket

from innet.host.job import Path, Term, WorkerInfo
from innet.host.link import Link, open_link
from innet.host.waker import Waker
from innet.rpc import innet_pb2 as pb
from innet.wire.check import intact, seal
from innet.wire.frames import ENCAPSULATION_BYTES, SOURCE_IP, SOURCE_PORT, Address
from innet.wire.layout import WITH_LANES, Kind
from innet.wire.records import Records, bare, get_field, packet_dtype, set_field

LANES, WITHIN = 64, 250.0
FRAME = packet_dtype(LANES, ENCAPSULATION_BYTES)
SERVICE = Address("02:00:00:00:00:fe", "10.255.255.254")
SERVICE_IP = int.from_bytes(SERVICE.ip_bytes)
WORKER_INFO = WorkerInfo(7, rank=0, workers=3, min_workers=3, lanes=LANES, job_name="train")
TERM = Term(9, Path.SWITCH, first_slot=16, slots=4)
CHUNKS = np.arange(2 * LANES, dtype=np.int32).reshape(2, LANES)


@dataclass
class Switch:
    """The test's end of the worker's cable."""

    sock: socket.socket
    link: Link
    waker: Waker
    in_the_end: contextlib.ExitStack
    """Callbacks before the cable is removed: a thread that still waits for it would keep it open."""

    def take(self) -> Records:
        """Return the next contribution."""
        packet = np.frombuffer(receive(self.sock), FRAME).copy()
        ip, port = packet["encapsulation"][0].tobytes()[26:30], self.sock.getpeername()[1]
        assert intact(packet, int.from_bytes(ip), port).all()
        return packet

    def take_chunk(self, which: int) -> Records:
        """Return a contribution to this slot of the job; skip earlier packets."""
        while (packet := self.take())["slot"] != TERM.first_slot + which:
            pass
        return packet

    def answer(self, packet: Records, kind: Kind, workers: int = 0b111) -> None:
        """Send a contribution back as a reply that names these workers."""
        set_field(packet, "kind", kind)
        packet["workers"] = workers
        packet["count"] = workers.bit_count() if kind == Kind.RESULT else 0
        self.send(packet)

    def send(self, packet: Records) -> None:
        """Send packets that look like the switch's."""
        frame = packet.view(np.uint8)
        frame[SOURCE_IP] = np.frombuffer(SERVICE.ip_bytes, np.uint8)
        frame[SOURCE_PORT] = np.frombuffer(SERVICE.udp_port.to_bytes(2), np.uint8)
        if get_field(packet, "kind")[0] not in WITH_LANES:
            packet = bare(packet)
        seal(packet, SERVICE_IP, SERVICE.udp_port)
        self.sock.send(packet.tobytes())


@contextlib.contextmanager
def cabled() -> Iterator[Switch]:
    """Yield a worker's link, and a socket in the place of its switch."""
    with (
        contextlib.closing(Waker()) as waker,
        udp_socket() as sock,
        udp_socket() as probe,
    ):
        (ip, port), (_, here) = probe.getsockname(), sock.getsockname()
        probe.close()
        sock.connect((ip, port))
        link = open_link(f"udp:{ip}:{port}/{ip}:{here}", SERVICE, LANES, waker)
        with contextlib.closing(link), contextlib.ExitStack() as in_the_end:
            yield Switch(sock, link, waker, in_the_end)


@dataclass
class Controller:
    """The controller: the test sets its messages, and reads the worker's."""

    waker: Waker
    term: Term | None = None
    recover: pb.Recover | None = None
    ended: str = ""
    gone: Mapping[int, str] = field(default_factory=dict)
    waiting_for: frozenset[int] = frozenset()
    connected: bool = True
    readies: list[tuple[int, int]] = field(default_factory=list)
    troubles: list[tuple[int, str]] = field(default_factory=list)

    def departed(self) -> Mapping[int, str]:
        return self.gone

    def ready(self, term: int, exchange: int) -> None:
        self.readies.append((term, exchange))

    def trouble(self, term: int, reason: str) -> None:
        self.troubles.append((term, reason))

    def say_recover(self, term: int, reason: str = "the test says so") -> None:
        self.recover = pb.Recover(term=term, reason=reason)
        self.waker.wake()

    def say_resume(self, term: Term) -> None:
        self.term, self.recover = term, None
        self.waker.wake()

    def say_departed(self, rank: int, reason: str = "it has left the job") -> None:
        self.gone = {**self.gone, rank: reason}
        self.waker.wake()
