"""Pads cancel in the sum of all workers, and in no other; every place has pads of its own."""

from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from innet.host.pads import KEY_BYTES, Pads, PadUsedTwice

KEY = bytes(range(KEY_BYTES))
LANES = 64
PLACES = [(1, 5, 0), (2, 5, 0), (1, 6, 0), (1, 5, 1), (5, 1, 0)]


def covers(key: bytes, chunks: np.ndarray, place: tuple[int, int, int] = (1, 0, 0)) -> np.ndarray:
    """Return the padded contributions of all workers, (workers, n, lanes)."""
    workers = range(len(chunks))
    covered = [Pads(key, rank, len(chunks)).cover(*place, chunks[rank]) for rank in workers]
    return np.stack([each.chunks for each in covered])


@given(st.integers(1, 32), st.integers(1, 3000), st.integers(0, 99))
def test_every_worker_takes_the_sum_of_all_pads_off(workers, rows, seed):
    info = np.iinfo(np.int32)
    chance = np.random.default_rng(seed)
    chunks = chance.integers(info.min, info.max, (workers, rows, 4), np.int32, endpoint=True)
    sums = covers(KEY, chunks).sum(0, np.int32)
    for rank in {0, workers // 2, workers - 1}:
        found = sums.copy()
        Pads(KEY, rank, workers).cover(1, 0, 0, chunks[rank]).uncover(found, 0)
        np.testing.assert_array_equal(found, chunks.sum(0, np.int32))
        part = sums[rows // 3 :].copy()
        Pads(KEY, rank, workers).cover(1, 0, 0, chunks[rank]).uncover(part, rows // 3)
        np.testing.assert_array_equal(part, chunks.sum(0, np.int32)[rows // 3 :])


def test_a_sum_of_other_workers_is_noise():
    workers, rows = 4, 200
    zeros = np.zeros((workers, rows, LANES), np.int32)
    alone = covers(KEY, zeros)
    partial = [
        alone[list(ranks)].sum(0, np.int32)
        for count in range(1, workers + 1)
        for ranks in combinations(range(workers), count)
    ]
    assert len(partial) == 2**workers - 1
    lanes = np.stack(partial).reshape(len(partial), -1)
    # No two partial sums, that of all workers among them, agree in more lanes than chance allows.
    for one, other in combinations(lanes, 2):
        assert np.count_nonzero(one == other) < 3
    bits = np.unpackbits(lanes.view(np.uint8), axis=1).mean(axis=1)
    assert np.abs(bits - 0.5).max() < 5 * 0.5 / np.sqrt(32 * rows * LANES)


@pytest.mark.parametrize(("one", "other"), list(combinations(PLACES, 2)))
def test_each_place_has_pads_of_its_own(one, other):
    zeros = np.zeros((3, 50, LANES), np.int32)
    lanes = [covers(KEY, zeros, place).reshape(-1) for place in (one, other)]
    assert np.intersect1d(*lanes).size < 10  # of 9600


def test_another_session_has_other_pads():
    zeros = np.zeros((3, 50, LANES), np.int32)
    lanes = [covers(key, zeros).reshape(-1) for key in (KEY, KEY[::-1])]
    assert np.intersect1d(*lanes).size < 10


def test_the_first_chunk_can_be_uncovered_before_the_others_are_there():
    chunks = np.arange(2 * 3 * LANES, dtype=np.int32).reshape(2, 3, LANES)
    seen = []
    sums = covers(KEY, chunks).sum(0, np.int32)
    show = Pads(KEY, 1, 2).cover(1, 0, 0, chunks[1]).showing(seen.append)
    padded = sums[0].copy()
    show(padded)
    np.testing.assert_array_equal(seen[0], chunks[:, 0].sum(0))
    np.testing.assert_array_equal(padded, sums[0])


def test_no_place_is_used_twice():
    pads, chunks = Pads(KEY, 0, 2), np.zeros((1, LANES), np.int32)
    for place in ((1, 8, 0), (1, 9, 0), (2, 9, 0), (2, 8, 1), (2, 8, 2)):
        pads.cover(*place, chunks)
    for place in ((2, 9, 0), (2, 8, 1)):
        with pytest.raises(PadUsedTwice):
            pads.cover(*place, chunks)
