"""Every state of the slot protocol, under loss, repetition, reordering and unbounded delay."""

import pytest
from slot_model import AlternatingBit, Protocol, Size, WrongSum, explore, finished, stuck

SIZES = [Size(1, 1, 4), Size(2, 1, 5), Size(2, 2, 3), Size(2, 2, 5), Size(3, 1, 4), Size(3, 2, 3)]


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_no_wrong_sum_is_reachable_and_the_end_always_is(size):
    graph = explore(Protocol(size))  # raises WrongSum

    assert any(finished(size, state) for state in graph)
    assert not stuck(size, graph)


@pytest.mark.parametrize("size", [Size(2, 1, 2), Size(2, 2, 3)], ids=str)
def test_without_sequence_numbers_a_delayed_duplicate_enters_a_later_sum(size):
    with pytest.raises(WrongSum) as found:
        explore(AlternatingBit(size))

    *way, last = str(found.value).splitlines()
    assert len(set(way)) < len(way)  # some contribution arrived twice
    assert "which is the sum of" in last


def test_without_reuse_of_a_slot_a_bit_is_enough():
    size = Size(2, 2, 2)
    assert not stuck(size, explore(AlternatingBit(size)))
