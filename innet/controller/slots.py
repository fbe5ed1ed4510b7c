"""Which slots of a switch belong to whom."""

from innet.errors import ControllerError, UsageError


class SlotAllocator:
    """Hands out aligned power-of-two ranges, so that one prefix match describes a range."""

    def __init__(self, slots: int) -> None:
        self.slots = slots
        self._taken: dict[int, int] = {}

    @property
    def free(self) -> int:
        """How many slots nobody has."""
        return self.slots - sum(self._taken.values())

    def take(self, size: int) -> int:
        """Reserve `size` slots and return the first. Raises UsageError or ControllerError."""
        if size < 1 or size & (size - 1):
            raise UsageError(f"{size} slots: the number has to be a power of two")
        if size > self.slots:
            raise UsageError(f"{size} slots are more than the {self.slots} that the switch has")
        for first in range(0, self.slots - size + 1, size):
            if all(
                first + size <= other or other + taken <= first
                for other, taken in self._taken.items()
            ):
                self._taken[first] = size
                return first
        raise ControllerError(
            f"no {size} neighbouring slots are free ({self.free} of {self.slots} are): "
            "ask for fewer, or delete a job"
        )

    def give_back(self, first: int) -> None:
        """End the reservation that starts at `first`."""
        del self._taken[first]
