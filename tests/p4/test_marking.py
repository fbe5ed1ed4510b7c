"""Switches with a long queue mark packets whose senders take part in ECN, and no others."""

import json
from typing import Any

import compared_switches
import pytest
from aggregation_rack import NAMES, PROGRAM, SERVICE, Job, number, station
from chip_rack import chip_rack
from compared_switches import Target, embedded
from p4runtime_client import group
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from tiny_programs import Program

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.wire.frames import TYPE_OF_SERVICE
from innet.wire.layout import OPERATION_BITS, Ecn, Kind

FROM, TO = station(1), station(2)
JOB = 7
CHECKSUM = slice(24, 26)


def frame(tos: int, payload: int = 100) -> bytes:
    """Return a frame that the switch bridges."""
    ip = IP(src=FROM.ip, dst=TO.ip, tos=tos, id=5)
    return bytes(Ether(src=FROM.mac, dst=TO.mac) / ip / UDP(sport=7, dport=8) / bytes(payload))


def remade(raw: bytes) -> bytes:
    """Return the same frame with the IPv4 checksum that it should have."""
    packet = Ether(raw)
    del packet[IP].chksum
    return bytes(packet)


def always_marking() -> Program:
    """Return the program for which every queue is long."""

    def lower(node: Any) -> None:
        if isinstance(node, dict):
            if node.get("op") == ">=" and "enq_qdepth" in json.dumps(node["left"]):
                node["right"]["value"] = "0x000000"
            for each in node.values():
                lower(each)
        elif isinstance(node, list):
            for each in node:
                lower(each)

    changed = json.loads(PROGRAM.json)
    lower(changed)
    return Program(json.dumps(changed).encode(), PROGRAM.p4info)


def bridge(target: Target) -> None:
    """Let the switch bridge the frames."""
    entries = [
        NAMES.entry("bridge", {"destination": number(TO.mac_bytes)}, "forward", port=2),
        NAMES.entry("own_addresses", {"address": number(SERVICE.ip_bytes)}, "expose"),
        group(1, (1, 1), (2, 1)),
    ]
    for each in entries:
        assert target.write(p4rt.Update(type=p4rt.Update.INSERT, entity=each))


@pytest.mark.parametrize("switch", ["embedded", "bmv2"])
def test_with_a_long_queue_packets_are_marked_and_their_checksums_stay_as_right_as_they_were(
    switch: str,
):
    if switch == "bmv2" and not compared_switches.available():
        pytest.skip("BMv2 is not installed")
    with getattr(compared_switches, switch)(always_marking()) as target:
        bridge(target)
        for dscp in (0, 46 << 2):
            [(_, same)] = target.send(1, frame(dscp))
            assert same == frame(dscp), "its sender does not take part"
            for ecn in (1, 2, 3):
                [(port, marked)] = target.send(1, frame(dscp | ecn))
                assert (port, marked[TYPE_OF_SERVICE]) == (2, dscp | Ecn.CONGESTED)
                assert marked == remade(frame(dscp | Ecn.CONGESTED))
        for stored in (b"\0\0", b"\0\1", b"\0\2", b"\xff\xff"):
            wrong = bytearray(frame(Ecn.CAPABLE))
            wrong[CHECKSUM] = stored
            [(_, marked)] = target.send(1, bytes(wrong))
            assert marked != remade(marked)


def test_frames_that_wait_for_the_link_make_the_queue_long():
    count, size = 100, 1400
    with embedded(Program(PROGRAM.json, PROGRAM.p4info)) as target:
        bridge(target)
        inner, outer = target._far[1], target._far[2]
        for ecn in (Ecn.CAPABLE, Ecn.NOT_CAPABLE):
            for _ in range(count):
                wanted = target.engine.port_counts(1).received.packets + 1
                inner.send(frame(ecn, size))
                while target.engine.port_counts(1).received.packets < wanted:
                    pass  # one by one, because frames that leave together have one look at the queue
            services = [outer.recv(1 << 16)[TYPE_OF_SERVICE] for _ in range(count)]
            if ecn == Ecn.NOT_CAPABLE:
                assert set(services) == {ecn}
            else:
                assert services == sorted(services)
                assert (services[0], services[-1]) == (Ecn.CAPABLE, Ecn.CONGESTED)


@pytest.mark.parametrize(("chip", "long"), [("tofino", 512), ("tofino2", 256)])
def test_a_tofino_marks_its_own_packets_and_leaves_others_to_the_traffic_manager(chip, long):
    with chip_rack(2, chip) as rack:
        rack.controller.insert(group(JOB, (1, 1), (2, 2)))
        rack.controller.insert(
            NAMES.entry("bridge", {"destination": number(TO.mac_bytes)}, "forward", port=2)
        )
        for rank in (0, 1):
            rack.admit(JOB, rank, 2)
        job = Job(rack, JOB, 2, 4096)
        for sequence, cells in enumerate((0, long - 1, long, 2 * long + 1), start=1):
            rack.switch.queued_cells = cells
            job.send(0, sequence, 1)
            job.send(1, sequence, 2)
            for port in (1, 2):
                got = rack.receive(port)
                assert got[43] >> OPERATION_BITS == Kind.RESULT
                wanted = Ecn.CONGESTED if cells >= long else Ecn.CAPABLE
                assert got[TYPE_OF_SERVICE] == wanted
                assert got[:42] == remade(got)[:42]
            rack.send(1, frame(Ecn.CAPABLE))
            assert rack.receive(2) == frame(Ecn.CAPABLE)
