"""Ordinary traffic, and damaged traffic, through a switch that runs the aggregation program."""

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
from scapy.layers.l2 import ARP, Dot1Q, Ether

from innet.wire.frames import encapsulation
from innet.wire.layout import UDP_PORT, Kind, Operation
from innet.wire.records import blank, packet_bytes

PORTS = (1, 2, 3)
UDP_SEGMENT = 103


@pytest.fixture(scope="module")
def rack() -> Iterator[AggregationRack]:
    with aggregation_rack(len(PORTS)) as made:
        yield made


def to(destination: str, source: str = "02:00:00:00:00:01", **ip) -> Ether:
    return Ether(src=source, dst=destination) / IP(src="10.0.0.1", dst="10.0.0.2", **ip)


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
    """Frames that are not the switch's business."""
    somebody = "02:00:00:00:00:99"
    innet = blank(1, 64, Kind.CONTRIBUTION)
    innet["operation"] = Operation.SUM
    return {
        "ARP for another": arp_request(1, "10.0.0.2"),
        "ARP in Ethernet padding": arp_request(1, "10.0.0.2") / bytes(18),
        "UDP": to(somebody) / UDP(sport=5, dport=53) / b"query",
        "UDP with a wrong checksum": to(somebody, chksum=0xDEAD) / UDP(chksum=0xBEEF) / b"?",
        "innet, to another switch": to(somebody) / UDP(dport=UDP_PORT) / innet.tobytes(),
        "innet, with fewer lanes": to(somebody) / UDP(dport=UDP_PORT) / innet.tobytes()[:100],
        "innet, another version": to(somebody) / UDP(dport=UDP_PORT) / (b"\7" * 400),
        "IPv4 with options": to(somebody, options=[IPOption_RR()]) / b"recorded",
        "a fragment": to(somebody, flags="MF", frag=0, proto=17) / bytes(24),
        "a later fragment": to(somebody, frag=99, proto=17) / bytes(24),
        "TTL 0": to(somebody, ttl=0),
        "VLAN": Ether(dst=somebody, src=station(1).mac) / Dot1Q(vlan=5) / IP() / b"tagged",
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


# -- damage --------------------------------------------------------------------------------------


def contribution() -> bytes:
    record = blank(1, 64, Kind.CONTRIBUTION, encapsulation(station(1), SERVICE, packet_bytes(64)))
    record["operation"] = Operation.SUM
    return record.tobytes()


@pytest.mark.parametrize(
    "frame",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b"\0", id="1 byte"),
        pytest.param(bytes(13), id="shorter than Ethernet"),
        pytest.param(bytes(arp_request(1, SERVICE.ip))[:41], id="ARP cut"),
        pytest.param(bytes(to(SERVICE.mac))[:33], id="IPv4 cut"),
        pytest.param(contribution()[: 14 + 20 + 7], id="UDP cut"),
        pytest.param(contribution()[: 14 + 20 + 8 + 19], id="innet header cut"),
        pytest.param(contribution()[:-1], id="lanes cut"),
    ],
)
def test_a_frame_that_is_cut_short_is_dropped(rack, frame):
    refused = NAMES.counter("refused", 1)
    [before] = rack.controller.count(refused)
    rack.send(1, frame)
    rack.assert_quiet(*PORTS)
    assert rack.controller.count(refused) == [before]


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
        # What was flooded comes first, the answer to the next good packet last.
        frame = Ether(rack.ask(port))
        while ARP not in frame or frame.dst != station(port).mac:
            frame = Ether(rack.receive(port))
