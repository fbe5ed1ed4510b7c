"""Weak scaling: the time of a training step, as workers are added that all compute as much as the first.

The mean step is the mean computation of the slowest worker, and the mean of what follows it. What
follows comes from the simulation for switches, and from the formula for a ring. Times are in seconds.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from innet.errors import UsageError
from innet.model import all_reduce
from innet.model.all_reduce import SlotParameters
from innet.model.links import LinkModel
from innet.model.predict import Workload
from innet.model.published import WeakScaling
from innet.model.scenario import Level, Scenario, SimulatedLink, switch_tree
from innet.model.simulate import simulate
from innet.model.stragglers import Seconds, Stragglers, fitted

_DRAWS = 1000
"""Draws of the slowest worker's computation.

The communication after it varies less and takes longer to simulate, so that there are fewer draws of it.
"""

_EQUAL = Stragglers()


@dataclass(frozen=True)
class ThreeTierNetwork:
    """A network: racks of up to `rack` workers, up to `spine` racks below a spine, and a core switch."""

    link: SimulatedLink
    slots: SlotParameters = field(default_factory=SlotParameters)
    rack: int = 64
    spine: int = 16
    oversubscription: float = 0.0
    """As in :func:`innet.model.scenario.switch_tree`."""

    def tree(self, workers: int) -> tuple[Level, ...]:
        """Return the smallest tree for so many workers."""
        racks = math.ceil(workers / self.rack)
        spines = math.ceil(racks / self.spine)
        return switch_tree(self.link, [racks, spines], self.oversubscription, workers)


@dataclass(frozen=True)
class ScalingPoint:
    """The mean steps of a number of workers, in seconds."""

    workers: int
    levels: int
    alone: float
    """The mean step of one worker, which communicates nothing."""
    slowest: float
    """The slowest worker's computation."""
    communicate: float
    """One all-reduce through the switches that all workers begin together."""
    switches: float
    """A step that sums through switches after the computation (D-Sync)."""
    ring: float
    """A step that sums over a ring after the computation."""
    overlapped: float
    """A step that sums through switches during the computation (Sync EASGD3)."""

    def efficiency(self, kind: str) -> float:
        """Return the scaling efficiency of `switches`, `ring` or `overlapped`, from 0 to 1."""
        return self.alone / float(getattr(self, kind))


EDR = ThreeTierNetwork(SimulatedLink(100e9, 6.01e-6 / 7 / 2))
"""The network of SHARP's published 128 nodes, with 100 Gb/s.

The latency of a link follows from the 6.01 us that the hosts need for an all-reduce of 8 bytes (COMHPC
2016), in 7 messages over two links each.
"""


@dataclass(frozen=True)
class Curve:
    """The weak scaling of a neural network, with published figures if there are any."""

    name: str
    points: list[ScalingPoint]
    stragglers: Stragglers
    published: WeakScaling | None = None


def published_curve(
    published: WeakScaling,
    counts: Iterable[int],
    fabric: ThreeTierNetwork,
    stragglers: Stragglers,
    *,
    fit: bool,
    draws: int,
    seed: int,
) -> Curve:
    """Return the curve of a published neural network. With `fit`, its efficiencies give the variation."""
    if fit:
        stragglers = replace(stragglers, variation=fitted(published.efficiency))
    workload = Workload(published.size, published.step)
    points = weak_scaling(counts, workload, fabric, stragglers, draws, seed)
    return Curve(published.name, points, stragglers, published)


def weak_scaling(
    counts: Iterable[int],
    workload: Workload,
    fabric: ThreeTierNetwork,
    stragglers: Stragglers = _EQUAL,
    draws: int = 10,
    seed: int = 0,
) -> list[ScalingPoint]:
    """Return a point for each number of workers. Raises UsageError."""
    if draws < 1:
        raise UsageError(f"{draws} draws of the compute times: give at least 1")
    return [_point(each, workload, fabric, stragglers, draws, seed) for each in counts]


def offloaded(workers: int, size: float, fabric: ThreeTierNetwork) -> float:
    """Return how many times as fast switches are as recursive doubling between the hosts.

    A message between hosts crosses two links. Neither hosts nor switches take any time.
    """
    link = LinkModel(fabric.link.delay, 8 / fabric.link.rate)
    between = replace(link, alpha=2 * link.alpha)
    levels = len(fabric.tree(workers))
    through = all_reduce.switch(size, link, fabric.slots, hops=levels)
    return all_reduce.doubling(workers, size, between) / through


def _point(
    workers: int,
    workload: Workload,
    fabric: ThreeTierNetwork,
    stragglers: Stragglers,
    draws: int,
    seed: int,
) -> ScalingPoint:
    alone = stragglers.mean * workload.compute + workload.update
    if workers == 1:
        return ScalingPoint(1, 0, alone, alone - workload.update, 0.0, alone, alone, alone)
    random = np.random.default_rng([seed, workers])
    tree = fabric.tree(workers)
    together = Scenario(workers, workload.size, tree, fabric.slots, seed=seed)
    communicate = simulate(together).seconds
    exposed = [
        _exposed(together, stragglers.times(workload.compute, workers, random), seed + number)
        for number in range(draws)
    ]
    slowest = np.array(
        [stragglers.times(workload.compute, workers, random).max() for _ in range(_DRAWS)]
    )
    link = LinkModel(fabric.link.delay, 8 / fabric.link.rate)
    ring = all_reduce.ring(workers, workload.size, link)
    computed = float(slowest.mean())
    return ScalingPoint(
        workers,
        len(tree),
        alone,
        computed,
        communicate,
        computed + float(np.mean(exposed)) + workload.update,
        computed + ring + workload.update,
        float(np.maximum(slowest, communicate).mean()) + workload.update,
    )


def _exposed(scenario: Scenario, starts: Seconds, seed: int) -> float:
    """Return the seconds from the slowest worker's start to the end of the all-reduce."""
    outcome = simulate(replace(scenario, starts=tuple(starts.tolist()), seed=seed))
    return outcome.seconds - float(starts.max())
