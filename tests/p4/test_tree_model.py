"""Every state of the slot protocol over two levels, under loss, repetition, reordering and delay."""

from dataclasses import replace

import pytest
from slot_model import Collective, WrongSum, reachable, stuck
from tree_model import Shape, Tree, TreeState, finished, first_state

SUM, SCATTER, GATHER, BARRIER = Collective
PAIR, THREE = ((0,), (1,)), ((0, 1), (2,))

LASTING = [
    Shape(((0,), (1,)), 1, 4),
    Shape(((0,), (1,)), 2, 3),
    Shape(((0, 1), (2,)), 1, 3),
    Shape(((0, 1), (2, 3)), 1, 2),
    Shape(PAIR, 1, 4, (SUM, SCATTER, GATHER, BARRIER)),
    Shape(PAIR, 1, 4, (GATHER, BARRIER, SCATTER, SUM)),
    Shape(PAIR, 2, 3, (BARRIER, SUM, GATHER)),
    *(Shape(THREE, 1, 3, each) for each in ((SUM, SUM, GATHER), (GATHER, SUM, SCATTER))),
]


LOST = [
    Shape(((0,), (1,)), 1, 2),
    Shape(((0, 1), (2,)), 1, 1),
    *(Shape(THREE, 1, 1, (each,)) for each in Collective),
]

PARTIAL = [
    Shape(PAIR, 1, 4, quorum=1),
    Shape(PAIR, 2, 3, quorum=1),
    Shape(((0,), (1,), (2,)), 1, 2, quorum=2),
    Shape(THREE, 1, 3, quorum=1),
    *(Shape(THREE, 1, 2, (each,), quorum=1) for each in (SCATTER, GATHER, BARRIER)),
]

TOFINO_1 = {"begins": False, "asks_for_lanes": True}
TOFINO_2 = {"asks_for_lanes": True}
ON_CHIPS = [
    Tree(Shape(PAIR, 2, 3, quorum=1), **TOFINO_1),
    *(Tree(Shape(THREE, 1, 2, (SCATTER,), quorum=1), **chip) for chip in (TOFINO_1, TOFINO_2)),
]


@pytest.mark.parametrize(
    "tree",
    [Tree(shape) for shape in LASTING] + [Tree(shape, loses=True) for shape in LOST],
    ids=str,
)
def test_no_wrong_sum_is_reachable_and_all_results_always_are(tree):
    shape = tree.shape
    graph = reachable(first_state(shape), tree.steps)  # raises WrongSum or FalseAlarm
    assert any(finished(shape, state) for state in graph)
    assert not stuck(graph, lambda state: finished(shape, state))


def test_an_answer_that_is_not_compared_enters_a_later_chunk():
    shape = Shape(((0,), (1,)), 1, 3)
    with pytest.raises(WrongSum):
        reachable(first_state(shape), Tree(shape, compares=False).steps)


def test_a_switch_that_does_not_know_who_wants_lanes_leaves_them_without():
    shape = Shape(PAIR, 1, 1, (SCATTER,))
    graph = reachable(first_state(shape), Tree(shape, knows_wants=False, strict=False).steps)
    assert stuck(graph, lambda state: finished(shape, state))


def test_a_sum_that_is_not_raised_again_is_lost_for_ever():
    shape = Shape(((0,), (1,)), 1, 1)
    graph = reachable(first_state(shape), Tree(shape, loses=True, raises_again=False).steps)
    assert stuck(graph, lambda state: finished(shape, state))


def over(tree: Tree, state: TreeState) -> bool:
    """Return whether every worker that runs has every result, or an error."""
    return finished(tree.shape, state, without=state.ended | tree.stopped)


@pytest.mark.parametrize(
    "tree",
    [Tree(shape) for shape in PARTIAL]
    + ON_CHIPS
    + [Tree(replace(shape, quorum=1), loses=True) for shape in LOST],
    ids=str,
)
def test_with_a_quorum_of_racks_no_wrong_sum_is_reachable_and_who_is_left_behind_hears_of_it(tree):
    graph = reachable(first_state(tree.shape), tree.steps)  # raises WrongSum or FalseAlarm
    assert any(finished(tree.shape, state) for state in graph)
    assert not stuck(graph, lambda state: over(tree, state))
    members = {each.members for state in graph for each in state.results}
    assert len(members) > 1


STRAGGLER = Tree(Shape(THREE, 1, 2, quorum=1), loses=True, stopped=frozenset({1}))
"""A rack with a worker that has stopped, and another rack, whose sums make a quorum."""


@pytest.mark.parametrize("chip", [{}, TOFINO_1], ids=str)
def test_beside_a_stopped_worker_the_others_get_all_results(chip):
    tree = replace(STRAGGLER, **chip)
    graph = reachable(first_state(tree.shape), tree.steps)
    assert not stuck(graph, lambda state: over(tree, state))
    assert any(
        finished(tree.shape, state, without=tree.stopped) and not state.ended for state in graph
    )


def test_a_switch_that_asks_for_lanes_gets_no_result_without_them():
    shape = Shape(THREE, 1, 1, (SCATTER,), quorum=1)
    for chip, lacking in ({}, True), (TOFINO_2, False):
        graph = reachable(first_state(shape), Tree(shape, **chip).steps)
        answers = {each for state in graph for each in state.answers}
        assert any(each.announced and each.total is None for each in answers) == lacking


def test_a_lost_result_that_nobody_asks_for_is_lost_to_the_workers_beside_a_stopped_one():
    tree = replace(STRAGGLER, shape=Shape(THREE, 1, 1, quorum=1), asks=False)
    assert stuck(reachable(first_state(tree.shape), tree.steps), lambda state: over(tree, state))


def test_a_switch_that_takes_results_only_for_its_own_sums_keeps_its_workers_waiting():
    tree = replace(STRAGGLER, shape=Shape(THREE, 1, 1, quorum=1), takes_early=False)
    assert stuck(reachable(first_state(tree.shape), tree.steps), lambda state: over(tree, state))


def test_a_switch_that_takes_results_without_lanes_keeps_them_from_those_who_want_them():
    shape = Shape(THREE, 1, 1, (SCATTER,), quorum=1)
    tree = Tree(shape, strict=False)
    assert stuck(reachable(first_state(shape), tree.steps), lambda state: over(tree, state))
