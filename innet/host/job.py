"""A worker's knowledge of its job: its rank, the present term, and its timeouts."""

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from innet.rpc import innet_pb2 as pb


@dataclass(frozen=True)
class WorkerInfo:
    """A worker's rank and its job, as the controller gave them; valid until the worker leaves.

    With fewer than `min_workers` workers there are no results. `job` is the job's id in packets. In a
    job that `lends` slots, workers report when they communicate. If the job carries a slice for a larger
    group, `group_ranks` are the ranks of its workers in that group.
    """

    job: int
    rank: int
    workers: int
    min_workers: int
    lanes: int
    job_name: str = ""
    lends: bool = False
    group_ranks: Sequence[int] = ()

    def in_group(self, rank: int) -> int:
        """Return the rank in the group of a worker of the job. Logs and errors name this one."""
        return self.group_ranks[rank] if self.group_ranks else rank

    @property
    def has_quorum(self) -> bool:
        """Return whether there may be results without some workers."""
        return self.min_workers < self.workers


class Path(enum.IntEnum):
    """The path on which the integers of an exchange are summed."""

    SWITCH = 1
    FALLBACK = 2  # by the workers among themselves


@dataclass(frozen=True)
class Term:
    """The workers' agreement on the next exchange and on the path for sums from there on.

    `exchange` is the first of the term. If it is `shared`, some workers have finished it and give
    the others its result. `slots` is 0 if the job has none. `reason` explains why the path is not
    the switch. `bitmaps` says what the bits of PENDING packets mean, or is None if they are ranks.
    """

    number: int
    path: Path
    first_slot: int = 0
    slots: int = 0
    exchange: int = 0
    shared: bool = False
    reason: str = ""
    bitmaps: pb.Bitmaps | None = None


@dataclass
class Timeouts:
    """Limits on the duration of an all-reduce, in seconds. A change applies at once.

    `switch` bounds the silence of the switch if there is no other way to sum. `workers` bounds the
    wait for other workers, and for a controller that cannot be reached. Its default is that of
    PyTorch's own backends, 30 minutes. Neither counts time in which the worker's own process is
    stopped.
    """

    switch: float = 30.0
    workers: float = 1800.0

    def limit(self, seconds: float) -> None:
        """Let an all-reduce take `seconds` at most. A switch may be silent as long as by default."""
        self.switch, self.workers = min(Timeouts.switch, seconds), seconds


class ControllerMessages(Protocol):
    """The messages from and to a worker's controller; each message wakes the agent's thread.

    See :class:`innet.host.membership.Membership`.
    """

    ended: str
    recover: pb.Recover | None
    term: Term | None
    waiting_for: frozenset[int]
    connected: bool

    def departed(self) -> Mapping[int, str]:
        """Return the ranks that have left the job, with the reasons."""

    def ready(self, term: int, exchange: int) -> None:
        """Tell the controller that this worker has stopped and `exchange` is unfinished."""

    def trouble(self, term: int, reason: str) -> None:
        """Ask for another term."""
