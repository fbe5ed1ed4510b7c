"""Every float of every key belongs to one chunk, and chunks are shared evenly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.errors import UsageError
from innet.pbox.placement import FLOAT_BYTES, place

SIZES = st.lists(st.integers(1, 5000), min_size=1, max_size=40)
CORES = st.lists(st.integers(1, 5), min_size=1, max_size=4)
CHUNK_BYTES = st.integers(16, 400).map(lambda floats: floats * FLOAT_BYTES)


@given(SIZES, CORES, CHUNK_BYTES)
def test_every_float_is_in_one_chunk(sizes, cores, chunk_bytes):
    placed = place(sizes, cores, chunk_bytes)
    for key, size in enumerate(sizes):
        covered = np.zeros(size, int)
        for chunk in np.flatnonzero(placed.key == key):
            covered[placed.offset[chunk] : placed.offset[chunk] + placed.length[chunk]] += 1
        assert (covered == 1).all()
    assert placed.length.min() >= 1
    assert placed.length.max() * FLOAT_BYTES <= chunk_bytes
    of_cores = [placed.of_core(core) for core in range(sum(cores))]
    assert sorted(np.concatenate(of_cores)) == list(range(len(placed.key)))


@given(SIZES, CORES, CHUNK_BYTES)
def test_no_two_cores_differ_by_more_than_a_chunk(sizes, cores, chunk_bytes):
    placed = place(sizes, cores, chunk_bytes)
    loads = np.bincount(placed.core, placed.length, sum(cores)) * FLOAT_BYTES
    assert loads.max() - loads.min() <= placed.length.max() * FLOAT_BYTES
    servers = np.add.reduceat(loads, np.cumsum([0, *cores[:-1]])) / cores
    assert servers.max() - servers.min() <= placed.length.max() * FLOAT_BYTES


@given(SIZES, CORES, CHUNK_BYTES)
def test_both_sides_come_to_the_same(sizes, cores, chunk_bytes):
    one, other = (place(sizes, cores, chunk_bytes) for _ in range(2))
    for name in ("key", "offset", "length", "core"):
        assert (getattr(one, name) == getattr(other, name)).all()


def test_neighbours_in_a_key_go_to_different_servers():
    placed = place([8 * 8192], [2, 2])
    assert placed.core.tolist() == [0, 2, 1, 3, 0, 2, 1, 3]


@pytest.mark.parametrize(
    ("sizes", "chunk_bytes", "why"),
    [
        ([], 32768, "at least one key"),
        ([5, 0], 32768, "at least one float"),
        ([5], 0, "chunks of 0 bytes"),
        ([5], 1001, "chunks of 1001 bytes"),
        ([1 << 40], 64, "choose larger ones"),
    ],
)
def test_what_cannot_be_placed_is_refused(sizes, chunk_bytes, why):
    with pytest.raises(UsageError, match=why):
        place(sizes, [1], chunk_bytes)
