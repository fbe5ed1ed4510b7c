"""An all-reduce and TCP on one link, in network namespaces: sums are exact, and both get on."""

import pytest
from waiting import until

from benchmarks.coexistence import DIRECTIONS, Case, rack, traffic
from topologies import namespaces

pytestmark = pytest.mark.skipif(
    bool(namespaces.unavailable()), reason=str(namespaces.unavailable())
)

SUMS, BYTES = 4, 1_000_000
"""The progress of the all-reduce and of TCP that the test waits for."""


def test_beside_tcp_sums_are_exact_and_nothing_is_repeated_without_end():
    with rack(mbits=100, queue=100_000, lanes=256, slots=256) as (made, token):
        for direction in DIRECTIONS:
            progress(made, token, Case("cubic", direction))


def progress(made: namespaces.Rack, token: str, case: Case) -> None:
    with traffic(made, token, case, elements=100_000) as (worker, sink):
        until(lambda: worker.ask()["sums"] >= SUMS)
        until(lambda: sink.ask()["bytes"] >= BYTES)
        sums = worker.ask()
    assert sums["wrong"] == 0
    assert sums["repeated"] < 2 * sums["chunks"]
