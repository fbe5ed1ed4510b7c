"""Large arrays in recycled memory.

The kernel clears new memory of a process page by page. With new vectors of many MiB for every
all-reduce, that takes as long as all computation on them.
"""

import contextlib
import math
import mmap
import weakref
from collections import deque
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

Scalar = TypeVar("Scalar", bound=np.generic)

_LARGE = 1 << 18  # bytes; below it the allocator's own pools serve
_KEPT = 8  # blocks: as many as two exchanges use at once
_WASTE = 2  # largest ratio of a block's size to the wanted size
_PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS  # private: a forked process writes to its own copy

# Appending and removing must be atomic, and are: arrays are released in any thread, at any time.
_free: deque[mmap.mmap] = deque(maxlen=_KEPT)


def empty(shape: tuple[int, ...], dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """Return an array as :func:`numpy.empty` does; its memory is recycled when no view of it is left."""
    count = math.prod(shape)
    size = count * np.dtype(dtype).itemsize
    if size < _LARGE:
        return np.empty(shape, dtype)
    block = _take(size) or _new(size)
    # Views refer to this array, not to the block. So the array lives until the last view is gone.
    array = np.frombuffer(block, dtype, count)
    weakref.finalize(array, _free.append, block).atexit = False
    return array.reshape(shape)


def copy(values: npt.NDArray[Any], dtype: type[Scalar]) -> npt.NDArray[Scalar]:
    """Return a copy of the values as an array of `dtype`, which must hold them, in recycled memory."""
    made = empty(values.shape, dtype)
    np.copyto(made, values, casting="same_kind")
    return made


def _new(size: int) -> mmap.mmap:
    """Return new memory, in huge pages if the kernel has them: it takes long to find many small pages."""
    block = mmap.mmap(-1, size, _PRIVATE)
    with contextlib.suppress(OSError):
        block.madvise(mmap.MADV_HUGEPAGE)
    return block


def _take(size: int) -> mmap.mmap | None:
    """Return a free block that fits, or None.

    Blocks are taken out to be looked at. The garbage collector may release another one at any moment,
    and an iteration would fail then.
    """
    for _ in range(len(_free)):
        try:
            block = _free.popleft()
        except IndexError:  # another thread was faster
            return None
        if size <= len(block) <= _WASTE * size:
            return block
        _free.append(block)
    return None
