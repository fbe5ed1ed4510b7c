"""Links over real UDP sockets on loopback: packets arrive whole, in order, and of the right size."""

import contextlib
import errno
import socket
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from waiting import WITHIN

from innet.errors import UsageError
from innet.host import fastpath, numpy_socket
from innet.host.link import Link, frame_address, open_link, parse_endpoints
from innet.host.waker import Waker
from innet.wire.capture import Innet
from innet.wire.check import intact, seal
from innet.wire.frames import Address, encapsulation
from innet.wire.layout import Ecn, Flag, Kind
from innet.wire.records import Records, bare, blank, marked, packet_bytes, set_field

LANES = 64
SERVICE = Address("02:00:00:00:00:01", "10.1.0.1")
SO_NO_CHECK = 11  # without UDP checksums Linux refuses UDP_SEGMENT
UDP_SEGMENT = 103


@pytest.fixture(params=["C", "numpy"], autouse=True)
def which_code(request, monkeypatch) -> str:
    """Run every test with compiled code and without."""
    if request.param == "numpy":
        monkeypatch.setattr(fastpath, "compiled", lambda: None)
    elif not fastpath.compiled():
        pytest.skip("there is no C compiler")
    return request.param


def free_ports(count: int) -> list[int]:
    """Return ports that are free at the moment."""
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(udp_socket()) for _ in range(count)]
        return [sock.getsockname()[1] for sock in sockets]


def udp_socket() -> socket.socket:
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind(("127.0.0.1", 0))
    return sock


@pytest.fixture
def sockets() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Yield two UDP sockets, connected with each other."""
    with udp_socket() as ours, udp_socket() as theirs:
        ours.connect(theirs.getsockname())
        theirs.connect(ours.getsockname())
        yield ours, theirs


@pytest.fixture
def cable() -> Iterator[tuple[Link, Link]]:
    """Yield two links that lead to each other, each opened as by a worker towards its switch."""
    a, b = free_ports(2)
    with contextlib.ExitStack() as stack:
        ends = []
        for local, remote in ((a, b), (b, a)):
            spec = f"udp:127.0.0.1:{local}/127.0.0.1:{remote}"
            ends.append(open_link(spec, frame_address(("127.0.0.1", remote)), LANES))
            stack.callback(ends[-1].close)
        yield ends[0], ends[1]


def links(sockets: tuple[socket.socket, socket.socket]) -> tuple[Link, Link]:
    """Yield a link at either end of the sockets."""
    near, far = (Address("", *sock.getsockname()) for sock in sockets)
    return Link(sockets[0], LANES, near, far), Link(sockets[1], LANES, far, near)


def numbered(count: int, source: Address, front: bytes = b"") -> Records:
    """Return `count` numbered packets from a source."""
    packets = blank(count, LANES, Kind.CONTRIBUTION, front)
    packets["sequence"] = np.arange(count)
    packets["lanes"] = np.arange(count * LANES).reshape(count, LANES) - count
    seal(packets, int.from_bytes(source.ip_bytes), source.udp_port)
    return packets


def unsealed(packets: Records) -> Records:
    """Return the same packets as they are before sending, without a check."""
    packets = packets.copy()
    packets["check"] = 0
    return packets


def own(sock: socket.socket) -> Address:
    return Address("", *sock.getsockname())


def frames_from(link: Link, count: int) -> Records:
    """Return packets as they leave a link."""
    local = link._packets._socket.getsockname()
    return numbered(count, frame_address(local), link.encapsulation)


def collect(link: Link, count: int) -> bytes:
    """Return the next packets, as soon as there are `count`."""
    received = b""
    for _ in range(100):
        link.wait(0.1)
        received += link.receive().full.tobytes()
        if len(received) >= count * link.dtype.itemsize:
            return received
    raise AssertionError(f"{len(received) / link.dtype.itemsize} of {count} packets have come")


def collect_both(link: Link, count: int) -> tuple[bytes, bytes]:
    """Return the next packets with lanes, and the bare ones, as soon as there are `count` together."""
    full = shorter = b""
    for _ in range(100):
        link.wait(0.1)
        batch = link.receive()
        full, shorter = full + batch.full.tobytes(), shorter + batch.bare.tobytes()
        if len(full) // link.dtype.itemsize + len(shorter) // link.bare_dtype.itemsize >= count:
            return full, shorter
    raise AssertionError(f"{len(full)} and {len(shorter)} bytes have come")


@pytest.mark.parametrize("count", [1, 2, 63, 64, 65, 193])
def test_packets_arrive_whole_and_in_order(cable: tuple[Link, Link], count: int):
    near, far = cable
    packets = frames_from(near, count)
    near.send(unsealed(packets))
    assert collect(far, count) == packets.tobytes()


@pytest.mark.parametrize("count", [1, 2, 33, 100])
def test_packets_arrive_the_same_where_the_kernel_cannot_cut(sockets, count: int):
    sockets[0].setsockopt(socket.SOL_SOCKET, SO_NO_CHECK, 1)
    (near, far), packets = links(sockets), numbered(count, own(sockets[0]))
    near.send(unsealed(packets))
    assert collect(far, count) == packets.tobytes()
    assert near._packets.segmenting == (count == 1)


def test_packets_arrive_the_same_where_the_kernel_cannot_coalesce(sockets):
    near, packets = (
        Link(sockets[0], LANES, own(sockets[0]), SERVICE),
        numbered(100, own(sockets[0])),
    )
    near.send(unsealed(packets))
    received = b"".join(sockets[1].recv(1 << 16) for _ in range(100))
    assert received == packets.tobytes()


def test_many_datagrams_are_taken_in_several_calls(sockets):
    (near, far), packets = links(sockets), numbered(400, own(sockets[0]))
    for packet in packets:
        near.send(packet.reshape(1))
    far.wait(1)
    first = far.receive().full.tobytes()
    taken = len(first) // packets.itemsize
    assert 0 < taken < 400
    assert first + collect(far, 400 - taken) == packets.tobytes()


def test_datagrams_that_the_kernel_has_not_joined_make_one_batch(sockets):
    (near, far), packets = links(sockets), numbered(10, own(sockets[0]))
    for packet in packets:
        near.send(packet.reshape(1))
    far.wait(1)
    assert far.receive().full.tobytes() == packets.tobytes()


@pytest.mark.parametrize("size", [0, 1, 20, packet_bytes(LANES) - 1, 2 * packet_bytes(LANES), 9000])
def test_packets_of_another_size_are_skipped(sockets, size: int):
    (_, far), packets = links(sockets), numbered(3, own(sockets[0]))
    for packet in packets:
        sockets[0].send(bytes(size))
        sockets[0].send(packet.tobytes())
    assert collect(far, 3) == packets.tobytes()


def test_a_short_packet_does_not_take_those_before_it_along(sockets):
    (_, far), packets = links(sockets), numbered(4, own(sockets[0]))
    segment = (socket.SOL_UDP, UDP_SEGMENT, struct.pack("=H", packets.itemsize))
    sockets[0].sendmsg([packets[:3].tobytes(), b"short"], [segment])
    sockets[0].send(packets[3:].tobytes())
    assert collect(far, 4) == packets.tobytes()


def replies(source: Address) -> Records:
    """Return three numbered replies from a source, which never have lanes."""
    packets = bare(numbered(3, source))
    set_field(packets, "kind", [Kind.PENDING, Kind.STALE, Kind.PENDING])
    seal(packets, int.from_bytes(source.ip_bytes), source.udp_port)
    return packets


@pytest.mark.parametrize("together", [True, False])
def test_packets_of_both_lengths_arrive_whole_and_in_order(sockets, together: bool):
    (_, far), packets = links(sockets), replies(own(sockets[0]))
    before, behind = numbered(2, own(sockets[0])), numbered(2, own(sockets[0]))
    segment = (socket.SOL_UDP, UDP_SEGMENT, struct.pack("=H", packets.itemsize))
    if together:
        sockets[0].sendmsg([packets.tobytes()], [segment])
    else:
        sockets[0].send(before.tobytes()[: before.itemsize])
        for packet in packets:
            sockets[0].send(packet.tobytes())
        sockets[0].send(behind.tobytes()[behind.itemsize :])
    full, shorter = collect_both(far, 3 if together else 5)
    assert shorter == packets.tobytes()
    assert full == (b"" if together else before[:1].tobytes() + behind[1:].tobytes())


def test_a_bare_packet_behind_longer_ones_is_taken_like_any_other(sockets):
    (_, far), packets = links(sockets), numbered(2, own(sockets[0]))
    last = replies(own(sockets[0]))[:1]
    segment = (socket.SOL_UDP, UDP_SEGMENT, struct.pack("=H", packets.itemsize))
    sockets[0].sendmsg([packets.tobytes(), last.tobytes()], [segment])
    assert collect_both(far, 3) == (packets.tobytes(), last.tobytes())


def test_a_damaged_bare_packet_is_dropped_and_counted(sockets):
    (_, far), packets = links(sockets), replies(own(sockets[0]))
    packets["workers"][1] ^= 1
    for packet in packets:
        sockets[0].send(packet.tobytes())
    assert collect_both(far, 2) == (b"", packets[[0, 2]].tobytes())
    assert far.corrupted == 1


@pytest.mark.parametrize("counts", [(1, 1), (70, 3), (3, 130)])
def test_batches_of_both_lengths_leave_one_after_the_other(cable, counts: tuple[int, int]):
    near, far = cable
    full = frames_from(near, counts[0])
    local = near._packets._socket.getsockname()
    shorter = bare(numbered(counts[1], frame_address(local), near.bare_encapsulation))
    address = frame_address(local)
    seal(shorter, int.from_bytes(address.ip_bytes), address.udp_port)
    near.send(unsealed(full))
    near.send(unsealed(shorter))
    assert collect_both(far, sum(counts)) == (full.tobytes(), shorter.tobytes())


def test_nobody_at_the_other_end_is_a_lost_packet():
    a, b = free_ports(2)
    ends = [frame_address(("127.0.0.1", port)) for port in (a, b)]
    near = open_link(f"udp:127.0.0.1:{a}/127.0.0.1:{b}", ends[1], LANES)
    with contextlib.closing(near):
        packets = frames_from(near, 3)
        for _ in range(3):
            near.send(packets)
            near.wait(1)
            assert not len(near.receive())
        far = open_link(f"udp:127.0.0.1:{b}/127.0.0.1:{a}", ends[0], LANES)
        with contextlib.closing(far):
            near.send(packets)
            assert collect(far, 3) == packets.tobytes()


def test_frames_on_a_cable_carry_its_own_address():
    local, remote = free_ports(2)
    link = open_link(f"udp:127.0.0.1:{local}/127.0.0.1:{remote}", SERVICE, LANES)
    link.close()
    own = frame_address(("127.0.0.1", local))
    assert link.encapsulation == encapsulation(own, SERVICE, packet_bytes(LANES))
    hello = Ether(link.bare_encapsulation + blank(1, 0, Kind.HELLO).tobytes())
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
            assert link.encapsulation == link.bare_encapsulation == b""
            link.send(unsealed(numbered(2, SERVICE)))
            (first, sender), (second, _) = (switch.recvfrom(1 << 16) for _ in range(2))
            assert first + second == numbered(2, Address("", *sender)).tobytes()
            [answer] = numbered(1, service)
            switch.sendto(answer.tobytes(), sender)
            assert collect(link, 1) == answer.tobytes()


def test_what_is_not_as_the_switch_has_sent_it_is_dropped_and_counted(sockets):
    (near, far), packets = links(sockets), numbered(6, own(sockets[0]))
    packets["lanes"][1, 7] ^= 1
    packets["check"][2] += 1
    packets["sequence"][4] ^= 1 << 31
    for batch in (packets[:3], packets[3:]):
        segment = (socket.SOL_UDP, UDP_SEGMENT, struct.pack("=H", packets.itemsize))
        sockets[0].sendmsg([batch.tobytes()], [segment])
    assert collect(far, 3) == packets[[0, 3, 5]].tobytes()
    assert far.corrupted == 3
    seal(packets, int.from_bytes(SERVICE.ip_bytes), SERVICE.udp_port)  # sealed by another sender
    sockets[0].send(packets[:1].tobytes())
    near.send(packets[:1])
    assert collect(far, 1) == packets[:1].tobytes()
    assert far.corrupted == 4


@pytest.mark.parametrize("together", [True, False])
def test_a_mark_of_the_network_becomes_a_flag_of_its_packets(sockets, together: bool):
    (_, far), packets = links(sockets), numbered(3, own(sockets[0]))
    segment = (socket.SOL_UDP, UDP_SEGMENT, struct.pack("=H", packets.itemsize))
    for ecn in (Ecn.CONGESTED, Ecn.CAPABLE, Ecn.NOT_CAPABLE):
        sockets[0].setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 46 << 2 | ecn)
        if together:
            sockets[0].sendmsg([packets.tobytes()], [segment])
        else:
            for packet in packets:
                sockets[0].send(packet.tobytes())
        got = np.frombuffer(collect(far, 3), packets.dtype)
        assert (marked(got) == (ecn == Ecn.CONGESTED)).all()
        assert (got["sequence"] == packets["sequence"]).all()


@pytest.mark.parametrize("count", [1, 5])
def test_a_host_with_a_long_queue_marks_its_own_packets(sockets, which_code, monkeypatch, count):
    if which_code == "C":
        monkeypatch.setitem(fastpath._CONSTANTS, "LONG_QUEUE_BYTES", 0)
        library = fastpath.compile_with({})
        monkeypatch.setattr(fastpath, "compiled", lambda: library)
    else:
        monkeypatch.setattr(numpy_socket, "LONG_QUEUE_BYTES", 0)
    (near, far), packets = links(sockets), numbered(count, own(sockets[0]))
    near.send(unsealed(packets))
    got = np.frombuffer(collect(far, count), packets.dtype)
    assert marked(got).all()
    assert (got["lanes"] == packets["lanes"]).all()


def test_a_link_tells_whether_packets_wait_for_it():
    front = bytes(42)
    near, far = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    with near, far:
        link = Link(near, LANES, SERVICE, SERVICE, front, front)
        assert not link.is_sending
        link.send(numbered(1, SERVICE, front))
        assert link.is_sending, "nobody has taken the packet"
        assert far.recv(1 << 16)
        assert not link.is_sending


def test_marks_do_not_hide_damage(sockets):
    (_, far), packets = links(sockets), numbered(3, own(sockets[0]))
    packets["flags"][1] |= Flag.MARKED  # without a new check
    sockets[0].setsockopt(socket.IPPROTO_IP, socket.IP_TOS, Ecn.CONGESTED)
    for packet in packets:
        sockets[0].send(packet.tobytes())
    got = np.frombuffer(collect(far, 2), packets.dtype)
    assert got["sequence"].tolist() == [0, 2]
    assert far.corrupted == 1


def test_a_host_takes_part_in_ecn_and_frames_on_cables_carry_it_themselves(sockets):
    links(sockets)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.connect(("127.0.0.1", 9))
        Link(other, LANES, own(other), SERVICE, bytes(42), bytes(42))
        services = [each.getsockopt(socket.IPPROTO_IP, socket.IP_TOS) for each in (*sockets, other)]
    assert services == [Ecn.CAPABLE, Ecn.CAPABLE, Ecn.NOT_CAPABLE]
    front = encapsulation(SERVICE, SERVICE, packet_bytes(LANES), Ecn.CONGESTED)
    packets = numbered(2, SERVICE, front)
    assert marked(packets).all()
    assert Ether(packets[0].tobytes())[IP].tos == Ecn.CONGESTED
    assert not marked(numbered(2, SERVICE, encapsulation(SERVICE, SERVICE, 0))).any()


def test_of_a_switch_that_does_not_seal_only_a_check_of_zero_is_taken(sockets):
    near, far = (Address("", *sock.getsockname()) for sock in sockets)
    link = Link(sockets[1], LANES, far, near, sealed=False)
    packets = unsealed(numbered(4, near))
    packets["check"][1] = 1
    packets["lanes"][2, 7] ^= 1  # the check cannot show this
    for packet in packets:
        sockets[0].send(packet.tobytes())
    assert collect(link, 3) == packets[[0, 2, 3]].tobytes()
    link.send(packets[:1])
    sent = np.frombuffer(sockets[0].recv(1 << 16), packets.dtype)
    assert intact(sent, int.from_bytes(far.ip_bytes), far.udp_port).all(), "it seals what it sends"


def test_hellos_are_sealed_too():
    with udp_socket() as switch:
        service = Address(SERVICE.mac, *switch.getsockname())
        with contextlib.closing(open_link("host", service, LANES)) as link:
            link.send(blank(1, 0, Kind.HELLO))
            hello, (ip, port) = switch.recvfrom(1 << 16)
    received = np.frombuffer(hello, blank(1, 0, Kind.HELLO).dtype)
    assert intact(received, int.from_bytes(socket.inet_aton(ip)), port).all()


def test_a_bell_ends_the_wait_for_packets_once():
    waker = Waker()
    with udp_socket() as switch, contextlib.closing(waker):
        service = Address(SERVICE.mac, *switch.getsockname())
        with contextlib.closing(open_link("host", service, LANES, waker)) as link:
            with ThreadPoolExecutor(1) as pool:
                waiting = pool.submit(link.wait, 2 * WITHIN)
                waker.wake()
                waiting.result(WITHIN)
            waker.wake()
            waker.wake()
            link.wait(60)
            link.wait(0)
            assert not len(link.receive())
    waker.wake()


def test_ends_of_cables_on_several_machines_have_addresses_of_their_own():
    # A switch refuses two workers with one MAC address, and users give all machines the same port.
    hosts = [f"192.168.{net}.{host}" for net in range(4) for host in range(1, 255)]
    addresses = [frame_address((host, port)) for host in hosts for port in (9001, 9002)]
    assert len({each.mac for each in addresses}) == len(addresses)
    assert {each.udp_port for each in addresses} == {9001, 9002}
    assert frame_address(("127.0.0.1", 9001)).ip == "10.0.35.41"
    assert all(64 <= int(each.ip.split(".")[1]) < 128 for each in addresses)


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
    with pytest.raises(UsageError, match=r"cannot open link .* an address of this machine"):
        open_link(f"udp:{local}:{free_ports(1)[0]}/127.0.0.1:9", SERVICE, LANES)


def test_a_port_in_use_is_refused():
    with udp_socket() as other:
        port = other.getsockname()[1]
        with pytest.raises(UsageError, match=rf"{port}.*in use"):
            open_link(f"udp:127.0.0.1:{port}/127.0.0.1:9", SERVICE, LANES)


def test_a_link_without_a_route_names_the_address_and_what_to_do(monkeypatch):
    def connect(*_):
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(socket.socket, "connect", connect)
    why = r"service address 10\.9\.9\.254: Network is unreachable; .*`ip route get 10\.9\.9\.254`"
    with pytest.raises(UsageError, match=why):
        open_link("host", Address("02:00:00:00:00:fe", "10.9.9.254", 19790), lanes=64)
