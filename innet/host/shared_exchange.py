"""Shared exchanges: workers that have a result give it to those that lack it, as a maximum.

A worker with the result contributes its lanes, and behind them the members and counts of every
chunk and each rank's bit among the members. A worker without it contributes the smallest integers.

Private sums have no maximum. There the workers first tell who has the result. Then the first of
those contributes it to a sum, and all others contribute zeros.
"""

import numpy as np

from innet.host.integers import Flags, Integers, Reduction
from innet.wire.layout import MOST_CONTRIBUTORS

_SMALLEST = np.iinfo(np.int32).min
_MEMBERS = 2  # the integers of a bitmap


def with_result(result: Reduction, workers: int) -> tuple[Integers, Flags]:
    """Return the contribution of a worker that has the result, in a job of `workers`."""
    chunks, lanes = result.lanes.shape
    further = np.zeros((_further_chunks(chunks, lanes, workers), lanes), np.int32)
    members, counts, bits = _parts(further, chunks, workers)
    members[:] = result.members.view(np.int32)
    counts[:] = result.counts
    bits[:] = np.arange(workers) if result.bits is None else result.bits
    flags = np.concatenate([result.flags, np.zeros(len(further), np.uint16)])
    return np.concatenate([result.lanes, further]), flags


def without_result(chunks: int, lanes: int, workers: int) -> tuple[Integers, Flags]:
    """Return the contribution of a worker that lacks the result of `chunks` chunks."""
    rows = chunks + _further_chunks(chunks, lanes, workers)
    return np.full((rows, lanes), _SMALLEST, np.int32), np.zeros(rows, np.uint16)


def result_in(shared: Reduction, chunks: int, workers: int) -> Reduction:
    """Return the result that other workers have shared."""
    members, counts, bits = _parts(shared.lanes[chunks:], chunks, workers)
    return Reduction(
        shared.lanes[:chunks],
        shared.flags[:chunks],
        counts.astype(np.uint16),
        members.copy().view(np.uint64),
        bits=np.minimum(bits, MOST_CONTRIBUTORS).astype(np.uint8),
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


def _further_chunks(chunks: int, lanes: int, workers: int) -> int:
    """Return the number of further chunks that carry members, counts and bits for `chunks` chunks."""
    return -(-((_MEMBERS + 1) * chunks + workers) // lanes)


def _parts(further: Integers, chunks: int, workers: int) -> tuple[Integers, Integers, Integers]:
    """Return the places of members, counts and bits in further chunks."""
    flat = further.reshape(-1)
    behind = _MEMBERS * chunks
    counts, bits = flat[behind : behind + chunks], flat[behind + chunks :]
    return flat[:behind], counts, bits[:workers]
