"""Seconds that one all-reduce of n bytes takes between p workers, by transport.

All functions are pure. n is in bytes, times are in seconds, and the link is a worker's link.
"""

import math
from dataclasses import dataclass

from innet.errors import UsageError
from innet.model.links import LinkModel


@dataclass(frozen=True)
class SlotParameters:
    """The limits of the slot protocol: see docs/slot-protocol.md."""

    slots: int = 512
    """Chunks in flight."""
    lanes: int = 256
    """Elements of 4 bytes in a packet."""
    header: int = 70
    """Bytes of a frame before the lanes: Ethernet, IPv4, UDP, innet."""

    @property
    def frame(self) -> int:
        """Return the bytes of a frame."""
        return self.header + 4 * self.lanes

    def chunks(self, n: float) -> int:
        """Return the number of packets for n bytes."""
        return max(1, math.ceil(n / (4 * self.lanes)))


def ring(p: int, n: float, link: LinkModel, segments: int = 1) -> float:
    """Return the time of a ring all-reduce: Li et al., equation (5), and (6) with L `segments`.

    2 (p-1) L α + 2 (p-1)/p n β + (p-1)/p n γ + L S
    """
    share = (p - 1) / p * n
    latency = segments * (2 * (p - 1) * link.alpha + link.sync)
    return latency + 2 * share * link.beta + share * link.gamma


def server(p: int, n: float, link: LinkModel) -> float:
    """Return the time of a parameter server that serves one worker after the other.

    It is 2 p (α + n β) + p n γ + S. You et al., section 6.1.1, have P (α + |W| β) each way, which
    is linear in p.
    """
    return 2 * p * (link.alpha + n * link.beta) + p * n * link.gamma + link.sync


def tree(p: int, n: float, link: LinkModel) -> float:
    """Return the time up and down a binomial tree: ceil(log2 p) (2 (α + n β) + n γ) + S.

    You et al., section 6.1.1, have log P (α + |W| β) each way.
    """
    depth = math.ceil(math.log2(p))
    return depth * (2 * (link.alpha + n * link.beta) + n * link.gamma) + link.sync


def doubling(p: int, n: float, link: LinkModel) -> float:
    """Return the time of recursive doubling, for small vectors: ceil(log2 p) (α + n β + n γ) + S.

    Thakur, Rabenseifner and Gropp, "Optimization of Collective Communication Operations in MPICH",
    2005, section 4.5.
    """
    steps = math.ceil(math.log2(p))
    return steps * (link.alpha + n * (link.beta + link.gamma)) + link.sync


def switch(n: float, link: LinkModel, slots: SlotParameters, hops: int = 1) -> float:
    """Return the time of an all-reduce in the switch, for any number of workers. Exact without loss.

    Chunks go out and come back at the same time. A chunk's round trip over `hops` links each way,
    store and forward, is R = 2 hops (α + f β) with f bytes per frame. A worker sends a frame every
    f β. If all s slots are in flight before the first result is back, it sends s frames every R
    instead. With c chunks, of which r + 1 are in the last round, the time without S is::

        (c - 1) f β + R                    if s f β >= R
        floor((c - 1) / s) R + r f β + R   else
    """
    if hops < 1:
        raise UsageError(f"{hops} hops: give at least 1")
    frame = slots.frame * link.beta
    chunks = slots.chunks(n)
    round_trip = 2 * hops * (link.alpha + frame)
    if slots.slots * frame >= round_trip:
        return (chunks - 1) * frame + round_trip + link.sync
    rounds, rest = divmod(chunks - 1, slots.slots)
    return (rounds + 1) * round_trip + rest * frame + link.sync


def hierarchy(n: float, link: LinkModel, slots: SlotParameters) -> float:
    """Return the time through rack switches below a root switch, with the same kind of link everywhere.

    A rack's switch sends one frame up for every frame that each of its workers sends. So the links
    between switches carry as much as a worker's link. A round trip takes twice as long.
    """
    return switch(n, link, slots, hops=2)
