"""Shared exchanges: workers that have a result give it to those that lack it, as a maximum.

A worker with the result contributes its lanes, and behind them the members and counts of every
chunk. A worker without it contributes the smallest integers.

Private sums have no maximum. There the workers first tell who has the result. Then the first of
those contributes it to a sum, and all others contribute zeros.
"""

import numpy as np

from innet.host.integers import Flags, Integers, Reduction

_SMALLEST = np.iinfo(np.int32).min
_MEMBERS = 2  # the integers of a bitmap


def with_result(result: Reduction) -> tuple[Integers, Flags]:
    """Return the contribution of a worker that has the result."""
    chunks, lanes = result.lanes.shape
    further = np.zeros((_further_chunks(chunks, lanes), lanes), np.int32)
    members, counts = _parts(further, chunks)
    members[:] = result.members.view(np.int32)
    counts[:] = result.counts
    flags = np.concatenate([result.flags, np.zeros(len(further), np.uint16)])
    return np.concatenate([result.lanes, further]), flags


def without_result(chunks: int, lanes: int) -> tuple[Integers, Flags]:
    """Return the contribution of a worker that lacks the result of so many chunks."""
    rows = chunks + _further_chunks(chunks, lanes)
    return np.full((rows, lanes), _SMALLEST, np.int32), np.zeros(rows, np.uint16)


def result_in(shared: Reduction, chunks: int) -> Reduction:
    """Return the result that other workers have shared."""
    members, counts = _parts(shared.lanes[chunks:], chunks)
    return Reduction(
        shared.lanes[:chunks],
        shared.flags[:chunks],
        counts.astype(np.uint16),
        members.copy().view(np.uint64),
    )


def roll(lanes: int, rank: int, *, has: bool) -> tuple[Integers, Flags]:
    """Return a worker's contribution to the roll of those that have the result."""
    chunk = np.zeros((1, lanes), np.int32)
    chunk[0, rank] = has
    return chunk, np.zeros(1, np.uint16)


def giver(rolled: Reduction) -> int:
    """Return the first rank that has the result."""
    return int(rolled.lanes[0].argmax())


def nothing(chunks: Integers, flags: Flags) -> tuple[Integers, Flags]:
    """Return zeros of the shape of a contribution."""
    return np.zeros_like(chunks), np.zeros_like(flags)


def has_result(contribution: Integers) -> bool:
    """Return whether a contribution to a shared exchange is that of a worker with the result."""
    return bool(contribution[-1, -1] != _SMALLEST)


def _further_chunks(chunks: int, lanes: int) -> int:
    """Return the number of further chunks that carry the members and counts of `chunks` chunks."""
    return -(-(_MEMBERS + 1) * chunks // lanes)


def _parts(further: Integers, chunks: int) -> tuple[Integers, Integers]:
    """Return the places of members and counts in further chunks."""
    flat = further.reshape(-1)
    behind = _MEMBERS * chunks
    return flat[:behind], flat[behind : behind + chunks]
