"""The contributors at the switches of a job: which ranks stand behind a bit of a bitmap.

A bit stands for a contributor at the switch that has sent the packet: an attached worker, or all
workers below a switch. In a tree, PENDING packets also come from the switches above the worker's
own. Each switch on the way up sets a bit that the others do not set, its level bit. A result has the
bits of the highest switch.
"""

from collections.abc import Iterator
from functools import cached_property, lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from innet.host.integers import Bits
from innet.host.job import Term
from innet.host.window import Indices
from innet.rpc import innet_pb2 as pb
from innet.wire.layout import MOST_CONTRIBUTORS

_Ranks = frozenset[int]
_MOST_ANSWERS = 1024  # whose missing ranks are remembered: a term may last for weeks


class Contributors:
    """The contributors in a term. Without a description by the controller, every bit is a rank.

    `in_tree` tells whether the job has several switches.
    """

    def __init__(self, term: Term, workers: int) -> None:
        switches = term.bitmaps.switches if term.bitmaps else [_one_switch(term, workers)]
        self.in_tree, self._workers = term.bitmaps is not None, workers
        self._size = max(1, switches[0].slots)
        self._level_bits = 0
        self._bits: dict[tuple[int, int], list[_Ranks]] = {}
        for each in switches:
            self._level_bits |= each.level_bit
            piece = (each.first_slot - term.first_slot) // self._size
            self._bits[piece, each.level_bit] = [*map(_ranks, each.contributors)]
        self._missing = lru_cache(_MOST_ANSWERS)(self._ranks_missing)

    @cached_property
    def bits(self) -> Bits | None:
        """Return the bit that stands for each rank in a result, (workers,), or None if it is the rank.

        The highest switch makes the results. If there are several highest switches, they have the same
        bits. A rank without a bit gets MOST_CONTRIBUTORS, which is the number of no bit.
        """
        if not self.in_tree:
            return None
        bits = np.full(self._workers, MOST_CONTRIBUTORS, np.uint8)
        for bit, ranks in enumerate(self._bits.get((0, 0), [])):
            bits[[*ranks]] = bit
        bits.setflags(write=False)
        return bits

    def from_below(self, bitmaps: npt.NDArray[Any]) -> npt.NDArray[np.bool_]:
        """Return which PENDING packets come from a switch that has others above it."""
        found: npt.NDArray[np.bool_] = bitmaps & np.uint64(self._level_bits) != 0
        return found

    def missing(self, slots: Indices, bitmaps: npt.NDArray[Any]) -> Iterator[_Ranks]:
        """Yield the ranks that each different answer lacks. `slots` count from 0."""
        if not slots.size:
            return
        pieces = slots // self._size
        # A set: numpy's `unique` of pairs takes many times as long for the few answers of a batch.
        answers = {*zip(pieces.tolist(), np.asarray(bitmaps, np.uint64).tolist(), strict=True)}
        for piece, bitmap in sorted(answers):
            yield self._missing(piece, bitmap)

    def _ranks_missing(self, piece: int, bitmap: int) -> _Ranks:
        bits = self._bits.get((piece, bitmap & self._level_bits), [])
        lacking = [ranks for bit, ranks in enumerate(bits) if not bitmap >> bit & 1]
        return frozenset().union(*lacking)


def _one_switch(term: Term, workers: int) -> pb.SwitchBits:
    ranks = [pb.Contributor(ranks=[pb.RankRange(first=rank, count=1)]) for rank in range(workers)]
    return pb.SwitchBits(first_slot=term.first_slot, slots=term.slots, contributors=ranks)


def _ranks(contributor: pb.Contributor) -> _Ranks:
    return frozenset(
        rank for each in contributor.ranks for rank in range(each.first, each.first + each.count)
    )
