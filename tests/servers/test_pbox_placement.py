"""Every float of every key belongs to one chunk, and chunks are spread evenly."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.errors import UsageError
from innet.servers.pbox.placement import FEWEST_CHUNK_BYTES, FLOAT_BYTES, place

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
        ([1 << 40], 64, "choose larger chunks"),
    ],
)
def test_what_cannot_be_placed_is_refused(sizes, chunk_bytes, why):
    with pytest.raises(UsageError, match=why):
        place(sizes, [1], chunk_bytes)


@given(
    st.lists(st.integers(1, 3000), min_size=1, max_size=8),
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
)
def test_every_chunk_goes_to_the_core_that_has_least(sizes: list[int], cores: list[int]):
    made = place(sizes, cores, FEWEST_CHUNK_BYTES)
    loads = [(0, core, server) for server, count in enumerate(cores) for core in range(count)]
    for chunk in sorted(range(len(made.key)), key=lambda chunk: -made.length[chunk]):
        load, core, server = min(loads)
        assert made.core[chunk] == sum(cores[:server]) + core
        loads.remove((load, core, server))
        loads.append((load + int(made.length[chunk]), core, server))
