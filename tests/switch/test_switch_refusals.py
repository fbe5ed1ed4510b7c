"""Contributions that a switch refuses: of strangers, without an entry, or corrupted."""

import random

import numpy as np
import pytest
from aggregation_rack import FIRST_SLOT, LANES, NAMES, SERVICE, TERM, station
from scapy.layers.inet import IP
from scapy.layers.l2 import Ether

from innet.wire.check import seal
from innet.wire.frames import ENCAPSULATION_BYTES, Address, encapsulation
from innet.wire.layout import HEADER_BYTES, LANE_BYTES, VERSION, Flag, Kind, Operation
from innet.wire.records import blank, packet_bytes, packet_dtype

CPU_PORT = 510

# -- who may contribute --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"job": 99}, id="another job"),
        pytest.param({"term": TERM - 1}, id="an old term"),
        pytest.param({"slot": FIRST_SLOT - 1}, id="the slot before"),
        pytest.param({"slot": FIRST_SLOT + 4096}, id="the slot behind"),
        pytest.param({"source": station(1)}, id="another worker's address"),
        pytest.param({"source": Address(station(2).mac, station(2).ip, 1)}, id="another UDP port"),
        pytest.param({"version": VERSION - 1}, id="an old version"),
        pytest.param({"kind": Kind.RESULT}, id="a result"),
        pytest.param({"kind": Kind.CLEAR, "operation": 0}, id="a clear with lanes"),
        pytest.param({"kind": 15}, id="no kind"),
        pytest.param({"operation": 0}, id="no operation"),
        pytest.param({"operation": max(Operation) + 1}, id="another operation"),
    ],
)
def test_a_contribution_that_no_entry_allows_is_refused_and_counted(job, changes):
    drops, before = job.rack.dropped(2), job.counts()
    job.send(1, 1, 1000, **changes)
    job.rack.assert_quiet(2, 1)
    job.rack.assert_dropped(2, drops, refused=1)
    job.assert_counted(before)
    job.send(1, 1, 2)
    job.rack.assert_quiet(2)
    job.send(0, 1, 40)
    for worker in (0, 1):
        job.assert_result(worker, 1, 42, workers=0b11)


def with_flags(frame: bytes, flags: int) -> bytes:
    """Return a frame of station 1 with other flags, and the right check."""
    lanes = (len(frame) - ENCAPSULATION_BYTES) // LANE_BYTES - HEADER_BYTES // LANE_BYTES
    packet = np.frombuffer(frame, packet_dtype(lanes, ENCAPSULATION_BYTES)).copy()
    packet["flags"] = flags
    seal(packet, station(1).ip_number, station(1).udp_port)
    return packet.tobytes()


@pytest.mark.parametrize(
    ("value", "operation", "flags"),
    [
        pytest.param(1000, Operation.SUM, 0, id="lanes without the flag"),
        pytest.param(1000, Operation.SUM, Flag.WANTED | 0xFF00, id="lanes with other flags"),
        pytest.param(1000, Operation.MAX, Flag.WANTED, id="a maximum without the flag"),
        pytest.param(None, Operation.SUM, Flag.CARRIED, id="the flag without lanes"),
        pytest.param(None, Operation.MAX, Flag.WANTED, id="a maximum without lanes"),
        pytest.param(None, Operation.MAX, Flag.CARRIED, id="a maximum that only says it has lanes"),
        pytest.param(None, 0, 0, id="neither lanes nor an operation"),
        pytest.param(None, 3, 0, id="another operation without lanes"),
    ],
)
def test_a_contribution_whose_lanes_do_not_fit_its_header_is_refused(job, value, operation, flags):
    drops, before = job.rack.dropped(1), job.counts()
    frame = job.contribution(0, 1, value, operation)
    job.rack.send(1, with_flags(frame, flags))
    job.rack.assert_quiet(1)
    job.rack.assert_dropped(1, drops, refused=1)
    job.assert_counted(before)


@pytest.mark.parametrize("field", ["IPv4's length", "UDP's length"])
@pytest.mark.parametrize("by", [-LANE_BYTES, -1, 1, LANE_BYTES, LANE_BYTES * LANES])
@pytest.mark.parametrize("value", [1000, None], ids=["full", "bare"])
def test_a_contribution_whose_length_does_not_fit_is_refused(job, value, field, by):
    drops = job.rack.dropped(1)
    frame = bytearray(job.contribution(0, 1, value))
    at = 16 if field == "IPv4's length" else 38
    frame[at : at + 2] = (int.from_bytes(frame[at : at + 2]) + by).to_bytes(2)
    frame[24:26] = with_right_checksum(frame)[24:26]
    job.rack.send(1, bytes(frame))
    job.rack.assert_quiet(1)
    job.rack.assert_dropped(1, drops, refused=1)


def with_right_checksum(frame: bytes) -> bytes:
    packet = Ether(bytes(frame))
    del packet[IP].chksum
    return bytes(packet)


# -- corruption ----------------------------------------------------------------------------------


def damaged(frame: bytes, bits: tuple[int, ...]) -> bytes:
    """Return the frame with these bits flipped."""
    changed = bytearray(frame)
    for bit in bits:
        changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


@pytest.mark.parametrize("lanes", [np.arange(LANES), None], ids=["full", "bare"])
def test_a_contribution_with_any_bit_flipped_changes_nothing_and_is_counted(job, lanes):
    frame = job.contribution(0, 1, lanes)
    before = job.counts()
    for bit in range(8 * ENCAPSULATION_BYTES, 8 * len(frame)):
        drops, changed = job.rack.dropped(1), damaged(frame, (bit,))
        job.rack.send(1, changed)
        job.rack.assert_quiet(1)
        drop = "corrupted" if has_form(changed) else "refused"
        job.rack.assert_dropped(1, drops, **{drop: 1})
    job.assert_counted(before)
    job.rack.send(1, frame)
    job.send(1, 1, 5)
    for worker in (0, 1):
        total = 5 if lanes is None else lanes + 5
        job.assert_result(worker, 1, total, workers=0b11)


def has_form(frame: bytes) -> bool:
    """Return whether version, kind, operation, flags and length of a packet go together."""
    version, call = frame[ENCAPSULATION_BYTES : ENCAPSULATION_BYTES + 2]
    kind, operation = divmod(call, 16)
    carried = bool(frame[ENCAPSULATION_BYTES + 11] & Flag.CARRIED)
    if version != VERSION:
        return False
    if len(frame) > ENCAPSULATION_BYTES + HEADER_BYTES:
        return kind in {Kind.CONTRIBUTION, Kind.RESULT} and operation in {*Operation} and carried
    forms = {
        Kind.CONTRIBUTION: operation == 1 and not carried,
        Kind.RESULT: operation in {*Operation},
        Kind.PENDING: True,
        Kind.STALE: True,
        Kind.HELLO: not operation,
        Kind.CLEAR: not operation,
    }
    return forms.get(kind, False)


@pytest.mark.parametrize("seed", range(20))
def test_a_contribution_with_many_bits_flipped_changes_nothing(job, seed):
    chance = random.Random(seed)
    frame = job.contribution(0, 1, np.arange(LANES))
    before, drops = job.counts(), job.rack.dropped(1)
    for _ in range(20):
        flips = chance.choice((2, 3, 8, 100))
        bits = chance.sample(range(8 * (ENCAPSULATION_BYTES + 12), 8 * len(frame)), flips)
        job.rack.send(1, damaged(frame, tuple(bits)))
    job.rack.assert_quiet(1)
    job.assert_counted(before)
    job.rack.assert_dropped(1, drops, corrupted=20)


@pytest.mark.parametrize("at", [15, 18, 22])
def test_a_contribution_with_a_damaged_ipv4_header_is_corrupted(job, at):
    drops = job.rack.dropped(1)
    job.rack.send(1, damaged(job.contribution(0, 1, 1), (8 * at,)))
    job.rack.assert_quiet(1)
    job.rack.assert_dropped(1, drops, corrupted=1)


def test_lanes_that_have_changed_places_are_corrupted(job):
    drops = job.rack.dropped(1)
    frame = job.contribution(0, 1, np.arange(LANES))
    job.rack.send(1, frame[:-8] + frame[-4:] + frame[-8:-4])
    job.rack.assert_quiet(1)
    job.rack.assert_dropped(1, drops, corrupted=1)


def test_a_contribution_under_another_source_port_is_corrupted(job):
    drops = job.rack.dropped(1)
    frame = bytearray(job.contribution(0, 1, 1))
    frame[34:36] = station(2).udp_port.to_bytes(2)
    job.rack.send(1, bytes(frame))
    job.rack.assert_quiet(1)
    job.rack.assert_dropped(1, drops, corrupted=1)


def test_a_corrupted_clear_clears_nothing_and_is_not_acknowledged(job):
    job.send(0, 1, 40)
    job.rack.assert_quiet(1)
    clear = blank(1, 0, Kind.CLEAR, encapsulation(SERVICE, SERVICE, packet_bytes(0)))
    clear["slot"], clear["sequence"] = job.slot, 1
    seal(clear, SERVICE.ip_number, SERVICE.udp_port)
    [before] = job.rack.controller.count(NAMES.counter("corrupted", CPU_PORT))
    damage = damaged(clear.tobytes(), (8 * (ENCAPSULATION_BYTES + 12),))  # of the sequence number
    job.rack.controller.send(NAMES.packet_out(damage))
    clear["sequence"] = 0
    seal(clear, SERVICE.ip_number, SERVICE.udp_port)
    job.rack.controller.send(NAMES.packet_out(clear.tobytes()))
    assert job.rack.controller.hear().packet.payload == clear.tobytes()
    assert job.rack.controller.count(NAMES.counter("corrupted", CPU_PORT)) == [before + 1]
    job.send(1, 1, 2)
    for worker in (0, 1):
        job.assert_result(worker, 1, 42, workers=0b11)
