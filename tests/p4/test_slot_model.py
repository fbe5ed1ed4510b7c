"""Every state of the slot protocol, under loss, repetition, reordering and unbounded delay."""

from itertools import permutations, product

import pytest
from slot_model import (
    AlternatingBit,
    Collective,
    Protocol,
    Size,
    WrongSum,
    explore,
    finished,
    over,
    stuck,
)

SUM, SCATTER, GATHER, BARRIER = Collective
MIXED = [
    *(Size(2, 1, 4, collectives=each) for each in permutations(Collective)),
    *(Size(2, 1, 3, collectives=(a, SUM, b)) for a, b in product(Collective, repeat=2)),
    Size(3, 1, 3, collectives=(SUM, SUM, GATHER)), Size(3, 1, 3, collectives=(GATHER, SUM, SCATTER)),
    Size(2, 2, 5, collectives=(SUM, SCATTER, GATHER, BARRIER)),
]  # fmt: skip
"""Sizes in which the collectives follow each other. Every other chunk uses the same cell."""

ALL_NEEDED = [
    Size(1, 1, 4), Size(2, 1, 5), Size(2, 2, 3), Size(2, 2, 5), Size(3, 1, 4), Size(3, 2, 3),
]  # fmt: skip
SOME_NEEDED = [
    Size(2, 1, 5, 1), Size(2, 2, 3, 1), Size(2, 2, 5, 1), Size(3, 1, 4, 1), Size(3, 1, 4, 2),
    Size(3, 2, 3, 2), *(Size(3, 1, 3, 2, each[:3]) for each in permutations(Collective, 3)),
]  # fmt: skip


@pytest.mark.parametrize("size", ALL_NEEDED + MIXED, ids=str)
def test_no_wrong_sum_is_reachable_and_all_results_always_are(size):
    graph = explore(Protocol(size))  # raises WrongSum

    everybody = frozenset(range(size.workers))
    assert any(finished(size, state) == everybody for state in graph)
    assert not stuck(graph, lambda state: finished(size, state) == everybody)
    assert not any(state.ended for state in graph)


@pytest.mark.parametrize("size", SOME_NEEDED, ids=str)
def test_with_a_quorum_no_wrong_sum_is_reachable_and_who_is_left_behind_hears_of_it(size):
    graph = explore(Protocol(size))  # raises WrongSum or FalseAlarm

    assert any(len(finished(size, state)) == size.workers for state in graph)
    assert not stuck(graph, lambda state: over(size, state))
    members = {sent.members for state in graph for sent in state.results}
    assert {len(each) for each in members} == {size.quorum}
    assert len(members) > 1


def test_a_quorum_leaves_behind_who_is_late_by_two_uses_of_a_slot():
    late_by_two, by_one = Size(3, 1, 3, 2), Size(3, 1, 2, 2)
    assert any(state.ended for state in explore(Protocol(late_by_two)))
    assert not any(state.ended for state in explore(Protocol(by_one)))


@pytest.mark.parametrize("first", [SUM, SCATTER, GATHER])
def test_lanes_that_do_not_start_a_cell_are_added_to_those_of_an_older_chunk(first):
    size = Size(2, 1, 3, collectives=(first, SUM, GATHER))
    with pytest.raises(WrongSum):
        explore(Protocol(size, starts=False))


def test_a_result_without_the_lanes_that_a_worker_wants_would_be_a_wrong_sum():
    late = Size(3, 1, 1, 2)  # the copy for who comes after the quorum has no lanes
    with pytest.raises(WrongSum):
        explore(Protocol(late, strict=False))
    assert not stuck(explore(Protocol(late)), lambda state: over(late, state))


@pytest.mark.parametrize("size", [Size(2, 1, 2), Size(2, 2, 3)], ids=str)
def test_without_sequence_numbers_a_delayed_duplicate_enters_a_later_sum(size):
    with pytest.raises(WrongSum) as found:
        explore(AlternatingBit(size))

    *way, last = str(found.value).splitlines()
    assert len(set(way)) < len(way)  # some contribution arrived twice
    assert "which is the sum of" in last


def test_without_reuse_of_a_slot_a_bit_is_enough():
    size = Size(2, 2, 2)
    assert not stuck(explore(AlternatingBit(size)), lambda state: over(size, state))
