"""What has happened to a job since this controller has looked after it, counted."""

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum


class Cause(StrEnum):
    """Why an epoch was over, so that another began."""

    NEW_WORKERS = "new_workers"  # all that were there have left, and others come
    WORKER_TROUBLE = "worker_trouble"  # a worker cannot go on
    WORKER_MOVED = "worker_moved"  # it is attached elsewhere now
    WORKER_LEFT = "worker_left"
    SWITCH_LOST = "switch_lost"
    SWITCH_REFUSED = "switch_refused"  # it does not take what the job needs
    SWITCH_USABLE = "switch_usable"  # again, or at last
    CONTROLLER_RESTARTED = "controller_restarted"


@dataclass
class History:
    """Epochs begun, by cause, and workers whose lease ran out."""

    epochs: Counter[Cause] = field(default_factory=Counter)
    leases_lost: int = 0

    def copy(self) -> "History":
        """How it is now."""
        return History(Counter(self.epochs), self.leases_lost)
