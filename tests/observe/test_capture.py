"""``innet capture`` shows innet packets, here from capture files."""

import re
from pathlib import Path

import numpy as np
from commands import refuse, run
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw
from scapy.utils import wrpcap

from innet.wire.capture import Innet, Lanes
from innet.wire.check import seal
from innet.wire.frames import Address
from innet.wire.layout import UDP_PORT, Flag, Kind, Operation
from innet.wire.records import packet_dtype


def write_capture(file: Path) -> None:
    """Write five innet packets among others, plain and in UDP cables. Two of them are corrupted."""
    header = {"operation": Operation.SUM, "job": 3, "term": 5, "slot": 1, "sequence": 2}
    header["flags"] = Flag.OVERFLOW
    there = IP(src="10.0.0.1", dst="10.255.255.254") / UDP(sport=50_000, dport=UDP_PORT)
    back = IP(src="10.255.255.254", dst="10.0.0.1") / UDP(sport=UDP_PORT, dport=50_000)
    contribution = Ether() / there / Innet(kind=Kind.CONTRIBUTION, **header)
    result = Ether() / back / Innet(kind=Kind.RESULT, **header)
    stale = Ether() / back / Innet(kind=Kind.STALE, **header)
    cable = Ether() / IP(src="127.0.0.1", dst="127.0.0.1") / UDP(sport=8001, dport=9001)
    lanes = Lanes(lanes=[-7, 8])
    for packet in (contribution, result):
        seal_for(packet, lanes)
    wrpcap(
        str(file),
        [
            contribution / lanes,
            Ether() / ARP(pdst="10.0.0.1"),
            cable / Raw(bytes(contribution / lanes)),
            cable / Raw(b"something else"),
            Ether() / IP() / UDP(dport=53) / Raw(bytes(80)),
            cable / Raw(bytes(result / lanes)),
            stale / lanes,
            result / Lanes(lanes=[-7, 9]),
        ],
    )


def seal_for(packet: Packet, lanes: Lanes) -> None:
    """Give a packet the right check for these lanes."""
    record = np.frombuffer(bytes(packet[Innet] / lanes), packet_dtype(len(lanes.lanes))).copy()
    source = Address(packet.src, packet[IP].src, packet[UDP].sport)
    seal(record, source.ip_number, source.udp_port)
    packet[Innet].check = int(record["check"][0])


def test_a_capture_is_shown_a_line_for_every_innet_packet(tmp_path: Path):
    write_capture(tmp_path / "rack.pcap")
    shown = run("innet", "capture", "--read", str(tmp_path / "rack.pcap"))
    assert shown.returncode == 0, shown.stderr
    there = (
        "10.0.0.1:50000 > 10.255.255.254:19790  innet CONTRIBUTION SUM job 3 term 5 slot 1 seq 2"
    )
    back = "10.255.255.254:19790 > 10.0.0.1:50000  innet RESULT SUM job 3 term 5 slot 1 seq 2"
    stale = back.replace("RESULT", "STALE")
    lines, starts = shown.stdout.splitlines(), [there, there, back, stale, back]
    for line, start in zip(lines, starts, strict=True):
        assert line.startswith(f"{start} workers 0x0 OVERFLOW")
    verdicts = [line.partition("OVERFLOW")[2] for line in lines]
    assert verdicts == ["", "", "", "  CORRUPTED, if the switch seals", "  CORRUPTED"]


def test_a_capture_can_be_cut_short_and_shown_in_full(tmp_path: Path):
    write_capture(tmp_path / "rack.pcap")
    arguments = ["capture", "--read", str(tmp_path / "rack.pcap"), "--count", "1"]
    assert len(run("innet", *arguments).stdout.splitlines()) == 1
    full = run("innet", *arguments, "--full").stdout
    assert full.count("[ innet ]") == 1
    assert re.search(r"lanes\s*= \[-7, 8\]", full)


def test_what_cannot_be_captured_from_ends_with_code_2(tmp_path: Path):
    (tmp_path / "text").write_text("no packets here")
    refuse("cannot capture from", "innet", "capture", "--read", str(tmp_path / "text"))
    refuse("cannot capture from", "innet", "capture", "--read", str(tmp_path / "none"))
    refuse("name an interface, or a file", "innet", "capture")
