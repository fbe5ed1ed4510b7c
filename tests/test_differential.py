"""The embedded switch does with any program what BMv2, p4c's reference switch, does with it."""

import os

import differential
import pytest

SEEDS = int(os.environ.get("INNET_DIFFERENTIAL_SEEDS", "1"))
"""How many random scenarios of each program go through both switches."""

PACKETS = 100


@pytest.mark.parametrize("name", differential.names())
def test_recorded_packets_are_treated_as_bmv2_treated_them(name):
    assert differential.replay(name) == []


@pytest.mark.skipif(
    not differential.available(), reason=f"there is no {differential.BMV2} (BMv2) on the PATH"
)
@pytest.mark.parametrize("name", differential.names())
def test_random_entries_and_packets_are_treated_as_by_bmv2(name):
    for seed in range(101, 101 + SEEDS):
        assert differential.compare(name, seed, PACKETS) == [], f"seed {seed}"


def test_the_vectors_are_of_the_programs_that_are_there():
    files = {path.stem for path in differential.VECTORS.glob("*.json")}
    assert files == set(differential.names())
    assert sum(path.stat().st_size for path in differential.VECTORS.glob("*.json")) < 2_000_000
