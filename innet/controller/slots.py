"""The allocation of a switch to jobs: slots, counters, and room in its tables."""

from collections.abc import Sequence

from innet.controller.records import Place
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
        """Raise UsageError if there could never be so many."""
        if size < 1 or size & (size - 1):
            raise UsageError(f"{size} slots: the number has to be a power of two")
        if size > self.slots:
            raise UsageError(f"{size} slots are more than the {self.slots} that the switch has")

    def take(self, size: int) -> int:
        """Reserve `size` slots and return the first. Raises UsageError or NoCapacity."""
        self.check(size)
        for first in range(0, self.slots - size + 1, size):
            if self.has(first, size):
                self.keep(first, size)
                return first
        raise NoCapacity(
            f"no {size} neighbouring slots are free ({self.free} of {self.slots} are): "
            "ask for fewer, or delete a job"
        )

    def has(self, first: int, size: int) -> bool:
        """Return whether all of these slots are free."""
        return all(
            first + size <= other or other + taken <= first for other, taken in self._taken.items()
        )

    def keep(self, first: int, size: int) -> None:
        """Reserve a range that is known to be free."""
        self._taken[first] = size

    def give_back(self, first: int) -> None:
        """End the reservation that starts at `first`."""
        del self._taken[first]


class Places:
    """The jobs' places on a switch with this many slots, and table space for this many workers."""

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

    def keep(self, place: Place, workers: int) -> None:
        """Reserve a place that is known to be free."""
        self.slots.keep(place.first_slot, place.slots)
        self._workers[place.index] = workers

    def give_back(self, place: Place) -> None:
        """End a reservation."""
        self.slots.give_back(place.first_slot)
        del self._workers[place.index]


def take_place(places: Sequence[Places], slots: int, workers: int) -> Place:
    """Reserve the same place on all of these switches. Raises UsageError or NoCapacity."""
    first_of, *others = [each.slots for each in places]
    first_of.check(slots)
    for each in places:
        each.check_room(workers)
    index = next((n for n in range(MOST_JOBS) if all(each.has_index(n) for each in places)), None)
    if index is None:
        raise NoCapacity(f"the switch has {MOST_JOBS} jobs, no more can be counted: delete one")
    for first in range(0, first_of.slots - slots + 1, slots):
        if all(each.has(first, slots) for each in (first_of, *others)):
            break
    else:
        fullest = min((first_of, *others), key=lambda each: each.free)
        raise NoCapacity(
            f"no {slots} neighbouring slots are free ({fullest.free} of {fullest.slots} are): "
            "ask for fewer, or delete a job"
        )
    place = Place(index, first, slots)
    for each in places:
        each.keep(place, workers)
    return place
