"""Wireshark's dissector: tshark reads from packets what Scapy reads."""

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from commands import BIN, run
from racks import WITHIN, means, rack
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Packet, Raw
from scapy.utils import rdpcap, wrpcap

from innet.observe.capture import innet_frames
from innet.wire.capture import Innet, Lanes
from innet.wire.layout import HEADER, UDP_PORT, WITH_LANES, Flag, Kind, Operation

pytestmark = pytest.mark.skipif(not shutil.which("tshark"), reason="tshark is not on the PATH")

NAMES = [f"innet.{field.name}" for field in HEADER]
FLAGS = {flag: f"innet.flags.{str(flag.name).lower()}" for flag in Flag}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the dissector as the command writes it."""
    path = tmp_path_factory.mktemp("lua") / "innet.lua"
    path.write_text(run("innet", "capture", "--dissector").stdout)
    return path


def read(script: Path, file: Path) -> Iterator[list[str]]:
    """Yield what tshark reads of each innet packet: header, flags, lanes."""
    names = [*NAMES, *FLAGS.values(), "innet.lane"]
    fields = [word for name in names for word in ("-e", name)]
    done = subprocess.run(
        ["tshark", "-X", f"lua_script:{script}", "-r", file, "-Y", "innet", "-T", "fields", *fields],
        capture_output=True, text=True, timeout=WITHIN, check=True,
    )  # fmt: skip
    assert "Lua" not in done.stderr
    for line in done.stdout.splitlines():
        yield line.split("\t")


def expected(frame: Packet) -> list[str]:
    """Return what Scapy reads of an innet packet, as tshark writes it."""
    header = frame[Innet]
    hexadecimal = {"flags": "0x{:04x}", "workers": "0x{:016x}", "check": "0x{:08x}"}
    fields = [
        hexadecimal.get(each.name, "{}").format(int(getattr(header, each.name))) for each in HEADER
    ]
    flags = [str(int(bool(int(header.flags) & flag))) for flag in FLAGS]
    lanes = frame[Lanes].lanes if Lanes in frame else []
    return [*fields, *flags, ",".join(map(str, lanes))]


def test_every_kind_of_packet_is_read_plain_and_in_a_cable(script: Path, tmp_path: Path):
    packets = []
    for number, kind in enumerate(Kind):
        header = Innet(
            kind=kind, operation=Operation.MAX, count=7, job=40_000, term=50_000, slot=60_000,
            flags=number % 4, sequence=1 << 31, workers=0x8000_0001_8000_0001, check=0xFEDC_BA98,
        )  # fmt: skip
        udp = UDP(sport=UDP_PORT, dport=50_000) if number % 2 else UDP(sport=50_000, dport=UDP_PORT)
        frame = Ether() / IP(src="10.0.0.1", dst="10.0.0.2") / udp / header
        if kind in WITH_LANES:
            frame /= Lanes(lanes=[-(1 << 31), -1, 0, (1 << 31) - 1])
        cable = Ether() / IP(src="127.0.0.1", dst="127.0.0.1") / UDP(sport=8001, dport=9001)
        packets += [frame, cable / Raw(bytes(frame)), cable / Raw(b"something else")]
    file = tmp_path / "kinds.pcap"
    wrpcap(str(file), packets)
    frames = [frame for packet in rdpcap(str(file)) for frame in innet_frames(packet)]
    assert len(frames) == 2 * len(Kind)
    assert [*read(script, file)] == [expected(frame) for frame in frames]


@pytest.mark.skipif(os.geteuid() != 0, reason="capturing needs root")
def test_a_real_exchange_is_read(script: Path, tmp_path: Path):
    file, shown = tmp_path / "rack.pcapng", tmp_path / "shown"
    command = [str(BIN / "innet"), "capture", "lo", "--write", str(file)]
    vector, deadline = np.arange(1000, dtype=np.float32), time.monotonic() + WITHIN
    with rack(2) as tor, shown.open("w") as output, contextlib.ExitStack() as stack:
        capture = stack.enter_context(subprocess.Popen(command, stdout=output))
        stack.callback(capture.kill)
        while not {"HELLO", "CONTRIBUTION", "RESULT"} < {*shown.read_text().split()}:
            with tor.workers(2) as agents:
                means(agents, vector, vector)
            assert time.monotonic() < deadline
        capture.send_signal(signal.SIGINT)
        capture.wait(WITHIN)
    frames = rdpcap(str(file))
    assert [*read(script, file)] == [expected(frame) for frame in frames]
    assert len(frames) == len(shown.read_text().splitlines())
