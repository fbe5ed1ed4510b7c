"""The embedded switch behaves like BMv2, p4c's reference switch, for any program."""

import os

import compared_switches
import differential
import pytest
from p4runtime_client import Names
from scenarios import Scenario

from innet.p4runtime import p4runtime_pb2 as p4rt

SEEDS = int(os.environ.get("INNET_DIFFERENTIAL_SEEDS", "1"))
"""The number of random scenarios of each program that go through both switches."""

PACKETS = 100

WITH_BMV2 = pytest.mark.skipif(
    not compared_switches.available(),
    reason=f"there is no {compared_switches.BMV2} (BMv2) on the PATH",
)


@pytest.mark.parametrize("name", differential.names())
def test_recorded_packets_are_treated_as_bmv2_treated_them(name):
    assert differential.replay(name) == []


@WITH_BMV2
@pytest.mark.parametrize("name", [*differential.names(), *sorted(differential.NOT_RECORDED)])
def test_random_entries_and_packets_are_treated_as_by_bmv2(name):
    for seed in range(101, 101 + SEEDS):
        assert differential.compare(name, seed, PACKETS) == [], f"seed {seed}"


@WITH_BMV2
def test_a_count_that_p4runtime_has_no_room_for_reads_as_bmv2s():
    running = differential.load("extern_counters")
    cell = Names(running.p4info).counter("both", 2)
    cell.counter_entry.data.packet_count = cell.counter_entry.data.byte_count = (1 << 63) - 1
    update = p4rt.Update(type=p4rt.Update.MODIFY, entity=cell)
    given = Scenario([update], [(1, bytes([0, 0, 0, 2]) + bytes(8))])
    with compared_switches.bmv2(running) as left, compared_switches.embedded(running) as right:
        wanted = differential.carry_out(left, given, running.p4info)
        got = differential.carry_out(right, given, running.p4info)
    assert differential.differences(given, wanted, got) == []
    assert any("packet_count: -9223372036854775808" in each for each in got.counters)


def test_the_vectors_are_of_the_programs_that_are_there():
    files = {path.stem for path in differential.VECTORS.glob("*.json")}
    assert files == set(differential.names())
    assert sum(path.stat().st_size for path in differential.VECTORS.glob("*.json")) < 2_000_000
