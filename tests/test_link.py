"""Packets cross real UDP sockets over loopback: whole, in order, only of the right size."""

import contextlib
import socket
import struct
from collections.abc import Iterator

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from innet.errors import UsageError
from innet.host.link import Link, frame_address, open_link, parse_endpoints
from innet.wire.capture import Innet
from innet.wire.frames import Address, encapsulation
from innet.wire.layout import Kind
from innet.wire.records import Records, blank, packet_bytes

LANES = 64
SERVICE = Address("02:00:00:00:00:01", "10.1.0.1")
SO_NO_CHECK = 11  # without UDP checksums Linux refuses UDP_SEGMENT
UDP_SEGMENT = 103


def free_ports(count: int) -> list[int]:
    """Ports that nobody has bound just now."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(udp_socket()) for _ in range(count)]
        return [sock.getsockname()[1] for sock in sockets]


def udp_socket() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    return sock


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two UDP sockets, connected with each other."""
    with udp_socket() as ours, udp_socket() as theirs:
        ours.connect(theirs.getsockname())
        theirs.connect(ours.getsockname())
        yield ours, theirs


@pytest.fixture
def cable() -> Iterator[tuple[Link, Link]]:
    """Two links, opened as a worker opens its own, that lead to each other."""
    a, b = free_ports(2)
    with contextlib.ExitStack() as stack:
        ends = []
        for local, remote in ((a, b), (b, a)):
            spec = f"udp:127.0.0.1:{local}/127.0.0.1:{remote}"
            ends.append(open_link(spec, SERVICE, LANES))
            stack.callback(ends[-1].close)
        yield ends[0], ends[1]


def numbered(count: int, front: bytes = b"") -> Records:
    packets = blank(count, LANES, Kind.CONTRIBUTION, front)
    packets["sequence"] = np.arange(count)
    packets["lanes"] = np.arange(count * LANES).reshape(count, LANES) - count
    return packets


def collect(link: Link, count: int) -> bytes:
    """The next packets, as soon as there are `count`."""
    received = b""
    for _ in range(100):
        link.wait(0.1)
        received += b"".join(batch.tobytes() for batch in link.receive())
        if len(received) >= count * link.dtype.itemsize:
            return received
    raise AssertionError(f"{len(received) / link.dtype.itemsize} of {count} packets have come")


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 193])
def test_packets_arrive_whole_and_in_order(cable: tuple[Link, Link], count: int):
    near, far = cable
    packets = numbered(count, near.encapsulation)
    near.send(packets)
    assert collect(far, count) == packets.tobytes()


@pytest.mark.parametrize("count", [1, 2, 33, 100])
def test_packets_arrive_the_same_where_the_kernel_cannot_cut(sockets, count: int):
    sockets[0].setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    near, far = (Link(sock, LANES) for sock in sockets)
    near.send(numbered(count))
    assert collect(far, count) == numbered(count).tobytes()
    assert near._segmenting == (count == 1)


def test_packets_arrive_the_same_where_the_kernel_cannot_coalesce(sockets):
    near = Link(sockets[0], LANES)
    near.send(numbered(100))
    received = b"".join(sockets[1].recv(1 << 16) for _ in range(100))
    assert received == numbered(100).tobytes()


def test_many_datagrams_are_taken_in_several_turns(sockets):
    near, far = (Link(sock, LANES) for sock in sockets)
    for packet in numbered(100):
        near.send(packet.reshape(1))
    far.wait(1)
    first = [batch.tobytes() for batch in far.receive()]
    assert 0 < len(first) < 100
    rest = collect(far, 100 - len(first))
    assert b"".join(first) + rest == numbered(100).tobytes()


@pytest.mark.parametrize("size", [0, 1, 20, packet_bytes(LANES) - 1, 2 * packet_bytes(LANES), 9000])
def test_packets_of_another_size_are_skipped(sockets, size: int):
    far = Link(sockets[1], LANES)
    for packet in numbered(3):
        sockets[0].send(bytes(size))
        sockets[0].send(packet.tobytes())
    assert collect(far, 3) == numbered(3).tobytes()


def test_a_short_packet_does_not_take_those_before_it_along(sockets):
    far, packets = Link(sockets[1], LANES), numbered(4)
    segment = (socket.SOL_UDP, UDP_SEGMENT, struct.pack("=H", packets.itemsize))
    sockets[0].sendmsg([packets[:3].tobytes(), b"short"], [segment])
    sockets[0].send(packets[3:].tobytes())
    assert collect(far, 4) == packets.tobytes()


def test_nobody_at_the_other_end_is_a_lost_packet():
    a, b = free_ports(2)
    near = open_link(f"udp:127.0.0.1:{a}/127.0.0.1:{b}", SERVICE, LANES)
    with contextlib.closing(near):
        packets = numbered(3, near.encapsulation)
        for _ in range(3):
            near.send(packets)
            near.wait(1)
            assert list(near.receive()) == []
        far = open_link(f"udp:127.0.0.1:{b}/127.0.0.1:{a}", SERVICE, LANES)
        with contextlib.closing(far):
            near.send(packets)
            assert collect(far, 3) == packets.tobytes()


def test_frames_on_a_cable_carry_its_own_address():
    local, remote = free_ports(2)
    link = open_link(f"udp:127.0.0.1:{local}/127.0.0.1:{remote}", SERVICE, LANES)
    link.close()
    own = frame_address(("127.0.0.1", local))
    assert link.encapsulation == encapsulation(own, SERVICE, packet_bytes(LANES))
    hello = Ether(link.hello_encapsulation + blank(1, 0, Kind.HELLO).tobytes())
    assert (hello.src, hello[IP].src, hello[UDP].sport) == (own.mac, own.ip, local)
    assert (hello.dst, hello[IP].dst, hello[UDP].dport) == (SERVICE.mac, SERVICE.ip, 19790)
    assert hello[UDP].len == len(hello[UDP]) == 8 + packet_bytes(0)
    assert hello[Innet].kind == Kind.HELLO


def test_every_port_has_a_frame_address_of_its_own():
    addresses = [frame_address(("127.0.0.1", port)) for port in range(1, 1 << 16)]
    assert len({address.mac_bytes for address in addresses}) == len(addresses)
    assert len({address.ip_bytes for address in addresses}) == len(addresses)


def test_host_link_leaves_the_headers_to_the_kernel():
    with udp_socket() as switch:
        service = Address(SERVICE.mac, *switch.getsockname())
        with contextlib.closing(open_link("host", service, LANES)) as link:
            assert link.encapsulation == link.hello_encapsulation == b""
            link.send(numbered(2))
            (first, sender), (second, _) = (switch.recvfrom(1 << 16) for _ in range(2))
            assert first + second == numbered(2).tobytes()
            switch.sendto(first, sender)
            assert collect(link, 1) == first


def test_endpoints_are_local_then_remote():
    assert parse_endpoints("udp:127.0.0.1:8001/10.0.0.9:9001") == (
        ("127.0.0.1", 8001),
        ("10.0.0.9", 9001),
    )


@pytest.mark.parametrize(
    "spec",
    [
        "",
        "eth0",
        "udp:",
        "tcp:1.2.3.4:5/1.2.3.4:6",
        "udp:1.2.3.4:5",
        "udp:1.2.3.4/1.2.3.4",
        "udp:1.2.3.4:5/1.2.3.4:6/1.2.3.4:7",
        "udp:1.2.3.4:five/1.2.3.4:6",
        "udp:1.2.3.4:0/1.2.3.4:6",
        "udp:1.2.3.4:65536/1.2.3.4:6",
        "udp:1.2.3.4:5/1.2.3.4:-1",
    ],
)
def test_endpoints_that_make_no_sense_are_refused(spec: str):
    with pytest.raises(UsageError, match="udp:LOCAL_IP:PORT/REMOTE_IP:PORT"):
        parse_endpoints(spec)


@pytest.mark.parametrize("local", ["not an address", "203.0.113.1"])
def test_a_local_address_that_is_not_this_hosts_is_refused(local: str):
    with pytest.raises(UsageError, match="cannot open link"):
        open_link(f"udp:{local}:{free_ports(1)[0]}/127.0.0.1:9", SERVICE, LANES)


def test_a_port_in_use_is_refused():
    with udp_socket() as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=rf"{port}.*in use"):
            open_link(f"udp:127.0.0.1:{port}/127.0.0.1:9", SERVICE, LANES)
