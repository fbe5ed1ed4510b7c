"""Large arrays in memory that is used again.

The kernel clears what a process has not had before, page by page. For vectors of many MiB, new ones for
every all-reduce, that takes as long as all that is computed with them.
"""

import math
import mmap
import weakref
from collections import deque
from typing import TypeVar

import numpy as np
import numpy.typing as npt

Scalar = TypeVar("Scalar", bound=np.generic)

_LARGE = 1 << 18  # bytes; below it the allocator's own pools serve
_KEPT = 8  # blocks: what two exchanges have at once
_WASTE = 2  # how many times larger than wanted a block may be
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # a process that is forked writes to its own copy

# Appending and removing are atomic, as they have to be: arrays are let go in any thread, at any time.
_free: deque[mmap.mmap] = deque(maxlen=_KEPT)


def empty(shape: tuple[int, ...], dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """As :func:`numpy.empty`. The memory serves again when the array and all its views are gone."""
    count = math.prod(shape)
    size = count * np.dtype(dtype).itemsize
    if size < _LARGE:
        return np.empty(shape, dtype)
    block = _take(size) or mmap.mmap(-1, size, _PRIVATE)
    # Views refer to this array, not to the block: its end is theirs.
    array = np.frombuffer(block, dtype, count)
    weakref.finalize(array, _free.append, block).atexit = False
    return array.reshape(shape)


def _take(size: int) -> mmap.mmap | None:
    for block in tuple(_free):
        if size <= len(block) <= _WASTE * size:
            try:
                _free.remove(block)
            except ValueError:  # another thread was faster
                continue
            return block
    return None
