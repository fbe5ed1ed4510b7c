"""The nodes of a scenario, and the time that each direction of their links takes.

Nodes that behave the same appear once, with their number. If no link loses packets, carries
background traffic or is slow, then all workers that start at the same time behave the same. So do
racks whose workers are the same. Thousands of equal workers then take no longer to simulate than
one.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from innet.model.scenario import Level, Scenario


@dataclass(frozen=True)
class Direction:
    """One direction of a link. All values but `loss`, a share of packets, are in seconds.

    `packet` and `bucket` are the times to send a packet and a bucketful of bytes. Background
    traffic is a burst that takes `work` seconds, at `phase` and every `period` seconds before and
    after.
    """

    packet: float
    bucket: float
    delay: float
    loss: float
    work: float
    period: float
    phase: float


@dataclass(frozen=True)
class ModelNode:
    """A worker, or a switch with the nodes below it. The parent has `count` such nodes."""

    up: Direction
    down: Direction
    start: float = 0.0
    below: tuple["ModelNode", ...] = ()
    count: int = 1


def nodes(scenario: Scenario) -> tuple[ModelNode, ...]:
    """Return the nodes below the top switch."""
    random = np.random.default_rng(scenario.seed)
    starts = scenario.starts or (0.0,) * scenario.workers
    below: list[tuple[ModelNode, ...]] = [()] * scenario.workers
    for level in scenario.tree:
        links = _links(level, len(below), 8 * scenario.slots.frame, random)
        found = [
            ModelNode(up, down, start, each)
            for (up, down), start, each in zip(links, starts, below, strict=True)
        ]
        below = [_grouped(each, scenario.lossy) for each in _spread(found, level.switches)]
        starts = (0.0,) * level.switches
    return below[0]


def _links(
    level: Level, count: int, bits: int, random: np.random.Generator
) -> list[tuple[Direction, Direction]]:
    """Return both directions of each link of a level."""
    slow = random.random(count) < level.slow
    phases = random.random((count, 2))
    return [
        (_direction(level, bits, each, up), _direction(level, bits, each, down))
        for each, (up, down) in zip(slow.tolist(), phases.tolist(), strict=True)
    ]


def _direction(level: Level, bits: int, slow: bool, phase: float) -> Direction:
    """Return one direction of a link, given its `phase` as a share of the period."""
    link = level.link
    rate = link.rate / (level.slowdown if slow else 1.0)
    work = 8 * link.background_burst / rate if link.background else 0.0
    period = work / link.background if link.background else 0.0
    return Direction(
        bits / rate, 8 * link.burst / rate, link.delay, link.loss, work, period, phase * period
    )


def _spread(found: Sequence[ModelNode], switches: int) -> list[Sequence[ModelNode]]:
    """Return the nodes of each switch."""
    ends = [number * len(found) // switches for number in range(switches + 1)]
    return [found[first:last] for first, last in pairwise(ends)]


def _grouped(found: Sequence[ModelNode], lossy: bool) -> tuple[ModelNode, ...]:
    """Return each distinct node with its count. Equal nodes that lose packets stay apart."""
    if lossy:
        return tuple(found)
    return tuple(replace(node, count=count) for node, count in Counter(found).items())
