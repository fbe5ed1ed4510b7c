"""``innet capture`` shows innet packets, here from capture files."""

import os
import re
import signal
import subprocess
from pathlib import Path

import numpy as np
import pytest
from commands import BIN, refuse, run, run_into_full_file
from scapy.layers.inet import ICMP, IP, UDP
from scapy.layers.inet6 import IPv6
from scapy.layers.l2 import ARP, Ether
from scapy.packet import Packet, Raw
from scapy.utils import wrpcap

from innet.errors import NotFound
from innet.observe.capture import select
from innet.rpc import innet_pb2 as pb
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
    packets = [
        contribution / lanes,
        Ether() / ARP(pdst="10.0.0.1"),
        cable / Raw(bytes(contribution / lanes)),
        cable / Raw(b"something else"),
        Ether() / IP() / UDP(dport=53) / Raw(bytes(80)),
        cable / Raw(bytes(result / lanes)),
        stale / lanes,
        result / Lanes(lanes=[-7, 9]),
    ]
    for second, packet in enumerate(packets):
        packet.time = 1_000_000_000 + second
    wrpcap(str(file), packets)


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
        at, _, rest = line.partition("  ")
        assert re.fullmatch(r"2001-09-09T01:46:4\d\.\d{6}Z", at)
        assert rest.startswith(f"{start} workers 0x0 OVERFLOW")
    verdicts = [line.partition("OVERFLOW")[2] for line in lines]
    assert verdicts == ["", "", "", "  CORRUPTED, if the switch seals", "  CORRUPTED"]


def test_frames_that_only_seem_to_be_innets_are_left_out(tmp_path: Path):
    there, port = IP(src="10.0.0.1", dst="10.255.255.254"), UDP(sport=50_000, dport=UDP_PORT)
    contribution = there / port / Innet(kind=Kind.CONTRIBUTION, job=3)
    cut = bytes(Ether() / IP(src="10.0.0.1", len=0) / port / Innet(kind=Kind.CONTRIBUTION))
    cable = Ether() / IP(src="127.0.0.1", dst="127.0.0.1") / UDP(sport=8001, dport=9001)
    packets = [
        Ether() / IP(src="10.255.255.254") / ICMP(type=3, code=3) / Raw(bytes(contribution)),
        Ether() / IPv6() / port / Innet(kind=Kind.CONTRIBUTION),
        cable / Raw(cut),
        Ether() / contribution,
    ]
    wrpcap(str(tmp_path / "odd.pcap"), packets)
    shown = run("innet", "capture", "--read", str(tmp_path / "odd.pcap"))
    assert (shown.returncode, shown.stderr) == (0, "")
    [line] = shown.stdout.splitlines()
    assert "innet CONTRIBUTION" in line


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


def test_shown_packets_can_be_written_to_a_new_file(tmp_path: Path):
    read, written = tmp_path / "rack.pcap", tmp_path / "innet.pcapng"
    write_capture(read)
    shown = run("innet", "capture", "--read", str(read), "--write", str(written))
    again = run("innet", "capture", "--read", str(written))
    assert (again.returncode, again.stdout) == (0, shown.stdout)
    assert written.read_bytes()[:4] == bytes.fromhex("0a0d0d0a")  # pcapng's first block
    refuse(
        "cannot write .*exists", "innet", "capture", "--read", str(read), "--write", str(written)
    )


def test_what_nobody_reads_or_no_disk_takes_is_no_end_of_the_capture(tmp_path: Path):
    read, written = tmp_path / "rack.pcap", tmp_path / "innet.pcapng"
    write_capture(read)
    full = run_into_full_file("innet", "capture", "--read", str(read), "--write", str(written))
    assert full.returncode == 1
    assert full.stderr.endswith("error: [Errno 28] No space left on device\n")  # not of `written`
    shown = [str(BIN / "innet"), "capture", "--read", str(read)]
    head = subprocess.run(
        ["bash", "-c", '"$@" | true; exit ${PIPESTATUS[0]}', "bash", *shown],
        check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert (head.returncode, head.stderr) == (1, "")


def test_ctrl_c_ends_a_capture_with_the_usual_code(tmp_path: Path):
    capture, pipe = tmp_path / "rack.pcap", tmp_path / "pipe"
    write_capture(capture)
    os.mkfifo(pipe)
    command = [str(BIN / "innet"), "capture", "--read", str(pipe)]
    with (
        os.fdopen(os.open(pipe, os.O_RDWR), "wb", buffering=0) as packets,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        packets.write(capture.read_bytes())
        assert process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait() == 130


def test_only_a_jobs_packets_are_shown_or_those_of_one_of_its_workers():
    job = pb.Job(name="train", id=3)
    job.members.add(rank=0, address=pb.Address(ip="10.0.0.1", udp_port=50_000))
    job.members.add(rank=1)
    ours, other = frame("10.0.0.1", 3), frame("10.0.0.1", 4)
    assert [select(job, None).matches(each) for each in (ours, other)] == [True, False]
    second = frame("10.0.0.2", 3)
    assert [select(job, 0).matches(each) for each in (ours, second)] == [True, False]
    for rank in (1, 2):
        with pytest.raises(NotFound, match=f"no admitted worker of rank {rank}: `innet job show`"):
            select(job, rank)


def frame(source: str, job: int) -> Packet:
    """Return a contribution of a job."""
    udp = UDP(sport=50_000, dport=UDP_PORT)
    return Ether(bytes(Ether() / IP(src=source, dst="10.255.255.254") / udp / Innet(job=job)))
