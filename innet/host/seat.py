"""What a worker knows of its job: its seat, and the epoch in which it sums."""

import enum
from dataclasses import dataclass


@dataclass(frozen=True)
class Seat:
    """A worker's place in a job, as the controller gave it; it lasts as long as the worker stays.

    With less than `fewest` workers there are no results.
    """

    job: int
    rank: int
    workers: int
    fewest: int
    lanes: int


class Path(enum.IntEnum):
    """How the integers of an exchange are summed."""

    SWITCH = 1
    FALLBACK = 2  # by the workers among themselves


@dataclass(frozen=True)
class Epoch:
    """What the workers have agreed on: where they are, and how they sum from here on.

    `exchange` is the first of the epoch. If it is `shared`, some workers have finished it, and give
    the others its result. `slots` is 0 where the job has none; `reason` says why the path is not the
    switch.
    """

    number: int
    path: Path
    first_slot: int = 0
    slots: int = 0
    exchange: int = 0
    shared: bool = False
    reason: str = ""


@dataclass(frozen=True)
class Patience:
    """How long an all-reduce may take, in seconds, before it is given up.

    `switch`: without a sign of life from the switch, and without another way to sum.
    `workers`: without progress otherwise, because other workers are missing.
    """

    switch: float = 30.0
    workers: float = 300.0
