"""Ordinary traffic, and damaged traffic, through a switch that runs the aggregation program."""

import contextlib
import random
import socket
import struct
from collections.abc import Iterator

import pytest
from aggregation_rack import (
    NAMES,
    SERVICE,
    AggregationRack,
    aggregation_rack,
    arp_request,
    number,
    station,
)
from scapy.layers.inet import IP, UDP, IPOption_RR
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Dot1AD, Dot1Q, Ether
from switches import receive, udp_socket
from tiny_programs import program

from innet.switch.engine import Engine
from innet.switch.engine.counts import Count
from innet.switch.ports import open_port
from innet.wire.check import seal
from innet.wire.frames import ENCAPSULATION_BYTES, encapsulation
from innet.wire.layout import HEADER_BYTES, UDP_PORT, Flag, Kind, Operation
from innet.wire.records import Records, blank, packet_bytes, set_field

PORTS = (1, 2, 3)
UDP_SEGMENT = 103


@pytest.fixture(scope="module")
def rack() -> Iterator[AggregationRack]:
    with aggregation_rack(len(PORTS)) as made:
        yield made


def to(destination: str, source: str = "02:00:00:00:00:01", **ip) -> Ether:
    return Ether(src=source, dst=destination) / IP(src="10.0.0.1", dst="10.0.0.2", **ip)


def sealed(record: Records, udp_port: int, address: int = station(1).ip_number) -> Records:
    """Return the packet with the check that it needs in a frame from this address."""
    seal(record, address, udp_port)
    return record


def test_an_empty_frame_behind_others_leaves_a_cable_made_of_udp_too():
    with udp_socket() as near, udp_socket() as far:
        ends = [f"127.0.0.1:{each.getsockname()[1]}" for each in (near, far)]
        near.close()
        port = open_port(f"2@udp:{ends[0]}/{ends[1]}")
        engine = Engine(program("path_truncate").json)
        whole = struct.pack("!BHHH", 0, 0, 0, 0) + bytes(range(20))
        empty = struct.pack("!BHHH", 1, 0, 0, 0)  # the program cuts it to no bytes
        with contextlib.closing(port), contextlib.closing(engine):
            far.connect(port.socket.getsockname())
            for frame in (whole, whole, empty, whole):
                far.send(frame)
            engine.start([port])  # which takes all four at once
            assert [receive(far) for _ in range(4)] == [whole, whole, b"", whole]
            assert engine.port_counts(2).sent == Count(4, 3 * len(whole))


# -- the bridge ----------------------------------------------------------------------------------


@pytest.mark.parametrize("ingress", PORTS)
def test_a_frame_for_an_unknown_station_reaches_every_port_but_its_own(rack, ingress):
    frame = bytes(to("02:00:00:00:00:99") / b"anybody?")
    rack.send(ingress, frame)
    for port in PORTS:
        if port != ingress:
            assert rack.receive(port) == frame
    rack.assert_quiet(ingress)


def test_the_bridge_learns_nothing_from_what_it_forwards(rack):
    rack.send(1, bytes(to("02:00:00:00:00:99", source="02:00:00:00:00:77")))
    assert rack.receive(2) == rack.receive(3)
    rack.send(2, bytes(to("02:00:00:00:00:77")))
    assert rack.receive(1) == rack.receive(3)


def test_a_known_station_is_reached_through_its_port_alone(rack):
    frame = bytes(to("02:00:00:00:00:55") / b"for you")
    entry = NAMES.entry("bridge", {"destination": 0x0200_0000_0055}, "forward", port=2)
    rack.controller.insert(entry)
    rack.send(1, frame)
    assert rack.receive(2) == frame
    rack.assert_quiet(1, 3)
    rack.controller.delete(entry)
    rack.send(1, frame)
    assert rack.receive(3) == rack.receive(2) == frame


def passing() -> dict[str, Ether]:
    """Return frames that the switch only has to pass on."""
    somebody = "02:00:00:00:00:99"
    innet = blank(1, 64, Kind.CONTRIBUTION)
    set_field(innet, "operation", Operation.SUM)
    good = sealed(innet, 53).tobytes()
    return {
        "ARP for another": arp_request(1, "10.0.0.2"),
        "ARP in Ethernet padding": arp_request(1, "10.0.0.2") / bytes(18),
        "UDP": to(somebody) / UDP(sport=5, dport=53) / b"query",
        "UDP with a wrong checksum": to(somebody, chksum=0xDEAD) / UDP(chksum=0xBEEF) / b"?",
        "innet, to another switch": to(somebody) / UDP(dport=UDP_PORT) / innet.tobytes(),
        "innet, with fewer lanes": to(somebody) / UDP(dport=UDP_PORT) / innet.tobytes()[:100],
        "innet, another version": to(somebody) / UDP(dport=UDP_PORT) / (b"\7" * 400),
        "innet, with a wrong check": to(somebody)
        / UDP(dport=UDP_PORT)
        / sealed(innet, 1).tobytes(),
        "innet, with a wrong IPv4 checksum": to(somebody, chksum=1) / UDP(dport=UDP_PORT) / good,
        "IPv4 with options": to(somebody, options=[IPOption_RR()]) / b"recorded",
        "a fragment": to(somebody, flags="MF", frag=0, proto=17) / bytes(24),
        "a later fragment": to(somebody, frag=99, proto=17) / bytes(24),
        "TTL 0": to(somebody, ttl=0),
        "VLAN": Ether(dst=somebody, src=station(1).mac) / Dot1Q(vlan=5) / IP() / b"tagged",
        "VLAN, another protocol": Ether(dst=somebody) / Dot1Q(vlan=5) / IPv6(dst="fe80::1"),
        "VLAN, ARP": Ether(dst=somebody) / Dot1Q(vlan=5) / ARP(psrc="10.0.0.1", pdst=SERVICE.ip),
        "a VLAN in a VLAN": Ether(dst=somebody) / Dot1AD(vlan=6) / Dot1Q(vlan=5) / IP() / b"tagged",
        "IPv6": Ether(dst=somebody, src=station(1).mac) / IPv6(dst="fe80::1") / b"six",
        "an Ethernet header alone": Ether(dst=somebody, src=station(1).mac, type=0x1234),
        "a large frame": to(somebody) / random.Random(1).randbytes(60_000),
    }


@pytest.mark.parametrize("case", passing())
def test_what_is_for_others_passes_byte_by_byte(rack, case):
    frame = bytes(passing()[case])
    rack.send(1, frame)
    assert rack.receive(2) == frame
    assert rack.receive(3) == frame
    rack.assert_quiet(1)


def test_a_burst_of_frames_of_all_sizes_arrives_in_order(rack):
    sizes = random.Random(2).choices((0, 1, 100, 100, 101), k=100)
    frames = [bytes(to("02:00:00:00:00:99") / (bytes([i]) * size)) for i, size in enumerate(sizes)]
    for frame in frames:
        rack.send(1, frame)
    for port in (2, 3):
        assert [rack.receive(port) for _ in frames] == frames


def test_datagrams_that_the_kernel_has_joined_are_frames_of_their_own(rack):
    frames = [bytes(to("02:00:00:00:00:99") / (bytes([i]) * 80)) for i in range(20)]
    frames.append(frames[0][:60])  # the last one may be shorter
    size = struct.pack("=H", len(frames[0]))
    sender = rack.switch.hosts[0]
    sender.sendmsg([b"".join(frames)], [(socket.SOL_UDP, UDP_SEGMENT, size)])
    for port in (2, 3):
        assert [rack.receive(port) for _ in frames] == frames


# -- the switch's own address --------------------------------------------------------------------


@pytest.mark.parametrize("port", PORTS)
def test_who_asks_for_the_service_address_is_told(rack, port):
    answer = Ether(rack.ask(port))
    assert (answer.dst, answer.src) == (station(port).mac, SERVICE.mac)
    assert (answer[ARP].op, answer[ARP].hwsrc, answer[ARP].psrc) == (2, SERVICE.mac, SERVICE.ip)
    assert (answer[ARP].hwdst, answer[ARP].pdst) == (station(port).mac, station(port).ip)
    assert len(answer) == 14 + 28


def test_the_service_address_is_what_the_table_says(rack):
    entry = NAMES.entry("service", {"address": number(station(9).ip_bytes)}, "serve", mac=0x42)
    rack.controller.insert(entry)
    rack.send(1, bytes(arp_request(1, station(9).ip)))
    assert Ether(rack.receive(1))[ARP].hwsrc == "00:00:00:00:00:42"
    rack.controller.delete(entry)
    rack.send(1, bytes(arp_request(1, station(9).ip)))
    assert Ether(rack.receive(2))[ARP].pdst == station(9).ip
    assert Ether(rack.receive(3))[ARP].pdst == station(9).ip


def test_other_packets_for_the_service_address_end_at_the_switch(rack):
    header = Ether(src=station(1).mac, dst=SERVICE.mac)
    ip = IP(src=station(1).ip, dst=SERVICE.ip)
    reply = ARP(op="is-at", psrc=station(1).ip, pdst=SERVICE.ip)
    token_ring = ARP(op="who-has", hwtype=6, pdst=SERVICE.ip)
    for packet in (ip / UDP(dport=53), ip, IP(dst=SERVICE.ip, proto=1), reply, token_ring):
        rack.send(1, bytes(header / packet))
    rack.assert_quiet(*PORTS)


FORGED = IP(src=SERVICE.ip, dst=station(2).ip)
GRATUITOUS = ARP(op="is-at", hwsrc=station(1).mac, psrc=SERVICE.ip, pdst=SERVICE.ip)


@pytest.mark.parametrize(
    "packet",
    [
        pytest.param(FORGED / UDP(sport=UDP_PORT, dport=5) / bytes(280), id="a result"),
        pytest.param(IP(src=SERVICE.ip, dst=SERVICE.ip) / UDP(dport=UDP_PORT), id="to the switch"),
        pytest.param(FORGED / b"?", id="another protocol"),
        pytest.param(IP(src=SERVICE.ip, options=[IPOption_RR()]), id="with options"),
        pytest.param(IP(src=SERVICE.ip, frag=9) / bytes(24), id="a fragment"),
        pytest.param(GRATUITOUS, id="an ARP reply"),
        pytest.param(ARP(psrc=SERVICE.ip, pdst=station(2).ip), id="an ARP request"),
        pytest.param(Dot1Q(vlan=0) / FORGED, id="with a priority"),
        pytest.param(Dot1Q(vlan=5) / FORGED, id="in a VLAN"),
        pytest.param(Dot1Q(vlan=0) / GRATUITOUS, id="ARP with a priority"),
        pytest.param(Dot1AD(vlan=0) / Dot1Q(vlan=0) / FORGED, id="with two tags"),
    ],
)
def test_what_is_sent_in_the_switchs_name_is_dropped_and_counted(rack, packet):
    before = rack.dropped(1)
    for destination in (station(2).mac, SERVICE.mac, "ff:ff:ff:ff:ff:ff"):
        rack.send(1, bytes(Ether(src=station(1).mac, dst=destination) / packet))
    rack.assert_quiet(*PORTS)
    rack.assert_dropped(1, before, spoofed=3)


def test_what_has_more_than_two_tags_is_dropped(rack):
    tags = Dot1Q(vlan=0) / Dot1Q(vlan=0) / Dot1Q(vlan=0)
    rack.send(1, bytes(Ether(dst=station(2).mac) / tags / FORGED))
    rack.assert_quiet(*PORTS)


# -- hellos --------------------------------------------------------------------------------------


def hello(nonce: int = 4711) -> Records:
    record = blank(1, 0, Kind.HELLO, encapsulation(station(2), SERVICE, packet_bytes(0)))
    record["sequence"] = nonce
    return sealed(record, station(2).udp_port, station(2).ip_number)


def test_a_hello_reaches_the_controller_with_its_port(rack):
    rack.send(2, hello().tobytes())
    heard = rack.controller.hear().packet
    assert heard.payload == hello().tobytes()
    assert [int.from_bytes(each.value) for each in heard.metadata] == [2, 0]


@pytest.mark.parametrize("byte", [28, *range(ENCAPSULATION_BYTES + 3, ENCAPSULATION_BYTES + 24)])
def test_a_corrupted_hello_does_not_reach_the_controller(rack, byte):
    before = rack.dropped(2)
    damaged = bytearray(hello().tobytes())
    damaged[byte] ^= 0x10
    rack.send(2, bytes(damaged))
    rack.assert_quiet(2)
    rack.assert_dropped(2, before, corrupted=1)
    rack.send(2, hello(byte).tobytes())
    assert rack.controller.hear().packet.payload == hello(byte).tobytes()


@pytest.mark.parametrize("changes", [{"kind": Kind.CLEAR}, {"operation": 1}, {"version": 1}])
def test_a_worker_cannot_clear_and_its_hello_has_one_form(rack, changes):
    before = rack.dropped(2)
    record = hello()
    for name, value in changes.items():
        set_field(record, name, value)
    rack.send(2, sealed(record, station(2).udp_port, station(2).ip_number).tobytes())
    rack.assert_quiet(2)
    rack.assert_dropped(2, before, refused=1)


# -- damage --------------------------------------------------------------------------------------


def contribution() -> bytes:
    record = blank(1, 64, Kind.CONTRIBUTION, encapsulation(station(1), SERVICE, packet_bytes(64)))
    set_field(record, "operation", Operation.SUM)
    record["flags"] = Flag.CARRIED | Flag.WANTED
    return sealed(record, station(1).udp_port).tobytes()


@pytest.mark.parametrize(
    ("frame", "refused"),
    [
        pytest.param(b"", 0, id="empty"),
        pytest.param(b"\0", 0, id="1 byte"),
        pytest.param(bytes(13), 0, id="shorter than Ethernet"),
        pytest.param(bytes(arp_request(1, SERVICE.ip))[:41], 0, id="ARP cut"),
        pytest.param(bytes(to(SERVICE.mac))[:33], 0, id="IPv4 cut"),
        pytest.param(bytes(to(SERVICE.mac) / Dot1Q(vlan=5))[:17], 0, id="tag cut"),
        pytest.param(contribution()[: 14 + 20 + 7], 0, id="UDP cut"),
        pytest.param(contribution()[: ENCAPSULATION_BYTES + HEADER_BYTES - 1], 0, id="header cut"),
        pytest.param(contribution()[:-1], 1, id="lanes cut"),
    ],
)
def test_a_frame_that_is_cut_short_is_dropped(rack, frame, refused):
    before = rack.dropped(1)
    rack.send(1, frame)
    rack.assert_quiet(*PORTS)
    rack.assert_dropped(1, before, refused=refused)


@pytest.mark.parametrize("seed", range(10))
def test_random_bytes_do_no_harm(rack, seed):
    chance = random.Random(seed)
    good = contribution()
    for _ in range(50):
        damaged = bytearray(good[: chance.randrange(len(good) + 1)])
        for _ in range(min(len(damaged), chance.choice((1, 4, 400)))):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        rack.send(1, bytes(damaged))
        rack.send(1, chance.randbytes(chance.randrange(200)))
    rack.assert_quiet(1)
    for port in (2, 3):
        # A flooded frame comes first, and the answer to the next good packet comes last.
        frame = Ether(rack.ask(port))
        while ARP not in frame or frame.dst != station(port).mac:
            frame = Ether(rack.receive(port))
