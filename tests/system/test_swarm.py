"""Light workers of one job, many in a process, through trees of real switches on lossy links."""

import math

import pytest

from benchmarks.light_workers import Sum
from benchmarks.swarm import Tree, measured
from innet.errors import UsageError

ELEMENTS, LANES = 100_000, 256


@pytest.mark.parametrize("levels", [(4, 1), (4, 2, 1)])
def test_every_result_of_thirty_two_workers_is_right_and_a_killed_controller_disturbs_none(
    levels: tuple[int, ...],
):
    tree = Tree(levels, 32)
    job = Sum(tree.workers, ELEMENTS, seed=3, loss=0.002)
    found = measured(tree, job, 64, LANES, 2, kill=True)
    assert found.workers == 32
    assert found.counts["results"] == tree.workers * math.ceil(ELEMENTS / LANES)
    assert found.counts["wrong"] == found.counts["stale"] == found.counts["corrupted"] == 0
    assert found.counts["lost"] > 0
    assert found.counts["repetitions"] > 0
    assert found.new_terms == 0


def test_the_oracle_is_the_sum_of_all_workers_windows_of_the_pool():
    pool, right, chunks = Sum(5, 30, seed=7, loss=0.0).vectors(8)
    wanted = [sum(int(pool[rank + at]) for rank in range(5)) for at in range(32)]
    assert chunks == 4
    assert right.reshape(-1).tolist() == wanted


def test_workers_are_spread_evenly_and_a_switch_without_a_node_is_refused():
    tree = Tree((3, 2, 1), 8)
    assert tree.racks() == ["0-0"] * 3 + ["0-1"] * 3 + ["0-2"] * 2
    assert tree.parents == {
        "2-0": "", "1-0": "2-0", "1-1": "2-0", "0-0": "1-0", "0-1": "1-0", "0-2": "1-1",
    }  # fmt: skip
    for levels in ((3, 2), (9, 1)):
        with pytest.raises(UsageError, match="every switch needs a node"):
            Tree(levels, 8)
