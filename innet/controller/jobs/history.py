"""Counts of events in a job since this controller has managed it."""

from collections import Counter, deque
from dataclasses import dataclass, field
from enum import StrEnum

_DEPARTURES = 64


class Cause(StrEnum):
    """The reason why a term ended and another began."""

    NEW_WORKERS = "new_workers"  # all workers of the generation have left, and others come
    WORKER_TROUBLE = "worker_trouble"  # a worker cannot go on
    WORKER_MOVED = "worker_moved"  # its attachment has changed
    WORKER_LEFT = "worker_left"
    SWITCH_LOST = "switch_lost"
    SWITCH_DRAINED = "switch_drained"  # the operator wants it unused
    SWITCH_REFUSED = "switch_refused"  # it refused the job's entries
    SWITCH_USABLE = "switch_usable"  # again, or for the first time
    CONTROLLER_RESTARTED = "controller_restarted"
    SLOTS_BORROWED = "slots_borrowed"
    SLOTS_RETURNED = "slots_returned"  # to the jobs that need them


LENDING = frozenset({Cause.SLOTS_BORROWED, Cause.SLOTS_RETURNED})
"""The causes of terms that a job begins in the normal course of lending and borrowing."""


@dataclass(frozen=True)
class Departed:
    """A worker that has left, and the time on the controller's clock. It may not have been `admitted`."""

    rank: int
    reason: str
    at: float
    admitted: bool = True


@dataclass
class History:
    """The terms begun, by cause, the number of lost leases, and the last departures in their order.

    `unrecorded` are the departures that are not in the log and in the store yet.
    """

    terms: Counter[Cause] = field(default_factory=Counter)
    leases_lost: int = 0
    departures: deque[Departed] = field(default_factory=lambda: deque(maxlen=_DEPARTURES))

    unrecorded: list[Departed] = field(default_factory=list)

    @property
    def recoveries(self) -> int:
        """Return the number of terms begun, except those for new workers and for lent slots."""
        others = {Cause.NEW_WORKERS, *LENDING}
        return sum(count for cause, count in self.terms.items() if cause not in others)

    def note_departure(self, departed: Departed) -> None:
        """Note that a worker has left."""
        self.departures.append(departed)
        self.unrecorded.append(departed)

    def note_failed_join(self, departed: Departed) -> None:
        """Note that a worker has left before it was admitted."""
        self.unrecorded.append(departed)

    def take_unrecorded(self) -> list[Departed]:
        """Return the departures since the last call."""
        taken, self.unrecorded = self.unrecorded, []
        return taken

    def copy(self) -> "History":
        """Return a copy that does not change any more."""
        return History(Counter(self.terms), self.leases_lost, self.departures.copy())
