"""In a tree of three levels, no wrong sum is reachable, and all workers get to the end."""

from dataclasses import replace

import pytest
from deep_tree_model import DeepTree
from slot_model import Violation, reachable, stuck

CHAIN = DeepTree(parents=(0, 1), homes=(0, 1, 2), uses=5)
"""A worker at each of three switches, one above the other."""

SLOTS = replace(CHAIN, uses=2, slots=2)

RACKS = DeepTree(parents=(0, 1, 1), homes=(2, 3, 0), uses=4)
"""Two racks below a switch that is below the top, where the third worker is."""

LOPSIDED = DeepTree(parents=(0, 1, 0), homes=(2, 2, 3), uses=4)
"""A rack two levels below the top, and one just below it."""

PARTIAL = [
    replace(CHAIN, uses=3, quorum=1),
    replace(RACKS, uses=2, quorum=1),
    replace(LOPSIDED, uses=2, quorum=1),
    replace(LOPSIDED, uses=3, quorum=1, stopped=frozenset({1})),
]
"""The same, where the top can do without one of its two contributors."""

TOFINO_1 = [replace(tree, begins=False) for tree in PARTIAL[:2]]
"""The same, where a result begins no chunk."""


@pytest.mark.parametrize("tree", [CHAIN, SLOTS, RACKS, LOPSIDED], ids=str)
def test_every_worker_gets_every_sum(tree: DeepTree):
    graph = reachable(tree.first_state(), tree.steps)
    assert any(tree.finished(state) for state in graph)
    assert not stuck(graph, tree.finished)


@pytest.mark.parametrize("tree", PARTIAL + TOFINO_1, ids=str)
def test_with_a_quorum_every_worker_gets_every_sum_or_hears_that_it_is_left_behind(tree: DeepTree):
    graph = reachable(tree.first_state(), tree.steps)
    assert any(tree.over(state) and not state.ended for state in graph)
    assert not stuck(graph, tree.over)
    sums = {packet.total for state in graph for packet in state.results}
    assert len(sums) > tree.uses or tree.stopped


def test_a_switch_between_others_where_no_result_begins_a_chunk_keeps_its_workers_waiting():
    tree = replace(LOPSIDED, uses=1, quorum=1, stopped=frozenset({1}))
    for begins in (True, False):
        variant = replace(tree, begins=begins)
        graph = reachable(variant.first_state(), variant.steps)
        assert bool(stuck(graph, variant.over)) != begins


def test_without_comparing_sequence_numbers_a_late_result_passes_for_another():
    careless = replace(CHAIN, compares=False)
    with pytest.raises(Violation):
        reachable(careless.first_state(), careless.steps)
