"""The slot protocol end to end: raw contributions and raw results, for every row of `decision`."""

import itertools

import numpy as np
import pytest
from aggregation_rack import LANES, NAMES, SERVICE, station
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from slot_jobs import ALONE, ONE_OF_TWO, TRIO, TWO_OF_THREE, of

from innet.wire.check import seal
from innet.wire.frames import encapsulation
from innet.wire.layout import UDP_PORT, Flag, Kind, Operation
from innet.wire.records import blank, packet_bytes

LOWEST, HIGHEST = -(1 << 31), (1 << 31) - 1


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


def test_a_result_says_how_many_workers_are_in_it(job):
    """A contribution may be the sum of a switch below, of many workers."""
    job.send(0, 1, 40, count=300)
    job.send(0, 1, 40, count=300)
    job.assert_pending(0, 1, 0b01)
    job.send(1, 1, 2, count=4000)
    for worker in (0, 1):
        job.assert_result(worker, 1, 42, workers=0b11, count=4300)
    job.send(0, 1, 40, count=7)
    job.assert_result(0, 1, 42, workers=0b11, count=4300)
    for worker in (0, 1):
        job.send(worker, 3, 1)  # the same copy, for a later chunk
    for worker in (0, 1):
        job.assert_result(worker, 3, 2, workers=0b11, count=2)


@of(ONE_OF_TWO)
def test_who_comes_after_the_quorum_is_not_counted(job):
    job.send(0, 1, 40, count=20)
    job.assert_result(0, 1, 40, workers=0b01, count=20)
    job.assert_result(1, 1, None, workers=0b01, carried=True, count=20)
    for _ in range(2):
        job.send(1, 1, 2, count=300)
        job.assert_result(1, 1, 40, workers=0b01, count=20)


@of(ONE_OF_TWO)
def test_who_comes_after_the_quorum_is_answered_and_not_in_the_sum(job):
    job.send(0, 1, 40)
    job.assert_result(0, 1, 40, workers=0b01)
    job.assert_result(1, 1, None, workers=0b01, carried=True)  # it has not asked for the lanes yet
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
        for worker in range(2):
            job.assert_result(worker, sequence, 42, workers=0b011)
        job.assert_result(2, sequence, None, workers=0b011, carried=True)
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
            lanes = members if worker in pair else None
            job.assert_result(worker, sequence, lanes, workers=members, carried=True)


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
        (Operation.WRAPPING_SUM, lambda a, b: (a + b - LOWEST) % (1 << 32) + LOWEST),
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
        if worker != order[-1]:
            job.rack.assert_quiet(worker + 1)  # ports are not served in the order of sending
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
    total = 2 if operation == Operation.MAX else 3
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
    job.assert_result(0, 1, 1, workers=0b01)
    job.assert_result(1, 1, None, workers=0b01, carried=True)
    job.send(1, 1, HIGHEST, flags=Flag.OVERFLOW)
    job.assert_result(1, 1, 1, workers=0b01)
    job.send(0, 1, 1)
    job.assert_result(0, 1, 1, workers=0b01)


# -- packets without lanes -----------------------------------------------------------------------


def test_a_contribution_without_lanes_adds_nothing(job):
    for sequence, bare in enumerate((0, 1), start=1):
        job.send(bare, sequence, None)
        job.rack.assert_quiet(bare + 1)
        job.send(1 - bare, sequence, np.arange(LANES))
        for worker in (0, 1):
            job.assert_result(worker, sequence, np.arange(LANES), workers=0b11)


@of(TRIO)
@pytest.mark.parametrize("order", list(itertools.permutations(range(3))))
def test_the_lanes_of_one_reach_all_in_whatever_order_they_come(job, order):
    for worker in order:
        job.send(worker, 1, 42 if worker == 1 else None)
        if worker != order[-1]:
            job.rack.assert_quiet(worker + 1)
    for worker in range(3):
        job.assert_result(worker, 1, 42, workers=0b111)


@of(TRIO)
def test_a_result_without_lanes_is_short_for_everybody(job):
    before = job.counts()
    for worker in (0, 1):
        job.send(worker, 1, None)
        job.rack.assert_quiet(worker + 1)
    job.send(2, 1, None)
    for worker in range(3):
        job.assert_result(worker, 1, None, workers=0b111)
    job.send(1, 1, None)
    job.assert_result(1, 1, None, workers=0b111)
    job.assert_counted(before, waiting=2, completed=1, answered=1)


@of(TRIO)
@pytest.mark.parametrize("wanting", range(8))
def test_the_lanes_of_a_result_go_to_those_who_want_them(job, wanting):
    for worker in range(3):
        job.send(worker, 1, 1 << worker, wants=bool(wanting >> worker & 1))
        if worker < 2:
            job.rack.assert_quiet(worker + 1)
    for worker in range(3):
        lanes = 7 if wanting >> worker & 1 else None
        job.assert_result(worker, 1, lanes, workers=0b111, carried=True, wanted=wanting > 0)
    for worker, wants in itertools.product(range(3), (True, False)):  # asked again, for these
        job.send(worker, 1, 1 << worker, wants=wants)
        lanes = 7 if wants else None
        job.assert_result(worker, 1, lanes, workers=0b111, carried=True, wanted=wanting > 0)


def test_lanes_of_an_earlier_chunk_do_not_last(job):
    for sequence, given in enumerate(
        [(5, 6), (7, 8), (None, None), (None, 9), (10, None)], start=1
    ):
        for worker in (0, 1):
            job.send(worker, sequence, given[worker])
            if not worker:
                job.rack.assert_quiet(1)
        lanes = [each for each in given if each is not None]
        total = sum(lanes) if lanes else None
        for worker in (0, 1):
            job.assert_result(worker, sequence, total, workers=0b11)


def test_a_repetition_without_lanes_is_told_who_has_arrived(job):
    job.send(0, 1, None)
    job.rack.assert_quiet(1)
    job.send(0, 1, None)
    job.assert_pending(0, 1, workers=0b01)
    job.send(0, 3, None)
    job.rack.assert_quiet(1)
    job.send(1, 1, 4)
    job.assert_stale(1, 1)


@of(ONE_OF_TWO)
def test_lanes_that_come_after_the_quorum_are_not_in_the_result(job):
    job.send(0, 1, None)
    for worker in (0, 1):
        job.assert_result(worker, 1, None, workers=0b01, carried=False)
    for _ in range(2):
        job.send(1, 1, 99)
        job.assert_result(1, 1, None, workers=0b01, carried=False)


def test_an_overflow_shows_also_if_the_last_contribution_has_no_lanes(job):
    job.send(0, 1, HIGHEST)
    job.rack.assert_quiet(1)
    job.send(1, 1, None)
    for worker in (0, 1):  # nothing was added
        job.assert_result(worker, 1, HIGHEST, workers=0b11)


@of(TRIO)
def test_an_overflow_is_remembered_until_the_lanes_go_out(job):
    for worker, value in enumerate((HIGHEST, 1, None)):
        job.send(worker, 1, value)
        if worker < 2:
            job.rack.assert_quiet(worker + 1)
    for worker in range(3):
        job.assert_result(worker, 1, HIGHEST, workers=0b111, flags=Flag.OVERFLOW)


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
