"""Jobs get a switch's slots in aligned ranges without overlap, which become free again as a whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.controller.slots import SlotAllocator
from innet.errors import ControllerError, UsageError

powers = st.integers(0, 6).map(lambda exponent: 1 << exponent)


@given(st.integers(1, 100), st.lists(st.tuples(st.booleans(), powers, st.integers(0, 2**16))))
def test_ranges_are_aligned_disjoint_and_counted(slots: int, steps: list[tuple[bool, int, int]]):
    allocator = SlotAllocator(slots)
    taken: dict[int, int] = {}
    for take, size, choice in steps:
        if take:
            try:
                first = allocator.take(size)
            except (ControllerError, UsageError):
                aligned = range(0, slots - size + 1, size)
                used = {
                    slot for start, length in taken.items() for slot in range(start, start + length)
                }
                assert all(used.intersection(range(start, start + size)) for start in aligned)
                continue
            assert first % size == 0
            assert first + size <= slots
            assert all(first + size <= other or other + taken[other] <= first for other in taken)
            taken[first] = size
        elif taken:
            first = sorted(taken)[choice % len(taken)]
            allocator.give_back(first)
            del taken[first]
        assert allocator.free == slots - sum(taken.values())


@given(st.lists(powers, max_size=20), st.randoms(use_true_random=False))
def test_all_is_free_again_once_everything_is_given_back(sizes, random):
    allocator = SlotAllocator(1 << 11)
    firsts = [allocator.take(size) for size in sizes]
    random.shuffle(firsts)
    for first in firsts:
        allocator.give_back(first)
    assert allocator.free == allocator.slots
    assert allocator.take(allocator.slots) == 0


@pytest.mark.parametrize("size", [-4, 0, 3, 6, 100])
def test_sizes_that_are_no_power_of_two_are_refused(size: int):
    with pytest.raises(UsageError, match=f"{size} slots.* power of two"):
        SlotAllocator(128).take(size)


def test_more_slots_than_the_switch_has_are_refused():
    with pytest.raises(UsageError, match="256 slots are more than the 128"):
        SlotAllocator(128).take(256)


def test_where_no_slots_are_left_the_error_says_how_many_are_free():
    allocator = SlotAllocator(128)
    allocator.take(64)
    allocator.take(32)
    with pytest.raises(
        ControllerError, match=r"no 64 neighbouring slots are free \(32 of 128 are\)"
    ):
        allocator.take(64)
    assert allocator.free == 32
    assert allocator.take(32) == 96
