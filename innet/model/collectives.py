"""Seconds that collectives take, through switches and over Gloo.

Through switches every collective is a sum or a maximum of chunks (innet/host/portioned.py). The workers
first agree on the call and, for floats, on scales. Packets omit the lanes that nobody needs. So a
reduce-scatter fills a link's way up only, and an all-gather the way down. Each takes as long as an
all-reduce, but both at once take hardly longer than one. The last chunk goes alone, which takes a
round trip.

n is the size of the whole vector in bytes: what all workers have together after an all-gather, and
what each has before a reduce-scatter.
"""

import math
from collections.abc import Callable

from innet.errors import UsageError
from innet.model import all_reduce
from innet.model.all_reduce import SlotParameters
from innet.model.links import LinkModel

WORDS = 4
"""Lanes at the beginning of an exchange that show whether all workers make the same call."""
_GATHERED = 4
"""A vector is small if its values fit into this many packets, with room for every worker's values."""
_LANE = 4

_SUMS = ("all-reduce", "reduce-scatter", "reduce")
COLLECTIVES = (*_SUMS, "all-gather", "broadcast", "barrier")


def exchanges(collective: str, p: int, n: float, slots: SlotParameters) -> tuple[int, ...]:
    """Return the packets of each exchange of a worker, one after the other.

    Vectors are of float32. Raises UsageError for an unknown collective.
    """
    if collective not in COLLECTIVES:
        raise UsageError(f"collective {collective!r}: choose one of {', '.join(COLLECTIVES)}")
    if collective == "barrier":
        return (1,)
    own = n / p if collective == "all-gather" else n
    each = (slots.lanes - WORDS) // p  # lanes of a packet for the values of one worker
    values = math.ceil(own / _LANE)
    if each > 0 and values <= _GATHERED * each:
        return (max(1, math.ceil(values / each)),)
    chunks = slots.chunks(n)
    agreement = math.ceil((chunks + WORDS) / slots.lanes) if collective in _SUMS else 1
    if collective == "all-reduce" or chunks == 1:
        return (agreement, chunks)
    return (agreement, chunks - 1, 1)


def lane_shares(collective: str, p: int) -> tuple[float, float]:
    """Return the share of a vector whose lanes go up a link, and down: the mean over the workers."""
    one = 1 / p
    shares = {
        "reduce-scatter": (1.0, one),
        "reduce": (1.0, one),
        "all-gather": (one, 1.0),
        "broadcast": (one, 1 - one),
    }
    return shares.get(collective, (1.0, 1.0))


def link_bytes(collective: str, p: int, n: float, slots: SlotParameters) -> tuple[float, float]:
    """Return the bytes of frames that go up a worker's link, and down: the mean over the workers.

    Raises UsageError for an unknown collective.
    """
    agreement, *sums = exchanges(collective, p, n, slots)
    lanes = slots.frame - slots.header
    up, down = (
        agreement * slots.frame + sum(sums) * (slots.header + share * lanes)
        for share in lane_shares(collective, p)
    )
    if len(sums) > 1:  # everybody receives the last chunk's lanes
        down += (1 - lane_shares(collective, p)[1]) * lanes
    return up, down


def through_switches(
    collective: str, p: int, n: float, link: LinkModel, slots: SlotParameters, levels: int = 1
) -> float:
    """Return the time through a tree with `levels` levels of switches.

    Raises UsageError for an unknown collective.
    """
    packet = _LANE * slots.lanes
    return sum(
        all_reduce.switch(packet * chunks, link, slots, hops=levels)
        for chunks in exchanges(collective, p, n, slots)
    )


def over_gloo(collective: str, p: int, n: float, link: LinkModel) -> float:
    """Return the time of Gloo's algorithm: rings, and trees for a broadcast and a barrier.

    The all-reduce is equation (5) of Li et al. Its two halves are the reduce-scatter and the
    all-gather. A reduce is a reduce-scatter whose parts the root then gathers over its one link. A
    broadcast goes down a binomial tree, and a barrier is a dissemination barrier (gloo/reduce.cc,
    broadcast.cc, barrier.cc). Raises UsageError for an unknown collective.
    """
    if collective not in COLLECTIVES:
        raise UsageError(f"collective {collective!r}: choose one of {', '.join(COLLECTIVES)}")
    return _GLOO[collective](p, n, link)


def _reduce_scatter(p: int, n: float, link: LinkModel) -> float:
    share = (p - 1) / p * n
    return (p - 1) * link.alpha + share * (link.beta + link.gamma) + link.sync


def _all_gather(p: int, n: float, link: LinkModel) -> float:
    return (p - 1) * link.alpha + (p - 1) / p * n * link.beta + link.sync


def _reduce(p: int, n: float, link: LinkModel) -> float:
    return _reduce_scatter(p, n, link) + link.alpha + (p - 1) / p * n * link.beta


def _broadcast(p: int, n: float, link: LinkModel) -> float:
    return math.ceil(math.log2(p)) * (link.alpha + n * link.beta) + link.sync


def _barrier(p: int, n: float, link: LinkModel) -> float:
    del n
    return math.ceil(math.log2(p)) * link.alpha + link.sync


_GLOO: dict[str, Callable[[int, float, LinkModel], float]] = {
    "all-reduce": all_reduce.ring,
    "reduce-scatter": _reduce_scatter,
    "reduce": _reduce,
    "all-gather": _all_gather,
    "broadcast": _broadcast,
    "barrier": _barrier,
}
