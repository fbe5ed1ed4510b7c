"""An all-reduce to simulate: its workers, the tree of switches above them, and the links between.

Times are in seconds, sizes in bytes, and rates in bits per second.
"""

import math
from collections.abc import Sequence
from dataclasses import astuple, dataclass, field, replace

from innet.errors import UsageError
from innet.model.all_reduce import SlotParameters


@dataclass(frozen=True)
class SimulatedLink:
    """A link, each way: bits per second, seconds of delay, and the share of packets that get lost.

    After a pause, `burst` bytes leave at once. This is the bucket of Linux's tbf, which limits
    emulated links.

    Other traffic takes the share `background` of the rate, from 0 to below 1. It comes in bursts of
    `background_burst` bytes at equal intervals, and queues before and behind the packets of the
    job. It does not slow down for them, so it stands for many flows rather than for one.
    """

    rate: float
    delay: float
    loss: float = 0.0
    burst: float = 0.0
    background: float = 0.0
    background_burst: float = 15_000.0

    def __post_init__(self) -> None:
        if self.rate <= 0 or min(self.delay, self.burst) < 0 or not 0 <= self.loss < 1:
            raise UsageError(
                f"a link with rate {self.rate}, delay {self.delay}, burst {self.burst} and loss "
                f"{self.loss}: the rate has to be above 0, delay and burst must not be negative, "
                "and the loss has to be from 0 to below 1"
            )
        if not 0 <= self.background < 1 or self.background_burst <= 0:
            raise UsageError(
                f"background {self.background} in bursts of {self.background_burst} bytes: the share "
                "has to be from 0 to below 1, and the bursts above 0"
            )


@dataclass(frozen=True)
class Level:
    """A level of the tree: the number of its switches, and the links to the nodes below them.

    The nodes below are the workers or the switches of the level below. They are spread over the
    switches in order and as evenly as possible.
    """

    link: SimulatedLink
    switches: int = 1
    slow: float = 0.0
    """The share of the links that are slow. Which ones follows from the scenario's seed."""
    slowdown: float = 10.0
    """The factor by which the rate of a slow link is lower."""

    def __post_init__(self) -> None:
        if self.switches < 1 or not 0 <= self.slow <= 1 <= self.slowdown < math.inf:
            raise UsageError(
                f"a level of {self.switches} switches, a share of {self.slow} of its links slower by "
                f"{self.slowdown}: give at least 1 switch, a share from 0 to 1, and a factor from 1"
            )


@dataclass(frozen=True)
class Scenario:
    """An all-reduce of `size` bytes through a tree of switches, from the workers' level upwards."""

    workers: int
    size: float
    tree: tuple[Level, ...]
    slots: SlotParameters = field(default_factory=SlotParameters)
    starts: tuple[float, ...] = ()
    """The start of every worker, in seconds; by default all start at 0."""
    timeout: float = 1e-3
    """Seconds until a chunk is sent again."""
    seed: int = 0
    """The seed of losses, of slow links, and of the times of background traffic."""

    def __post_init__(self) -> None:
        counts = [self.workers, *(level.switches for level in self.tree)]
        if not self.tree or counts[-1] != 1 or counts != sorted(counts, reverse=True):
            raise UsageError(
                f"{self.workers} workers below levels of {counts[1:]} switches: every switch needs a "
                "node below it, and the last level has one switch"
            )
        if self.starts and len(self.starts) != self.workers:
            raise UsageError(
                f"{len(self.starts)} starts for {self.workers} workers: give one for each"
            )
        if self.starts and not min(self.starts) >= 0:
            raise UsageError(f"a worker starts at {min(self.starts)}: give no time below 0")
        if self.timeout <= 0:
            raise UsageError(f"timeout {self.timeout}: give one above zero")

    @property
    def chunks(self) -> int:
        """Return the number of packets that each worker sends."""
        return self.slots.chunks(self.size)

    @property
    def lossy(self) -> bool:
        """Return whether any link may lose packets."""
        return any(level.link.loss for level in self.tree)


def switch_tree(
    link: SimulatedLink, switches: Sequence[int], oversubscription: float = 0.0, workers: int = 0
) -> tuple[Level, ...]:
    """Return a tree with so many switches on each level, from the racks upwards; the top is added.

    With an oversubscription, a switch has one link upwards. Its rate is that of all links downwards
    together, divided by this factor. Without an oversubscription, every link upwards is like a
    worker's. `workers` are needed with an oversubscription only. Raises UsageError.
    """
    if not 0 <= oversubscription < math.inf or (oversubscription and not workers):
        raise UsageError(f"oversubscription {oversubscription}: give a factor above 0, and workers")
    levels, nodes = [], workers
    for count in [*(each for each in switches if each > 1), 1]:
        levels.append(Level(link, count))
        if oversubscription:
            link = replace(link, rate=link.rate * nodes / count / oversubscription)
            nodes = count
    return tuple(levels)


@dataclass(frozen=True)
class SimulationResult:
    """The result of a simulation. The counts of packets are over all workers.

    `seconds` is the time until the last worker has all results.
    """

    seconds: float
    packets_sent: int
    retransmissions: int
    lost: int
    events: int
    """The cost of the simulation: its events, or the packets that it sent over links."""

    def __add__(self, other: "SimulationResult") -> "SimulationResult":
        """Return the result of both simulations, one after the other."""
        sums = zip(astuple(self), astuple(other), strict=True)
        return SimulationResult(*(one + next_ for one, next_ in sums))

    def goodput(self, size: float) -> float:
        """Return the goodput in bits per second, given the bytes of the vector."""
        return 8 * size / self.seconds
