"""The meetings of a node's workers: they wait for each other in shared memory.

At each meeting, every worker writes into the memory what it brings, and takes a token from an eventfd.
There is one token less than workers. The worker that finds none is the last. It puts the tokens back, and
writes to another eventfd, the meeting's signal, of which each of the others reads its share.

Two meetings take turns, each with words and a signal of its own. Two are enough. Nobody comes to a
meeting before all have come to the one before, and everybody reads its share of that one's signal first.
"""

import mmap
import os
import struct
from collections.abc import Iterator, Sequence

_TURNS = 2
_LINE = 64  # bytes of a cache line, so that workers do not write to the same one
_WORDS = struct.Struct("=4q")  # the meeting's number, and what a worker brings
DESCRIPTORS = 1 + _TURNS
"""The number of descriptors that a node's meetings need."""


class Meetings:
    """The meetings of so many `workers`, of which this one has the position `index`.

    Their words are at the start of the memory `shared`. The `files` are those of :func:`descriptors`.
    `complete` tells whether all workers are known to have come to the present meeting. Its signal is
    ``signals[turn]``, a descriptor that can be read when all have come.
    """

    def __init__(self, shared: mmap.mmap, workers: int, index: int, files: Sequence[int]) -> None:
        self._shared, self._others, self._index = shared, workers - 1, index
        self._tokens, *self.signals = files
        self._lines = [
            [(turn * workers + each) * _LINE for each in range(workers)] for turn in range(_TURNS)
        ]
        self._number = self.turn = 0
        self.complete = True

    def arrive(self, *brought: int) -> None:
        """Come to the next meeting, with three numbers. The last worker to come signals to the others."""
        self._number += 1
        self.turn = self._number % _TURNS
        own = self._lines[self.turn][self._index]
        _WORDS.pack_into(self._shared, own, self._number, *brought)
        try:
            os.eventfd_read(self._tokens)
            self.complete = False
        except BlockingIOError:
            os.eventfd_write(self._tokens, self._others)
            self._signal()
            self.complete = True

    def look(self) -> bool:
        """Return whether all workers have come."""
        if not self.complete:
            try:
                os.eventfd_read(self.signals[self.turn])
                self.complete = True
            except BlockingIOError:
                pass
        return self.complete

    @property
    def alike(self) -> bool:
        """Return whether all workers have brought the same."""
        shared, size = self._shared, _WORDS.size
        return len({shared[at : at + size] for at in self._lines[self.turn]}) == 1

    def has(self, index: int) -> bool:
        """Return whether a worker has come."""
        number, *_ = _WORDS.unpack_from(self._shared, self._lines[self.turn][index])
        return bool(number == self._number)

    def close(self) -> None:
        """Close the descriptors."""
        descriptors = [self._tokens, *self.signals]
        self._tokens, self.signals = -1, [-1] * _TURNS  # nobody uses the numbers of other files
        for each in descriptors:
            if each >= 0:
                os.close(each)

    def _signal(self) -> None:
        os.eventfd_write(self.signals[self.turn], self._others)


def memory_size(workers: int) -> int:
    """Return the bytes of memory for the meetings of so many workers, whole pages."""
    return -(-_TURNS * workers * _LINE // mmap.PAGESIZE) * mmap.PAGESIZE


def descriptors(workers: int) -> Iterator[int]:
    """Make and yield the eventfds of so many workers' meetings: one for tokens, and the signals."""
    for content in (workers - 1, *[0] * _TURNS):
        yield os.eventfd(content, os.EFD_SEMAPHORE | os.EFD_NONBLOCK | os.EFD_CLOEXEC)
