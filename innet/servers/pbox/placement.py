"""The placement of chunks on cores: a pure function that workers and servers both call.

As in PHub (Luo et al., "Parameter Box", 2018, section 2), keys are cut into chunks of 32 KB, and
every chunk belongs to one core.
"""

import heapq
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from innet.errors import UsageError

CHUNK_BYTES = 32 << 10
FEWEST_CHUNK_BYTES, MOST_CHUNK_BYTES = 64, 4 << 20
MOST_CHUNKS = 1 << 22
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Placement:
    """The chunks of all keys, in the order of keys and offsets: arrays of one element per chunk.

    `offset` and `length` are in floats within the key with number `key`. `core` counts through all
    servers: the first server's cores are 0, 1, ...
    """

    key: np.ndarray
    offset: np.ndarray
    length: np.ndarray
    core: np.ndarray

    def of_core(self, core: int) -> np.ndarray:
        """Return the chunks of one core, ascending; their positions are their numbers on the wire."""
        return np.flatnonzero(self.core == core)


def place(sizes: Sequence[int], cores: Sequence[int], chunk_bytes: int = CHUNK_BYTES) -> Placement:
    """Cut keys of `sizes` floats into chunks, and give them to servers that have `cores` each.

    Chunks are given out from the largest to the smallest, each to the core that has least. So no
    two cores differ by more than one chunk. Between equal cores, servers alternate. Raises
    UsageError.
    """
    length = chunk_floats(chunk_bytes)
    counts = [-(-size // length) for size in sizes]
    if min(sizes, default=0) < 1:
        raise UsageError("a job needs at least one key, and a key at least one float")
    if sum(counts) > MOST_CHUNKS:
        raise UsageError(
            f"{sum(counts)} chunks of {chunk_bytes} bytes are more than "
            f"{MOST_CHUNKS}: choose larger chunks"
        )
    key = np.repeat(np.arange(len(sizes)), counts)
    within = np.arange(len(key)) - np.repeat(np.cumsum(counts) - counts, counts)
    offset = within * length
    lengths = np.minimum(np.repeat(np.asarray(sizes, np.int64), counts) - offset, length)
    return Placement(key, offset, lengths, _share(lengths, cores))


def chunk_floats(chunk_bytes: int) -> int:
    """Return how many floats a chunk has at most. Raises UsageError for bytes that it cannot have."""
    if not FEWEST_CHUNK_BYTES <= chunk_bytes <= MOST_CHUNK_BYTES or chunk_bytes % FLOAT_BYTES:
        raise UsageError(
            f"chunks of {chunk_bytes} bytes: they have to be of {FEWEST_CHUNK_BYTES} to "
            f"{MOST_CHUNK_BYTES} bytes, a multiple of {FLOAT_BYTES}"
        )
    return chunk_bytes // FLOAT_BYTES


def _share(lengths: np.ndarray, cores: Sequence[int]) -> np.ndarray:
    first = np.cumsum([0, *cores])
    turns = sorted((core, server) for server, count in enumerate(cores) for core in range(count))
    order = np.argsort(-lengths, kind="stable")
    chosen = np.empty(len(lengths), np.int64)
    # Chunks of full length come first, and nearly all are of full length. They are dealt to the
    # cores in turn, without the heap.
    longest = int(lengths.max())
    full = int(np.count_nonzero(lengths == longest))
    number = np.asarray([first[server] + core for core, server in turns])
    chosen[order[:full]] = number[np.arange(full) % len(turns)]
    rounds, rest = divmod(full, len(turns))
    loads = [
        (longest * (rounds + (turn < rest)), core, server)
        for turn, (core, server) in enumerate(turns)
    ]
    heapq.heapify(loads)
    for chunk in order[full:]:
        load, core, server = loads[0]
        chosen[chunk] = first[server] + core
        heapq.heapreplace(loads, (load + int(lengths[chunk]), core, server))
    return chosen
