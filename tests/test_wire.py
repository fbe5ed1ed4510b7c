"""The packet format stands in P4, in a table, in numpy and in Scapy: the four must be one."""

import re
import subprocess
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import NoPayload, Packet, Padding

import innet
from innet.switch.build import find_compiler
from innet.wire.capture import Innet, Lanes
from innet.wire.frames import (
    ENCAPSULATION_BYTES,
    Address,
    encapsulation,
    internet_checksum,
    mac_text,
)
from innet.wire.layout import (
    HEADER,
    HEADER_BYTES,
    LANE_BYTES,
    MAX_WORKERS,
    UDP_PORT,
    VERSION,
    Kind,
    Operation,
)
from innet.wire.records import blank, packet_bytes, packet_dtype

HEADERS_P4 = Path(innet.__file__).parent / "p4" / "shared" / "headers.p4"
WITH_LANES = (Kind.CONTRIBUTION, Kind.RESULT, Kind.PENDING)
LANES = pytest.mark.parametrize("lanes", [64, 256])


@cache
def p4_text(lanes: int) -> str:
    """The P4 headers and constants as p4c sees them: macros unrolled, without comments."""
    command = [find_compiler(), "-E", "-P", "-x", "c", f"-DLANES={lanes}", str(HEADERS_P4)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def p4_header(name: str, lanes: int = 64) -> list[tuple[str, int]]:
    """(name, bits) of a P4 header's fields, in order."""
    body = re.search(rf"header\s+{name}\s*\{{(.*?)\}}", p4_text(lanes), re.DOTALL)
    assert body, f"no header {name} in {HEADERS_P4}"
    return [(field, int(bits)) for bits, field in re.findall(r"bit<(\d+)>\s+(\w+)\s*;", body[1])]


def p4_constants(prefix: str) -> dict[str, int]:
    """The P4 constants whose names start with `prefix`, without it."""
    found = re.findall(rf"const\s+bit<\d+>\s+{prefix}(\w+)\s*=\s*(\w+)\s*;", p4_text(64))
    return {name: int(value, 0) for name, value in found}


def placed(fields: list[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """(name, offset, width) in bits, of fields that follow each other without gaps."""
    offsets = np.cumsum([0] + [bits for _, bits in fields])
    return [(name, int(at), bits) for (name, bits), at in zip(fields, offsets, strict=False)]


P4_HEADER = placed(p4_header("innet_t"))


def test_table_has_the_p4_headers_fields():
    assert placed([(field.name, field.bits) for field in HEADER]) == P4_HEADER
    assert sum(bits for _, bits in p4_header("innet_t")) == HEADER_BYTES * 8


def test_scapy_layer_has_the_p4_headers_fields():
    assert placed([(field.name, int(field.sz * 8)) for field in Innet.fields_desc]) == P4_HEADER


@pytest.mark.parametrize("front", [0, ENCAPSULATION_BYTES])
@pytest.mark.parametrize("lanes", [0, 64, 256])
def test_numpy_view_has_the_p4_headers_fields(lanes: int, front: int):
    dtype = packet_dtype(lanes, front)
    view = [
        (name, (dtype.fields[name][1] - front) * 8, dtype[name].itemsize * 8)
        for name in dtype.names
        if name not in ("encapsulation", "lanes")
    ]
    assert view == P4_HEADER
    assert all(dtype[name].kind == "u" and dtype[name].str[0] in ">|" for name, _, _ in view)
    assert dtype.itemsize == front + packet_bytes(lanes)


@LANES
def test_lanes_are_where_p4_has_them(lanes: int):
    fields = p4_header("lanes_t", lanes)
    assert fields == [(f"lane_{lane:02x}", 8 * LANE_BYTES) for lane in range(lanes)]
    column, offset = packet_dtype(lanes).fields["lanes"][:2]
    assert (column.base, column.shape, offset) == (np.dtype(">i4"), (lanes,), HEADER_BYTES)
    assert len(bytes(Lanes(lanes=[0] * lanes))) == column.itemsize == lanes * LANE_BYTES


def test_constants_are_the_p4_constants():
    assert {member.name: member.value for member in Kind} == p4_constants("KIND_")
    assert {member.name: member.value for member in Operation} == p4_constants("OPERATION_")
    assert p4_constants("INNET_") == {"UDP_PORT": UDP_PORT, "VERSION": VERSION}
    assert dict(p4_header("innet_t"))["workers"] == MAX_WORKERS


def test_encapsulation_is_as_long_as_the_p4_headers_in_front():
    front = p4_header("ethernet_t") + p4_header("ipv4_t") + p4_header("udp_t")
    assert sum(bits for _, bits in front) == ENCAPSULATION_BYTES * 8


headers = st.fixed_dictionaries(
    {field.name: st.integers(0, 2**field.bits - 1) for field in HEADER}
    | {"kind": st.sampled_from(WITH_LANES).map(int)}
)
lane_values = st.sampled_from([64, 256]).flatmap(lambda lanes: arrays(np.int32, lanes))
addresses = st.builds(
    Address,
    st.binary(min_size=6, max_size=6).map(mac_text),
    st.ip_addresses(v=4).map(str),
    st.integers(1, 2**16 - 1),
)


def filled(header: dict[str, int], lanes: np.ndarray, front: bytes = b"") -> np.ndarray:
    packet = blank(1, lanes.size, Kind.CONTRIBUTION, front)
    for name, value in header.items():
        packet[name] = value
    packet["lanes"] = lanes
    return packet


def assert_holds(packet: Packet, header: dict[str, int], lanes: np.ndarray) -> None:
    assert {name: getattr(packet[Innet], name) for name in header} == header
    assert packet[Lanes].lanes == lanes.tolist()
    assert isinstance(packet[Lanes].payload, NoPayload)


@given(headers, lane_values)
def test_numpy_reads_what_scapy_builds(header: dict[str, int], lanes: np.ndarray):
    raw = bytes(Innet(**header) / Lanes(lanes=lanes.tolist()))
    (packet,) = np.frombuffer(raw, packet_dtype(lanes.size))
    assert {name: int(packet[name]) for name in header} == header
    np.testing.assert_array_equal(packet["lanes"], lanes)


@given(headers, lane_values)
def test_scapy_reads_what_numpy_builds(header: dict[str, int], lanes: np.ndarray):
    assert_holds(Innet(filled(header, lanes).tobytes()), header, lanes)


@given(headers, lane_values, addresses, addresses, st.booleans())
def test_scapy_reads_whole_frames(header, lanes, worker: Address, switch: Address, reply: bool):
    switch = Address(switch.mac, switch.ip)
    source, destination = (switch, worker) if reply else (worker, switch)
    front = encapsulation(source, destination, packet_bytes(lanes.size))
    assert len(front) == ENCAPSULATION_BYTES
    raw = filled(header, lanes, front).tobytes()
    frame = Ether(raw)
    assert (frame.src, frame.dst) == (source.mac, destination.mac)
    assert (frame[IP].src, frame[IP].dst) == (source.ip, destination.ip)
    assert (frame[UDP].sport, frame[UDP].dport) == (source.udp_port, destination.udp_port)
    assert UDP_PORT in (frame[UDP].sport, frame[UDP].dport)
    assert frame[IP].len == len(raw) - 14
    assert frame[UDP].len == len(raw) - 34
    assert Padding not in frame
    assert_holds(frame, header, lanes)
    rebuilt = frame.copy()
    del rebuilt[IP].len, rebuilt[IP].chksum, rebuilt[UDP].len
    assert bytes(rebuilt) == raw


@given(st.lists(st.binary(min_size=2, max_size=2)).map(b"".join))
def test_data_with_its_checksum_sums_to_zero(data: bytes):
    assert internet_checksum(data + internet_checksum(data).to_bytes(2, "big")) == 0


@pytest.mark.parametrize("kind", list(Kind))
def test_blank_packets_are_zero_but_for_version_and_kind(kind: Kind):
    packets = blank(3, 64, kind, bytes(range(1, ENCAPSULATION_BYTES + 1)))
    expected = bytes(range(1, ENCAPSULATION_BYTES + 1)) + bytes([VERSION, kind])
    assert packets.tobytes() == 3 * expected.ljust(packets.itemsize, b"\0")


@pytest.mark.parametrize("kind", [Kind.HELLO, Kind.CLEAR])
def test_packets_without_lanes_are_bare_headers(kind: Kind):
    packet = Innet(blank(1, 0, kind).tobytes())
    assert (packet.version, packet.kind) == (VERSION, kind)
    assert isinstance(packet.payload, NoPayload)


def test_summary_tells_what_happens():
    packet = Innet(kind=Kind.RESULT, operation=Operation.MAX, slot=17, sequence=4711, workers=5)
    assert {"RESULT", "MAX", "17", "4711", "0x5"} <= set(packet.summary().split())
