"""Jobs get a switch's slots in aligned ranges without overlap, which become free again as a whole."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.controller.jobs.records import SlotRange
from innet.controller.jobs.slots import SwitchAllocator, allocate
from innet.errors import ControllerError, UsageError

WORKERS = 4096
powers = st.integers(0, 6).map(lambda exponent: 1 << exponent)


@given(st.integers(1, 100), st.lists(st.tuples(st.booleans(), powers, st.integers(0, 2**16))))
def test_ranges_are_aligned_disjoint_and_counted(slots: int, steps: list[tuple[bool, int, int]]):
    allocator = SwitchAllocator(slots, WORKERS)
    taken: dict[int, SlotRange] = {}
    for take, size, choice in steps:
        if take:
            try:
                made = allocate([allocator], size, 1)
            except (ControllerError, UsageError):
                aligned = range(0, slots - size + 1, size)
                used = {
                    slot
                    for each in taken.values()
                    for slot in range(each.first_slot, each.first_slot + each.slots)
                }
                assert all(used.intersection(range(start, start + size)) for start in aligned)
                continue
            first = made.first_slot
            assert first % size == 0
            assert first + size <= slots
            assert all(
                first + size <= other or other + each.slots <= first
                for other, each in taken.items()
            )
            assert made.index not in {each.index for each in taken.values()}
            taken[first] = made
        elif taken:
            first = sorted(taken)[choice % len(taken)]
            allocator.release(taken.pop(first))
        assert allocator.slots.free == slots - sum(each.slots for each in taken.values())


@given(st.lists(powers, max_size=20), st.randoms(use_true_random=False))
def test_all_is_free_again_once_everything_is_given_back(sizes, random):
    allocator = SwitchAllocator(1 << 11, WORKERS)
    taken = [allocate([allocator], size, 1) for size in sizes]
    random.shuffle(taken)
    for each in taken:
        allocator.release(each)
    assert allocator.slots.free == 1 << 11
    assert allocate([allocator], 1 << 11, 1) == SlotRange(0, 0, 1 << 11)


@pytest.mark.parametrize("size", [-4, 0, 3, 6, 100])
def test_sizes_that_are_no_power_of_two_are_refused(size: int):
    with pytest.raises(UsageError, match=f"{size} slots.* power of two"):
        allocate([SwitchAllocator(128, WORKERS)], size, 1)


def test_more_slots_than_the_switch_has_are_refused():
    with pytest.raises(UsageError, match="256 slots are more than the 128"):
        allocate([SwitchAllocator(128, WORKERS)], 256, 1)


def test_where_no_slots_are_left_the_error_says_how_many_are_free():
    allocator = SwitchAllocator(128, WORKERS)
    allocate([allocator], 64, 1)
    allocate([allocator], 32, 1)
    with pytest.raises(
        ControllerError, match=r"no 64 neighbouring slots are free \(32 of 128 are\)"
    ):
        allocate([allocator], 64, 1)
    assert allocator.slots.free == 32
    assert allocate([allocator], 32, 1).first_slot == 96
