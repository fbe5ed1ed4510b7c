"""Seconds that collectives take, through switches and over Gloo.

Through switches every collective is one or two all-reduces (innet/host/moves.py, docs/pytorch.md).
The workers first agree on the call and, for floats, on scales. A sum of which each worker keeps a
part costs as much as the whole sum. Where workers have nothing to send, they send zeros.

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
"""The most packets in which small vectors of all workers are gathered."""
_LANE = 4

_SUMS = ("all-reduce", "reduce-scatter", "reduce")
COLLECTIVES = (*_SUMS, "all-gather", "broadcast", "barrier")


def exchanges(collective: str, p: int, n: float, slots: SlotParameters) -> tuple[int, ...]:
    """Return the packets of each all-reduce that a worker makes, one after the other.

    Vectors are of float32. Raises UsageError for an unknown collective.
    """
    if collective not in COLLECTIVES:
        raise UsageError(f"collective {collective!r}: choose one of {', '.join(COLLECTIVES)}")
    if collective == "barrier":
        return (1,)
    own = n / p if collective == "all-gather" else n
    each = (slots.lanes - WORDS) // p  # lanes of a packet for the values of one worker
    values = math.ceil(own / _LANE)
    if values <= _GATHERED * each:
        return (max(1, math.ceil(values / each)),)
    if collective in _SUMS:
        chunks = slots.chunks(n)
        return (math.ceil((chunks + WORDS) / slots.lanes), chunks)
    return (1, p * slots.chunks(own)) if collective == "all-gather" else (1, slots.chunks(n))


def through_switches(
    collective: str, p: int, n: float, link: LinkModel, slots: SlotParameters, levels: int = 1
) -> float:
    """Return the time through a tree of so many levels of switches. Raises UsageError."""
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
