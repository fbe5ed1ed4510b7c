"""The slot protocol end to end: raw contributions in, raw results out, every row of `decision`."""

import itertools
from collections.abc import Iterator

import numpy as np
import pytest
from aggregation_rack import (
    EPOCH,
    FIRST_SLOT,
    LANES,
    NAMES,
    SERVICE,
    AggregationRack,
    Job,
    aggregation_rack,
    station,
)
from p4runtime_client import group
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether

from innet.wire.frames import Address, encapsulation
from innet.wire.layout import UDP_PORT, Kind, Operation
from innet.wire.records import blank, packet_bytes

ALONE, PAIR, TRIO, ONE_OF_TWO = 11, 12, 13, 14
QUORUM = {ALONE: 1, PAIR: 2, TRIO: 3, ONE_OF_TWO: 1}
WORKERS = {ALONE: 1, PAIR: 2, TRIO: 3, ONE_OF_TWO: 2}
"""Jobs by id. Worker r of a job is at port r + 1."""

LOWEST, HIGHEST = -(1 << 31), (1 << 31) - 1


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
    """A job with a slot that nobody has used."""
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


def test_an_older_chunk_is_ignored_and_leaves_the_newer_one_alone(job):
    job.send(0, 3, 40)
    job.rack.assert_quiet(1)
    before = job.counts()
    job.send(1, 1, 1000)
    job.rack.assert_quiet(2, 1)
    job.assert_counted(before, stale=1)
    job.send(1, 3, 2)
    for worker in (0, 1):
        job.assert_result(worker, 3, 42, workers=0b11)


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
    clear["slot"], clear["sequence"] = job.slot, 1  # the copy of the odd ones
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
            job.assert_result(worker, sequence, combined(one, other), workers=0b11)


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
        assert bytes(frame) == raw  # Scapy fills in the right one


# -- who may contribute --------------------------------------------------------------------------


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"job": 99}, id="another job"),
        pytest.param({"epoch": EPOCH - 1}, id="an old epoch"),
        pytest.param({"slot": FIRST_SLOT - 1}, id="the slot before"),
        pytest.param({"slot": FIRST_SLOT + 4096}, id="the slot behind"),
        pytest.param({"source": station(1)}, id="another worker's address"),
        pytest.param({"source": Address(station(2).mac, station(2).ip, 1)}, id="another UDP port"),
    ],
)
def test_a_contribution_that_no_entry_allows_is_refused_and_counted(job, changes):
    refused = NAMES.counter("refused", 2)
    [count], before = job.rack.controller.count(refused), job.counts()
    job.send(1, 1, 1000, **changes)
    job.rack.assert_quiet(2, 1)
    assert job.rack.controller.count(refused) == [count + 1]
    job.assert_counted(before)
    job.send(1, 1, 2)
    job.rack.assert_quiet(2)
    job.send(0, 1, 40)
    for worker in (0, 1):
        job.assert_result(worker, 1, 42, workers=0b11)
