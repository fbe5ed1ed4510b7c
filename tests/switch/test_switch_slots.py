"""The slot protocol end to end: raw contributions and raw results, for every row of `decision`."""

import itertools
import random
from collections.abc import Iterator

import numpy as np
import pytest
from aggregation_rack import (
    FIRST_SLOT,
    LANES,
    NAMES,
    SERVICE,
    TERM,
    AggregationRack,
    Job,
    aggregation_rack,
    station,
)
from p4runtime_client import group
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from innet.wire.check import seal
from innet.wire.frames import ENCAPSULATION_BYTES, Address, encapsulation
from innet.wire.layout import LANE_BYTES, UDP_PORT, VERSION, Flag, Kind, Operation
from innet.wire.records import blank, packet_bytes

ALONE, PAIR, TRIO, ONE_OF_TWO, TWO_OF_THREE = 11, 12, 13, 14, 15
QUORUM = {ALONE: 1, PAIR: 2, TRIO: 3, ONE_OF_TWO: 1, TWO_OF_THREE: 2}
WORKERS = {ALONE: 1, PAIR: 2, TRIO: 3, ONE_OF_TWO: 2, TWO_OF_THREE: 3}
"""The number of workers of each job. Worker r of a job is at port r + 1."""

LOWEST, HIGHEST = -(1 << 31), (1 << 31) - 1
CPU_PORT = 510


@pytest.fixture(scope="module")
def rack() -> Iterator[AggregationRack]:
    with aggregation_rack(3) as made:
        for job, workers in WORKERS.items():
            made.controller.insert(group(job, *((r + 1, r + 1) for r in range(workers))))
            for rank in range(workers):
                made.admit(job, rank, QUORUM[job])
        yield made


SLOTS = itertools.count(FIRST_SLOT)


@pytest.fixture(params=[PAIR])
def job(rack, request) -> Job:
    """Return a job with an unused slot."""
    return Job(rack, request.param, QUORUM[request.param], next(SLOTS))


def of(job: int):
    return pytest.mark.parametrize("job", [job], indirect=True)


# -- the rows of the table `decision`, from the top ----------------------------------------------


@of(ALONE)
def test_in_a_job_of_one_worker_a_contribution_is_the_result(job):
    before = job.counts()
    job.send(0, 1, 42)
    job.assert_result(0, 1, 42, workers=0b1)
    job.assert_counted(before, completed=1)


def test_the_first_contribution_to_a_chunk_waits(job):
    before = job.counts()
    job.send(0, 1, 42)
    job.rack.assert_quiet(1, 2)
    job.assert_counted(before, waiting=1)


def test_who_lost_the_result_is_answered_alone(job):
    job.send(0, 1, 40)
    job.send(1, 1, 2)
    for worker in (0, 1):
        job.assert_result(worker, 1, 42, workers=0b11)
    before = job.counts()
    job.send(1, 1, 2)
    job.assert_result(1, 1, 42, workers=0b11)
    job.rack.assert_quiet(2, 1)
    job.assert_counted(before, answered=1)


@of(ONE_OF_TWO)
def test_who_comes_after_the_quorum_is_answered_and_not_in_the_sum(job):
    job.send(0, 1, 40)
    for worker in (0, 1):
        job.assert_result(worker, 1, 40, workers=0b01)
    before = job.counts()
    for _ in range(2):
        job.send(1, 1, 2)
        job.assert_result(1, 1, 40, workers=0b01)
    job.rack.assert_quiet(2, 1)
    job.assert_counted(before, answered=2)


def test_the_last_contribution_brings_the_sum_to_everybody(job):
    before = job.counts()
    job.send(1, 1, np.arange(LANES))
    job.send(0, 1, 1000)
    for worker in (0, 1):
        job.assert_result(worker, 1, np.arange(LANES) + 1000, workers=0b11)
    job.rack.assert_quiet(3)
    job.assert_counted(before, waiting=1, completed=1)


@of(TRIO)
def test_one_contribution_more_still_waits(job):
    before = job.counts()
    job.send(0, 1, 1)
    job.rack.assert_quiet(1)
    job.send(2, 1, 2)
    job.rack.assert_quiet(3, 1, 2)
    job.assert_counted(before, waiting=2)
    job.send(1, 1, 4)
    for worker in range(3):
        job.assert_result(worker, 1, 7, workers=0b111)


@of(TRIO)
def test_a_repeated_contribution_counts_once_and_is_told_who_has_arrived(job):
    job.send(2, 1, 1)
    job.rack.assert_quiet(3)
    job.send(0, 1, 2)
    job.rack.assert_quiet(1)
    before = job.counts()
    for _ in range(2):
        job.send(0, 1, 2)
        job.assert_pending(0, 1, workers=0b101)
    job.rack.assert_quiet(1, 2, 3)
    job.assert_counted(before, pending=2)
    job.send(1, 1, 4)
    job.assert_result(0, 1, 7, workers=0b111)
    for worker in (1, 2):
        job.receive(worker)


def test_an_older_chunk_is_told_so_and_leaves_the_newer_one_alone(job):
    job.send(0, 3, 40)
    job.rack.assert_quiet(1)
    before = job.counts()
    job.send(1, 1, 1000, flags=Flag.OVERFLOW)
    job.assert_stale(1, 1)
    job.rack.assert_quiet(2, 1)
    job.assert_counted(before, stale=1)
    job.send(1, 3, 2)
    for worker in (0, 1):
        job.assert_result(worker, 3, 42, workers=0b11)


@of(TWO_OF_THREE)
def test_a_worker_that_the_quorum_has_left_behind_is_told_so(job):
    for sequence in (1, 2, 3):
        job.send(0, sequence, 40)
        job.send(1, sequence, 2)
        for worker in range(3):
            job.assert_result(worker, sequence, 42, workers=0b011)
    before = job.counts()
    job.send(2, 1, 1000)
    job.assert_stale(2, 1)
    job.send(2, 2, 1000)  # of the slot's two copies, this one is still there
    job.assert_result(2, 2, 42, workers=0b011)
    job.rack.assert_quiet(3, 1, 2)
    job.assert_counted(before, stale=1, answered=1)


@of(TWO_OF_THREE)
def test_a_result_says_who_of_the_workers_is_in_it(job):
    for sequence, pair in enumerate(itertools.permutations(range(3), 2), start=1):
        members = sum(1 << worker for worker in pair)
        for worker in pair:
            job.send(worker, sequence, 1 << worker)
        for worker in range(3):
            job.assert_result(worker, sequence, members, workers=members)


# -- chunks, copies, lanes -----------------------------------------------------------------------


def test_the_chunk_before_is_still_answered_while_the_next_one_collects(job):
    for sequence in (1, 2, 3):
        job.send(0, sequence, sequence)
        job.rack.assert_quiet(1)
        if sequence > 1:  # worker 1 has lost the last result
            job.send(1, sequence - 1, 10)
            job.assert_result(1, sequence - 1, sequence - 1 + 10, workers=0b11)
        job.send(1, sequence, 10)
        for worker in (0, 1):
            job.assert_result(worker, sequence, sequence + 10, workers=0b11)


def test_a_cell_that_the_controller_clears_begins_again(job):
    job.send(0, 9, 1)
    job.rack.assert_quiet(1)
    clear = blank(1, 0, Kind.CLEAR, encapsulation(SERVICE, SERVICE, packet_bytes(0)))
    clear["slot"], clear["sequence"] = job.slot, 1  # the copy for odd sequence numbers
    seal(clear, SERVICE.ip_number, SERVICE.udp_port)
    job.rack.controller.send(NAMES.packet_out(clear.tobytes()))
    assert job.rack.controller.hear().packet.payload == clear.tobytes()
    job.send(0, 1, 40)
    job.rack.assert_quiet(1)
    job.send(1, 1, 2)
    for worker in (0, 1):
        job.assert_result(worker, 1, 42, workers=0b11)


EXTREMES = np.array([HIGHEST, LOWEST, 0, 1, -1, HIGHEST - 1, LOWEST + 1, 1 << 30], np.int64)


@pytest.mark.parametrize(
    ("operation", "combined"),
    [
        (Operation.SUM, lambda a, b: np.clip(a + b, LOWEST, HIGHEST)),
        (Operation.MAX, np.maximum),
    ],
)
def test_lanes_are_signed_and_sums_stop_at_the_limits(job, operation, combined):
    pairs = np.array(list(itertools.product(EXTREMES, EXTREMES)))
    chunks = [pairs, np.random.default_rng(1).integers(LOWEST, HIGHEST, (LANES, 2), endpoint=True)]
    for sequence, (one, other) in enumerate((chunk.T for chunk in chunks), start=1):
        job.send(0, sequence, one, operation)
        job.rack.assert_quiet(1)
        job.send(1, sequence, other, operation)
        for worker in (0, 1):
            result = combined(one, other)
            spoilt = operation == Operation.SUM and at_a_limit(result)
            flags = Flag.OVERFLOW if spoilt else 0
            job.assert_result(worker, sequence, result, workers=0b11, flags=flags)


def at_a_limit(sums) -> bool:
    return bool(np.isin(sums, (LOWEST, HIGHEST)).any())


@pytest.mark.parametrize("lane", [0, 1, LANES // 2, LANES - 1])
@pytest.mark.parametrize(
    ("one", "other", "overflows"),
    [
        (HIGHEST, 1, True),
        (1 << 30, 1 << 30, True),
        (LOWEST, -1, True),
        (-(1 << 30) - 1, -(1 << 30), True),
        ((1 << 30) - 1, 1 << 30, True),  # the highest value, which no worker may reach alone
        ((1 << 30) - 1, (1 << 30) - 1, False),
        (1 - (1 << 30), 1 - (1 << 30), False),
        (HIGHEST, LOWEST, False),
        (-1, 0, False),
        (-1, 1, False),
    ],
)
def test_a_sum_that_has_stopped_at_a_limit_is_flagged(job, lane, one, other, overflows):
    ours, theirs = (np.where(np.arange(LANES) == lane, value, 5) for value in (one, other))
    job.send(0, 1, ours)
    job.rack.assert_quiet(1)
    job.send(1, 1, theirs)
    flags = Flag.OVERFLOW if overflows else 0
    total = np.clip(ours + theirs, LOWEST, HIGHEST)
    for worker in (0, 1):
        job.assert_result(worker, 1, total, workers=0b11, flags=flags)


@of(TRIO)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_an_addition_that_overflowed_is_not_forgotten_when_others_come_back(job, order):
    values = (HIGHEST, 1, LOWEST + 7)  # their sum is 7, unless intermediate sums saturate
    for worker in order:
        job.send(worker, 1, values[worker])
    stopped = [np.clip(values[order[0]] + values[order[1]], LOWEST, HIGHEST)]
    stopped.append(np.clip(stopped[0] + values[order[2]], LOWEST, HIGHEST))
    flags = Flag.OVERFLOW if at_a_limit(stopped) else 0
    for worker in range(3):
        job.assert_result(worker, 1, stopped[1], workers=0b111, flags=flags)


@of(TRIO)
@pytest.mark.parametrize("operation", list(Operation))
@pytest.mark.parametrize("flagged", range(8))
def test_what_any_contribution_says_of_itself_is_in_the_result(job, operation, flagged):
    flags = [Flag.OVERFLOW if flagged >> worker & 1 else 0 for worker in range(3)]
    for worker in range(3):
        job.send(worker, 1, worker, operation, flags=flags[worker])
    any_of_them = Flag.OVERFLOW if flagged else 0
    total = 3 if operation == Operation.SUM else 2
    for worker in range(3):
        job.assert_result(worker, 1, total, workers=0b111, flags=any_of_them)
    job.send(1, 1, 1, operation)  # again, but without a flag
    job.assert_result(1, 1, total, workers=0b111, flags=any_of_them)


def test_flags_of_an_earlier_chunk_do_not_last(job):
    for sequence in (1, 2, 3, 4):
        flags = Flag.OVERFLOW if sequence <= 2 else 0
        job.send(0, sequence, 1, flags=flags)
        job.send(1, sequence, 1)
        for worker in (0, 1):
            job.assert_result(worker, sequence, 2, workers=0b11, flags=flags)


@of(ONE_OF_TWO)
def test_who_comes_after_the_quorum_has_no_say_in_the_flags(job):
    job.send(0, 1, 1)
    for worker in (0, 1):
        job.assert_result(worker, 1, 1, workers=0b01)
    job.send(1, 1, HIGHEST, flags=Flag.OVERFLOW)
    job.assert_result(1, 1, 1, workers=0b01)
    job.send(0, 1, 1)
    job.assert_result(0, 1, 1, workers=0b01)


def test_a_result_is_addressed_to_each_worker_with_a_right_checksum(job):
    job.send(0, 1, 1)
    job.rack.assert_quiet(1)
    job.send(1, 1, 2)
    for port in (1, 2):
        raw = job.rack.receive(port)
        frame, worker = Ether(raw), station(port)
        assert (frame.src, frame.dst) == (SERVICE.mac, worker.mac)
        assert (frame[IP].src, frame[IP].dst) == (SERVICE.ip, worker.ip)
        assert (frame[UDP].sport, frame[UDP].dport) == (UDP_PORT, worker.udp_port)
        del frame[IP].chksum
        assert bytes(frame) == raw  # Scapy fills in the right checksum


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
        pytest.param({"kind": 99}, id="no kind"),
        pytest.param({"operation": 0}, id="no operation"),
        pytest.param({"operation": 3}, id="another operation"),
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


@pytest.mark.parametrize("field", ["IPv4's length", "UDP's length"])
@pytest.mark.parametrize("by", [-LANE_BYTES, -1, 1, LANE_BYTES])
def test_a_contribution_whose_length_does_not_fit_is_refused(job, field, by):
    drops = job.rack.dropped(1)
    frame = bytearray(job.contribution(0, 1, 1000))
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


def test_a_contribution_with_any_bit_flipped_changes_nothing_and_is_counted(job):
    frame = job.contribution(0, 1, np.arange(LANES))
    before = job.counts()
    for bit in range(8 * ENCAPSULATION_BYTES, 8 * len(frame)):
        drops = job.rack.dropped(1)
        job.rack.send(1, damaged(frame, (bit,)))
        job.rack.assert_quiet(1)
        formless = bit // 8 - ENCAPSULATION_BYTES < 3  # version, kind, operation
        formless &= bit != 8 * (ENCAPSULATION_BYTES + 1) + 1  # this one makes it a PENDING
        job.rack.assert_dropped(1, drops, **{"refused" if formless else "corrupted": 1})
    job.assert_counted(before)
    job.rack.send(1, frame)
    job.send(1, 1, 5)
    for worker in (0, 1):
        job.assert_result(worker, 1, np.arange(LANES) + 5, workers=0b11)


@pytest.mark.parametrize("seed", range(20))
def test_a_contribution_with_many_bits_flipped_changes_nothing(job, seed):
    chance = random.Random(seed)
    frame = job.contribution(0, 1, np.arange(LANES))
    before, drops = job.counts(), job.rack.dropped(1)
    for _ in range(20):
        flips = chance.choice((2, 3, 8, 100))
        bits = chance.sample(range(8 * (ENCAPSULATION_BYTES + 3), 8 * len(frame)), flips)
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
