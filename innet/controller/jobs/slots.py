"""The allocation of a switch to jobs: slots, counters, and room in its tables."""

from collections.abc import Iterator, Sequence

from innet.controller.jobs.records import SlotRange
from innet.errors import NoCapacity, UsageError

MOST_JOBS = 256
"""The most jobs with slots of one switch: its program has that many counter cells."""


class SlotAllocator:
    """An allocator of aligned power-of-two ranges: a single prefix match describes a range."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._taken: dict[int, int] = {}

    @property
    def free(self) -> int:
        """Return the number of free slots."""
        return self.slots - sum(self._taken.values())

    def check(self, size: int) -> None:
        """Raise UsageError unless `size` is a power of two, and no more than all slots."""
        if size < 1 or size & (size - 1):
            raise UsageError(f"{size} slots: give a power of two")
        if size > self.slots:
            raise UsageError(
                f"{size} slots are more than the {self.slots} that the switch has: ask for fewer"
            )

    @property
    def taken(self) -> list[tuple[int, int]]:
        """Return the first slot and the size of each reservation."""
        return [*self._taken.items()]

    def reserve(self, first: int, size: int) -> None:
        """Reserve a range that is known to be free."""
        self._taken[first] = size

    def release(self, first: int) -> None:
        """End the reservation that starts at `first`."""
        del self._taken[first]


class SwitchAllocator:
    """The allocator of a switch with this many slots, and table space for this many workers."""

    def __init__(self, slots: int, workers: int) -> None:
        self.slots = SlotAllocator(slots)
        self._room = workers
        self._workers: dict[int, int] = {}  # by the index of their job

    def check_room(self, workers: int) -> None:
        """Raise NoCapacity if the tables have no room for this many more workers."""
        promised = sum(self._workers.values())
        if promised + workers > self._room:
            raise NoCapacity(
                f"the switch's tables have room for {self._room} workers, and {promised} are promised "
                "to other jobs: ask for fewer, or delete a job"
            )

    def has_index(self, index: int) -> bool:
        """Return whether an index is free."""
        return index not in self._workers

    def reserve(self, slot_range: SlotRange, workers: int) -> None:
        """Reserve slots that are known to be free."""
        self.slots.reserve(slot_range.first_slot, slot_range.slots)
        self._workers[slot_range.index] = workers

    def release(self, slot_range: SlotRange) -> None:
        """End a reservation."""
        self.slots.release(slot_range.first_slot)
        del self._workers[slot_range.index]


def allocate(switches: Sequence[SwitchAllocator], slots: int, workers: int) -> SlotRange:
    """Reserve the same slots on all of these switches. Raises UsageError or NoCapacity."""
    allocators = [each.slots for each in switches]
    allocators[0].check(slots)
    slot_range = SlotRange(_index(switches, workers), _first(allocators, slots), slots)
    for each in switches:
        each.reserve(slot_range, workers)
    return slot_range


def free_ranges(allocators: Sequence[SlotAllocator], size: int) -> Iterator[int]:
    """Yield the first slot of every aligned range of this size that is free on all switches."""
    end, at = min(each.slots for each in allocators), 0
    taken = sorted({each for one in allocators for each in one.taken})
    for first, count in [*taken, (end, 0)]:
        yield from range(-(-at // size) * size, min(first, end) - size + 1, size)
        at = max(at, first + count)


def _index(switches: Sequence[SwitchAllocator], workers: int) -> int:
    for each in switches:
        each.check_room(workers)
    for index in range(MOST_JOBS):
        if all(each.has_index(index) for each in switches):
            return index
    raise NoCapacity(f"the switch has {MOST_JOBS} jobs, as many as it can count: delete one")


def _first(allocators: Sequence[SlotAllocator], size: int) -> int:
    for first in free_ranges(allocators, size):
        return first
    fullest = min(allocators, key=lambda each: each.free)
    raise NoCapacity(
        f"no {size} neighbouring slots are free ({fullest.free} of {fullest.slots} are): "
        "ask for fewer, or delete a job"
    )
