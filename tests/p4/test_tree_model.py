"""Every state of the slot protocol over two levels, under loss, repetition, reordering and delay."""

import pytest
from slot_model import Collective, WrongSum, reachable, stuck
from tree_model import Shape, Tree, finished, first_state

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
    graph = reachable(first_state(shape), Tree(shape, knows_wants=False).steps)
    assert stuck(graph, lambda state: finished(shape, state))


def test_a_sum_that_is_not_raised_again_is_lost_for_ever():
    shape = Shape(((0,), (1,)), 1, 1)
    graph = reachable(first_state(shape), Tree(shape, loses=True, raises_again=False).steps)
    assert stuck(graph, lambda state: finished(shape, state))
