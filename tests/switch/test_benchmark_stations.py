"""Frames that the workers of benchmarks.switch send, as they arrive at the switch's interface."""

import contextlib
import os
import shutil
import socket

import numpy as np
import pytest

from benchmarks.cores import TERM, contributions
from benchmarks.switch import Station, entered
from innet.controller.jobs.records import Assignment, SlotRange
from innet.machine.sockets import enlarge_buffers
from innet.wire.check import intact
from innet.wire.frames import ENCAPSULATION_BYTES, Address
from innet.wire.records import packet_bytes, packet_dtype
from topologies import namespaces

pytestmark = pytest.mark.skipif(
    os.geteuid() != 0 or not shutil.which("ip"), reason="needs root and iproute2"
)

OWN = Address("02:00:00:00:00:01", "10.0.0.1", 4001)
FIRST_SLOT, SEQUENCE = 256, 3_000_000_000
ANSWERS_WITHIN = 120


@pytest.mark.parametrize("lanes", [64, 256])
@pytest.mark.parametrize("part", [slice(0, 128), slice(5, 6), slice(100, 143)])
def test_a_burst_becomes_one_intact_frame_for_each_contribution(lanes, part):
    job = Assignment(1, SlotRange(1, FIRST_SLOT, 256), TERM)
    with namespaces.rack(1) as rack, contextlib.ExitStack() as stack:
        with entered(rack.switch):
            port = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW))
            port.bind(("eth1", 0x0800))
        enlarge_buffers(port)
        port.settimeout(ANSWERS_WITHIN)
        station = Station(rack.workers[0], OWN, contributions(OWN, job, lanes))
        stack.callback(station.close)
        station.send(part, SEQUENCE)
        frames = [port.recv(2000) for _ in range(part.start, part.stop)]
    assert {len(frame) for frame in frames} == {ENCAPSULATION_BYTES + packet_bytes(lanes)}
    records = np.frombuffer(b"".join(frames), packet_dtype(lanes, ENCAPSULATION_BYTES))
    assert list(records["slot"]) == [FIRST_SLOT + slot for slot in range(part.start, part.stop)]
    assert set(records["sequence"]) == {SEQUENCE}
    assert intact(records, OWN.ip_number, OWN.udp_port).all()
