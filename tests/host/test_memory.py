"""Recycled memory of large arrays: it is used again, and never while anybody still holds a view."""

import gc
import os

import numpy as np
import pytest
import torch

from innet.host import memory

SHAPE = (1 << 10, 256)
THRESHOLDS = gc.get_threshold()


@pytest.fixture(autouse=True)
def nothing_left(monkeypatch):
    gc.collect()
    monkeypatch.setattr(memory, "_free", type(memory._free)(maxlen=memory._KEPT))


def address(array: np.ndarray) -> int:
    return array.ctypes.data


def test_an_array_has_the_memory_of_one_that_is_gone():
    first = memory.empty(SHAPE, np.int32)
    place = address(first)
    assert (first.shape, first.dtype, first.flags.c_contiguous) == (SHAPE, np.int32, True)
    del first
    second = memory.empty((300_000,), np.float32)
    assert second.shape == (300_000,)
    assert address(memory.empty(SHAPE, np.int32)) == place, "it is not half as large as the block"


@pytest.mark.parametrize(
    "view",
    [
        lambda a: a[5:9],
        lambda a: a.reshape(-1)[1:].view(np.int32),
        lambda a: a.T,
        torch.from_numpy,
        memoryview,
    ],
)
def test_what_has_views_is_not_given_away(view):
    array = memory.empty(SHAPE, np.float32)
    array[:] = 1
    seen = view(array)
    del array
    other = memory.empty(SHAPE, np.float32)
    other[:] = 2
    assert np.all(np.asarray(seen).view(np.float32) == 1)


class Cycle:
    """An object that only the garbage collector frees, with its array."""

    def __init__(self) -> None:
        self.itself, self.array = self, memory.empty(SHAPE, np.int32)


def test_the_garbage_collector_may_free_an_array_while_memory_is_sought():
    arrays = [memory.empty(SHAPE, np.int32) for _ in range(memory._KEPT)]
    del arrays
    unused = []
    gc.disable()
    try:
        for moment in range(1, 9):
            Cycle()
            # Use up the interpreter's own stock of tuples: a new one may start a collection.
            unused += [tuple([moment] * len(memory._free)) for _ in range(3000)]
            gc.set_threshold(gc.get_count()[0] + moment)
            gc.enable()
            assert memory._take(1 << 30) is None
            gc.disable()
    finally:
        gc.set_threshold(*THRESHOLDS)
        gc.enable()


def test_memory_that_is_kept_has_a_bound():
    arrays = [memory.empty(SHAPE, np.int32) for _ in range(3 * memory._KEPT)]
    del arrays
    gc.collect()
    assert len(memory._free) == memory._KEPT


def test_a_forked_process_has_memory_of_its_own():
    array = memory.empty(SHAPE, np.int32)
    array[:] = 1
    if not (child := os.fork()):
        array[:] = 2
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    assert np.all(array == 1)
