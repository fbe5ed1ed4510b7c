"""Blocks of vectors, bitmaps in words that a switch adds, and the rows of sparse tensors."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from innet.host.blocks import Bitmap, Blocks
from innet.host.limbs import overflow_flags
from innet.host.sparse import Rows, rows_of, tensor_of


@st.composite
def cut_vectors(draw) -> tuple[np.ndarray, Blocks]:
    """Draw a vector with many zeros and some NaNs, and blocks of it."""
    size, width = draw(st.integers(1, 200)), draw(st.integers(1, 70))
    rng = np.random.default_rng(draw(st.integers(0, 999)))
    some = (0, 0, 0, -0.0, 1, -3, np.nan, -np.inf)
    kept = np.repeat(rng.random(-(-size // width)) < draw(st.floats(0, 1)), width)[:size]
    return np.where(kept, rng.choice(some, size), 0).astype(np.float32), Blocks(size, width)


@given(cut_vectors())
def test_blocks_are_those_of_a_list(drawn):
    values, blocks = drawn
    listed = [values[at : at + blocks.width] for at in range(0, values.size, blocks.width)]
    assert blocks.count == len(listed)
    assert blocks.occupied(values).tolist() == [bool((each != 0).any()) for each in listed]
    np.testing.assert_array_equal(blocks.largest(values), [abs(each).max() for each in listed])


@given(cut_vectors())
def test_a_vector_comes_back_from_its_occupied_blocks(drawn):
    values, blocks = drawn
    chosen = np.flatnonzero(blocks.occupied(values))
    packed = blocks.packed(values, chosen)
    assert packed.shape == (len(chosen) * blocks.width,)
    back = blocks.spread(packed, chosen)
    np.testing.assert_array_equal(back, values)


@given(cut_vectors(), st.randoms(use_true_random=False))
def test_what_is_not_chosen_gets_the_rest(drawn, random):
    values, blocks = drawn
    chosen = np.array([n for n in range(blocks.count) if random.random() < 0.5], np.int64)
    back = blocks.spread(blocks.packed(values, chosen), chosen, rest=7)
    inside = np.isin(np.arange(values.size) // blocks.width, chosen)
    np.testing.assert_array_equal(back, np.where(inside, values, 7))


@given(st.integers(1, 32), st.integers(0, 200), st.integers(0, 999))
def test_added_bitmaps_are_ored_and_no_sum_overflows(workers: int, size: int, seed: int):
    rng = np.random.default_rng(seed)
    bits = rng.random((workers, size)) < rng.choice([0.0, 0.1, 1.0])
    bitmap = Bitmap(workers)
    words = [bitmap.words(each) for each in bits]
    assert all(each.shape == (-(-size // bitmap.per_word),) for each in words)
    assert not any(overflow_flags(each.reshape(1, -1), workers).any() for each in words)
    total = np.sum(words, axis=0, dtype=np.int64)
    assert not total.size or 0 <= total.min() <= total.max() < 2**31
    assert bitmap.any(total.astype(np.int32), size).tolist() == bits.any(axis=0).tolist()


@pytest.mark.parametrize(
    ("workers", "fields"), [(1, 31), (2, 15), (3, 15), (4, 10), (7, 10), (8, 7), (31, 6), (32, 5)]
)
def test_a_word_has_as_many_fields_as_fit(workers: int, fields: int):
    assert Bitmap(workers).per_word == fields


SHAPES = [((5,), 1), ((5, 3), 1), ((5, 3), 2), ((4, 3, 2), 2), ((0, 3), 1), ((3, 0), 1)]


@pytest.mark.parametrize(("shape", "sparse_dims"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.int32, torch.int64])
@pytest.mark.parametrize("count", [0, 1, 8])
def test_a_sparse_tensor_comes_back_from_its_rows(shape, sparse_dims, dtype, count):
    generator = torch.Generator().manual_seed(3)
    heads, count = shape[:sparse_dims], count if 0 not in shape[:sparse_dims] else 0
    indices = [torch.randint(0, max(1, size), (count,), generator=generator) for size in heads]
    values = torch.randint(-9, 9, (count, *shape[sparse_dims:]), generator=generator)
    tensor = torch.sparse_coo_tensor(
        torch.stack(indices), values.to(dtype), shape, check_invariants=True
    )
    rows = rows_of(tensor)
    assert (np.diff(rows.positions) > 0).all()
    back = tensor_of(rows, tensor)
    assert (back.shape, back.dtype, back.is_coalesced()) == (tensor.shape, dtype, True)
    assert back.sparse_dim() == sparse_dims
    assert torch.equal(back.to_dense(), tensor.to_dense())
    assert torch.equal(back.indices(), tensor.coalesce().indices())


@given(st.sets(st.integers(0, 20)), st.sets(st.integers(0, 20)))
def test_rows_are_found_and_others_are_zeros(own: set[int], asked: set[int]):
    positions = np.array(sorted(own), np.int64)
    rows = Rows(21, positions, np.stack([positions, positions + 100], axis=1) + 1)
    found = rows.at(np.array(sorted(asked), np.int64))
    assert found.tolist() == [[n + 1, n + 101] if n in own else [0, 0] for n in sorted(asked)]
    assert rows.occupied.tolist() == [n in own for n in range(21)]
