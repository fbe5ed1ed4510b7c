"""The packet format is the same in P4, in Python's table, in numpy and in Scapy."""

import json
import re
import subprocess
import sys
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
from innet.native.compiler import find_compiler
from innet.p4.artifacts import artifact
from innet.wire.capture import Innet, Lanes
from innet.wire.check import intact, seal, weight
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
    MOST_CONTRIBUTORS,
    MOST_WORKERS,
    UDP_PORT,
    VERSION,
    WITH_LANES,
    Flag,
    Kind,
    Operation,
)
from innet.wire.parameters import MOST, most
from innet.wire.records import blank, get_field, packet_bytes, packet_dtype, set_field

P4 = Path(innet.__file__).parent / "p4"
HEADERS_P4 = P4 / "shared" / "headers.p4"
LANES = pytest.mark.parametrize("lanes", [64, 256, 1024])


@cache
def p4_text(lanes: int) -> str:
    """Return the P4 headers and constants as p4c sees them: macros unrolled, without comments."""
    command = [find_compiler(), "-E", "-P", "-x", "c", f"-DLANES={lanes}", str(HEADERS_P4)]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def p4_header(name: str, lanes: int = 64) -> list[tuple[str, int]]:
    """Return (name, bits) of a P4 header's fields, in order."""
    body = re.search(rf"header\s+{name}\s*\{{(.*?)\}}", p4_text(lanes), re.DOTALL)
    assert body, f"no header {name} in {HEADERS_P4}"
    return [(name, int(bits)) for bits, name in re.findall(r"bit<(\d+)>\s+(\w+)\s*;", body[1])]


def p4_constants(prefix: str) -> dict[str, int]:
    """Return the P4 constants whose names start with `prefix`, without the prefix."""
    text = p4_text(64) + (P4 / "v1model" / "target.p4").read_text()
    found = re.findall(rf"const\s+bit<\d+>\s+{prefix}(\w+)\s*=\s*(\w+)\s*;", text)
    return {name: int(value, 0) for name, value in found}


def placed(fields: list[tuple[str, int]]) -> list[tuple[str, int, int]]:
    """Return (name, offset, width) in bits, of fields that follow each other without gaps."""
    offsets = np.cumsum([0] + [bits for _, bits in fields])
    return [(name, int(at), bits) for (name, bits), at in zip(fields, offsets, strict=False)]


P4_HEADER = placed(p4_header("innet_t"))


def test_table_has_the_p4_headers_fields():
    assert placed([(each.name, each.bits) for each in HEADER]) == P4_HEADER
    assert sum(bits for _, bits in p4_header("innet_t")) == HEADER_BYTES * 8


def test_scapy_layer_has_the_p4_headers_fields():
    bits = [(each.name, getattr(each, "size", int(each.sz * 8))) for each in Innet.fields_desc]
    assert placed(bits) == P4_HEADER


@pytest.mark.parametrize("front", [0, ENCAPSULATION_BYTES])
@pytest.mark.parametrize("lanes", [0, 64, 256, 1024])
def test_numpy_view_has_the_p4_headers_fields(lanes: int, front: int):
    dtype = packet_dtype(lanes, front)
    view = [
        (name, (dtype.fields[name][1] - front) * 8, dtype[name].itemsize * 8)
        for name in dtype.names
        if name not in ("encapsulation", "lanes")
    ]
    kind, operation = (each for each in P4_HEADER if each[0] in ("kind", "operation"))
    call = "call", kind[1], kind[2] + operation[2]
    assert view == [P4_HEADER[0], call, *P4_HEADER[3:]]
    assert all(dtype[name].kind == "u" and dtype[name].str[0] in ">|" for name, _, _ in view)
    assert dtype.itemsize == front + packet_bytes(lanes)


@LANES
def test_lanes_are_where_p4_has_them(lanes: int):
    fields = p4_header("lanes_t", lanes)
    digits = 3 if lanes > 1 << 8 else 2
    assert fields == [(f"lane_{lane:0{digits}x}", 8 * LANE_BYTES) for lane in range(lanes)]
    column, offset = packet_dtype(lanes).fields["lanes"][:2]
    assert (column.base, column.shape, offset) == (np.dtype(">i4"), (lanes,), HEADER_BYTES)
    assert len(bytes(Lanes(lanes=[0] * lanes))) == column.itemsize == lanes * LANE_BYTES


def test_constants_are_the_p4_constants():
    assert {member.name: member.value for member in Kind} == p4_constants("KIND_")
    assert {member.name: member.value for member in Operation} == p4_constants("OPERATION_")
    assert {member.name: member.value for member in Flag} == p4_constants("FLAG_")
    assert p4_constants("INNET_") == {"UDP_PORT": UDP_PORT, "VERSION": VERSION}
    assert dict(p4_header("innet_t"))["workers"] == MOST_CONTRIBUTORS


def test_encapsulation_is_as_long_as_the_p4_headers_in_front():
    front = p4_header("ethernet_t") + p4_header("ipv4_t") + p4_header("udp_t")
    assert sum(bits for _, bits in front) == ENCAPSULATION_BYTES * 8


headers = st.fixed_dictionaries(
    {each.name: st.integers(0, 2**each.bits - 1) for each in HEADER}
    | {"kind": st.sampled_from(sorted(WITH_LANES)).map(int)}
)
lane_values = st.sampled_from([64, 256, 1024]).flatmap(lambda lanes: arrays(np.int32, lanes))
addresses = st.builds(
    Address,
    st.binary(min_size=6, max_size=6).map(mac_text),
    st.ip_addresses(v=4).map(str),
    st.integers(1, 2**16 - 1),
)


def filled(header: dict[str, int], lanes: np.ndarray, front: bytes = b"") -> np.ndarray:
    packet = blank(1, lanes.size, Kind.CONTRIBUTION, front)
    for name, value in header.items():
        set_field(packet, name, value)
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
    assert {name: int(get_field(packet, name)) for name in header} == header
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


@pytest.mark.parametrize("first", ["scapy.all", "innet.wire.capture"])
def test_scapy_reads_packets_of_workers_whose_port_is_another_protocols(first: str):
    script = (
        f"import {first}, scapy.all, innet.wire.capture as capture\n"
        "from scapy.all import Ether, IP, UDP\n"
        f"for ports in ({{'sport': 53, 'dport': {UDP_PORT}}}, {{'sport': {UDP_PORT}, 'dport': 53}}):\n"
        "    frame = Ether(bytes(Ether() / IP() / UDP(**ports) / capture.Innet()))\n"
        "    assert capture.Innet in frame, frame\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True, timeout=250)


@given(st.lists(st.binary(min_size=2, max_size=2)).map(b"".join))
def test_data_with_its_checksum_sums_to_zero(data: bytes):
    assert internet_checksum(data + internet_checksum(data).to_bytes(2, "big")) == 0


@pytest.mark.parametrize("kind", list(Kind))
def test_blank_packets_are_zero_but_for_version_and_kind(kind: Kind):
    packets = blank(3, 64, kind, bytes(range(1, ENCAPSULATION_BYTES + 1)))
    expected = bytes(range(1, ENCAPSULATION_BYTES + 1)) + bytes([VERSION, kind << 4])
    expected += (1 if kind == Kind.CONTRIBUTION else 0).to_bytes(2)
    assert packets.tobytes() == 3 * expected.ljust(packets.itemsize, b"\0")


@pytest.mark.parametrize("kind", [Kind.HELLO, Kind.CLEAR])
def test_packets_without_lanes_are_bare_headers(kind: Kind):
    packet = Innet(blank(1, 0, kind).tobytes())
    assert (packet.version, packet.kind) == (VERSION, kind)
    assert isinstance(packet.payload, NoPayload)


def test_summary_tells_what_happens():
    packet = Innet(kind=Kind.RESULT, operation=Operation.MAX, slot=17, sequence=4711, workers=5)
    assert {"RESULT", "MAX", "17", "4711", "0x5"} <= set(packet.summary().split())


# -- the check -----------------------------------------------------------------------------------

WORDS = 2 + HEADER_BYTES // 4 - 1 + 256
"""The number of words that the check of the largest packet covers."""

packets = st.tuples(headers, lane_values, addresses)


def words(packet: np.ndarray, source: Address, front: int = 0) -> list[int]:
    """Return the words that the check covers, from the source address on."""
    raw = packet.tobytes()[front:]
    payload = [int.from_bytes(raw[at : at + 4]) for at in range(0, len(raw), 4)]
    before, behind = payload[: HEADER_BYTES // 4 - 1], payload[HEADER_BYTES // 4 :]
    return [source.ip_number, source.udp_port, *before, *behind]


def sealed(header: dict[str, int], lanes: np.ndarray, source: Address) -> np.ndarray:
    packet = filled(header, lanes)
    seal(packet, source.ip_number, source.udp_port)
    return packet


def p4_weights(lanes: int, action: str) -> list[int]:
    """Return the constants that the compiled program multiplies with in an action of the check."""
    name = f"IngressPipeline.check_verification.check.{action}"
    actions = json.loads(artifact(lanes).json)["actions"]
    [steps] = [each["primitives"] for each in actions if each["name"] == name]
    numbers = re.findall(r'"value": "0x(\w+)"', json.dumps(steps))
    return [number for number in (int(each, 16) for each in numbers) if 2**32 < number < 2**64 - 1]


@LANES
def test_the_switch_has_the_same_weights(lanes: int):
    assert p4_weights(lanes, "add_header") == [weight(k) for k in range(1, 9)]
    assert p4_weights(lanes, "add_lanes") == [weight(9 + lane) for lane in range(lanes)]


def test_weights_are_those_of_splitmix64():
    # The first outputs of the reference implementation for the seed 1234567.
    known = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [mixed(1234567, k) for k in (1, 2, 3)] == known
    assert [weight(k) for k in range(300)] == [mixed(0x696E6E6574, k) for k in range(300)]


def mixed(seed: int, k: int) -> int:
    """Return the k-th output of splitmix64, in numpy's arithmetic."""
    state = np.uint64(seed)
    for _ in range(k):
        state = np.add(state, np.uint64(0x9E3779B97F4A7C15), dtype=np.uint64)
    z = np.array([state])
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    return int((z ^ z >> np.uint64(31))[0])


@given(packets)
def test_the_check_is_the_upper_half_of_the_weighted_sum(packet):
    header, lanes, source = packet
    made = sealed(header, lanes, source)
    weighted = sum(weight(k) * word for k, word in enumerate([1, *words(made, source)]))
    assert made["check"][0] == weighted % 2**64 >> 32


@given(st.integers(0, 40), st.sampled_from([0, 64, 256, 1024]), st.sampled_from([0, 42]), st.data())
def test_a_batch_is_checked_packet_by_packet(count: int, lanes: int, front: int, data):
    batch = blank(count, lanes, Kind.CONTRIBUTION, bytes(range(front)))
    batch["sequence"] = np.arange(count)
    ips = data.draw(arrays(np.uint32, count))
    ports = data.draw(arrays(np.uint16, count))
    seal(batch, ips, ports)
    assert intact(batch, ips, ports).tolist() == [True] * count
    for at in range(count):
        assert intact(batch[at : at + 1], int(ips[at]), int(ports[at])).all()
    spoilt = data.draw(arrays(np.bool_, count))
    batch["sequence"][spoilt] ^= 1 << 7
    assert intact(batch, ips, ports).tolist() == (~spoilt).tolist()
    assert intact(batch[::-2], ips[::-2], ports[::-2]).tolist() == (~spoilt)[::-2].tolist()
    assert intact(batch[spoilt], ips[spoilt], ports[spoilt]).tolist() == [False] * spoilt.sum()


@given(packets, st.data())
def test_damage_and_another_source_show(packet, data):
    header, lanes, source = packet
    made = sealed(header, lanes, source)
    assert intact(made, source.ip_number, source.udp_port).all()
    assert not intact(made, source.ip_number ^ 1, source.udp_port).any()
    assert not intact(made, source.ip_number, source.udp_port ^ 1).any()
    raw = bytearray(made.tobytes())
    bits = data.draw(st.sets(st.integers(0, 8 * len(raw) - 1), min_size=1, max_size=2))
    for bit in bits:
        raw[bit // 8] ^= 1 << bit % 8
    changed = np.frombuffer(bytes(raw), made.dtype)
    assert not intact(changed, source.ip_number, source.udp_port).any()


def test_every_flip_of_one_or_two_bits_shows():
    # To flip bit b of word k adds W(k) << b to the weighted sum, or subtracts it. What is added up must
    # be too much for the sum's upper half to stay the same, and, if the other bit is one of the check
    # itself, differ too much from a change of that bit.
    numbers = [weight(k) << bit for k in range(1, WORDS + 1) for bit in range(32)]
    words = np.sort(np.array([0, *numbers, *(-each for each in numbers)]) % 2**64).astype(np.uint64)
    assert len(words) == 2 * 32 * WORDS + 1
    assert np.diff(words, append=words[:1]).min() > 2**32

    own = np.array([1 << bit for bit in range(32, 64)], np.uint64)[:, np.newaxis]
    assert min((own - words[1:]).min(), (words[1:] - own).min()) > 2**32


@pytest.mark.parametrize("workers", [1, 64, 65, MOST_WORKERS])
def test_the_sum_of_the_headers_of_all_workers_fits_a_lane(workers: int):
    assert most(workers) * workers <= 2**31 - 1
    assert most(workers) == MOST or (most(workers) + 1) * workers > 2**31 - 1
