"""Election ids: of two controllers, the one that started later is in charge of a switch.

P4Runtime makes the client with the highest election id primary. A switch remembers the highest id
that it has ever seen, so when that client is gone, a client with a lower id cannot become primary.
A controller that wants its switch back then has to send a higher id than that client's.
"""

import itertools
import time
from collections.abc import Callable, Iterator
from typing import TypeVar

from innet.errors import SwitchError

Id = tuple[int, int]
"""An election id: the time at which its controller started, in ns, and a number of the connection."""

VACANT_FOR_S = 3.0
"""Seconds without a primary after which a controller that started earlier takes the switch back."""

_ATTEMPTS = 3
Connection = TypeVar("Connection")


class SwitchTaken(SwitchError):
    """Another controller is, or was, in charge of the switch.

    `highest` is the highest election id that the switch has seen. `live` tells whether the other
    controller is connected.
    """

    def __init__(self, message: str, highest: Id = (0, 0), *, live: bool = True) -> None:
        super().__init__(message)
        self.highest, self.live = highest, live


class Candidate:
    """A controller that wants to be in charge of one switch.

    `started` is the time at which it started, in ns, and `numbers` yields the numbers of its
    connections. It gives way to a live controller that started later, unless it is `forceful`. When
    the other controller has been gone for a while, it takes charge again.
    """

    def __init__(
        self,
        started: int,
        numbers: Iterator[int],
        *,
        forceful: bool = False,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._started, self._forceful, self._clock = started, forceful, clock
        self._numbers = numbers
        self._mine: Id | None = None  # the last id with which it was in charge
        self._vacant: tuple[Id, float] | None = None  # which one is gone, and since when

    def take_charge(
        self, connect: Callable[[Id], Connection], vacant_for_s: float = VACANT_FOR_S
    ) -> Connection:
        """Call `connect` with an election id, and again with a higher one where that is allowed.

        If a controller that started later has been gone for `vacant_for_s` seconds, its switch is
        free again. Raises SwitchTaken if another controller has the switch, and any error of
        `connect`.
        """
        election = (self._started, next(self._numbers))
        for attempt in itertools.count(1):
            try:
                made = connect(election)
            except SwitchTaken as taken:
                higher = self.higher_than(taken, vacant_for_s)
                if higher is None or attempt == _ATTEMPTS:
                    raise
                election = higher
            else:
                self._mine, self._vacant = election, None
                return made
        raise AssertionError  # the loop does not end by itself

    def higher_than(self, taken: SwitchTaken, vacant_for_s: float) -> Id | None:
        """Return the id to try next, or None if the switch is another controller's for now."""
        high, low = taken.highest
        # If the highest id is our own, another controller has replaced us, and we started later
        # than it did.
        ours = taken.highest == self._mine or high <= self._started
        if ours or self._forceful or self._is_vacant(taken, vacant_for_s):
            return max(high, self._started), low + 1
        return None

    def _is_vacant(self, taken: SwitchTaken, vacant_for_s: float) -> bool:
        """Return whether the other controller has been gone for long enough."""
        if taken.live:
            self._vacant = None
            return False
        now = self._clock()
        if not self._vacant or self._vacant[0] != taken.highest:
            self._vacant = taken.highest, now
        return now - self._vacant[1] >= vacant_for_s
