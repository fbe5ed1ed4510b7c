"""Seconds that one all-reduce of n bytes takes between p workers, by transport.

Pure functions. n is in bytes, times are in seconds, the link is a worker's.
"""

import math
from dataclasses import dataclass

from innet.errors import UsageError
from innet.model.links import Link


@dataclass(frozen=True)
class Slots:
    """What bounds the slot protocol: see docs/slot-protocol.md."""

    slots: int = 512
    """Chunks under way."""
    lanes: int = 256
    """Elements of 4 bytes in a packet."""
    header: int = 66
    """Bytes of a frame before the lanes: Ethernet, IPv4, UDP, innet."""

    @property
    def frame(self) -> int:
        """Bytes of a frame."""
        return self.header + 4 * self.lanes

    def chunks(self, n: float) -> int:
        """Packets for n bytes."""
        return max(1, math.ceil(n / (4 * self.lanes)))


def ring(p: int, n: float, link: Link, segments: int = 1) -> float:
    """Ring all-reduce: Li et al., equation (5), and with L `segments` equation (6).

    2 (p-1) L α + 2 (p-1)/p n β + (p-1)/p n γ + L S
    """
    share = (p - 1) / p * n
    latency = segments * (2 * (p - 1) * link.alpha + link.sync)
    return latency + 2 * share * link.beta + share * link.gamma


def server(p: int, n: float, link: Link) -> float:
    """One parameter server that serves one worker after the other: 2 p (α + n β) + p n γ + S.

    You et al., section 6.1.1: P (α + |W| β) each way, which is linear in p.
    """
    return 2 * p * (link.alpha + n * link.beta) + p * n * link.gamma + link.sync


def tree(p: int, n: float, link: Link) -> float:
    """A binomial tree up, and down again: ceil(log2 p) (2 (α + n β) + n γ) + S.

    You et al., section 6.1.1: log P (α + |W| β) each way.
    """
    depth = math.ceil(math.log2(p))
    return depth * (2 * (link.alpha + n * link.beta) + n * link.gamma) + link.sync


def switch(n: float, link: Link, slots: Slots, hops: int = 1) -> float:
    """Sums in the switch; the number of workers does not matter. Exact without loss.

    All chunks go out and come back at the same time. A chunk's round trip over `hops` links each way,
    store and forward, is R = 2 hops (α + f β) with f bytes a frame. A worker sends a frame every f β
    unless all slots are under way: then so many every R. With c chunks of s slots, the last round having
    r + 1 of them::

        (c - 1) f β + R                    if s f β >= R
        floor((c - 1) / s) R + r f β + R   else
    """
    if hops < 1:
        raise UsageError(f"{hops} hops: there is one link at least")
    frame = slots.frame * link.beta
    chunks = slots.chunks(n)
    round_trip = 2 * hops * (link.alpha + frame)
    if slots.slots * frame >= round_trip:
        return (chunks - 1) * frame + round_trip + link.sync
    rounds, rest = divmod(chunks - 1, slots.slots)
    return (rounds + 1) * round_trip + rest * frame + link.sync


def hierarchy(n: float, link: Link, slots: Slots) -> float:
    """Switches of racks under a switch of switches, all over links of the same kind.

    A rack's switch sends one frame up for one from each of its workers, so the links between switches
    carry what a worker's does; a round trip is twice as long.
    """
    return switch(n, link, slots, hops=2)
