"""The compiled work on batches of packets does what numpy does."""

import shutil

import numpy as np
import pytest

from innet.errors import CompilerError
from innet.wire import batch
from innet.wire.check import checks
from innet.wire.layout import HEADER_BYTES, Kind
from innet.wire.records import blank

SHAPES = pytest.mark.parametrize(
    ("packets", "lanes", "front"), [(0, 64, 0), (1, 64, 42), (7, 1, 42), (5, 63, 0), (40, 256, 42)]
)
SMALLEST, LARGEST = -(2**31), 2**31 - 1


@pytest.fixture(params=["C", "C for any processor", "numpy"])
def which_code(request, monkeypatch) -> str:
    """Run the test with compiled code and without. Without -march=native, C has no wide instructions."""
    if request.param == "numpy":
        monkeypatch.setattr(batch, "compiled", lambda: None)
    elif not batch.compiled():
        pytest.skip("there is no C compiler")
    if request.param == "C for any processor":
        monkeypatch.setattr(batch, "FLAGS", [each for each in batch.FLAGS if "march" not in each])
        plain = batch.compiled.__wrapped__()
        monkeypatch.setattr(batch, "compiled", lambda: plain)
    return request.param


def random_packets(packets: int, lanes: int, front: int, seed: int = 1):
    chance = np.random.default_rng(seed)
    records = blank(packets, lanes, Kind.RESULT, chance.bytes(front))
    records["sequence"] = chance.integers(0, 2**32, packets)
    records["lanes"] = chance.integers(SMALLEST, LARGEST, (packets, lanes), endpoint=True)
    return records, chance


@SHAPES
def test_word_sums_are_exact_modulo_2_to_the_64(which_code, packets, lanes, front):
    records, chance = random_packets(packets, lanes, front)
    words = HEADER_BYTES // 4 + lanes
    weights = chance.integers(0, 2**64, words, np.uint64)
    wanted = []
    for record in records:
        content = record.tobytes()[front:]
        numbers = [int.from_bytes(content[at : at + 4]) for at in range(0, len(content), 4)]
        products = zip(numbers, weights.tolist(), strict=True)
        wanted.append(sum(number * weight for number, weight in products) % 2**64)
    assert batch.word_sums(records, weights).tolist() == wanted


@SHAPES
def test_lanes_are_stored_and_loaded_row_by_row(which_code, packets, lanes, front):
    records, chance = random_packets(packets, lanes, front)
    before = records.copy()
    chunks = chance.integers(SMALLEST, LARGEST, (packets + 3, lanes), np.int32, endpoint=True)
    which = chance.permutation(packets + 3)[:packets]
    batch.store_lanes(records, chunks, which)
    assert records["lanes"].tolist() == chunks[which].tolist()
    for field in set(records.dtype.names) - {"lanes"}:
        assert records[field].tobytes() == before[field].tobytes()
    positions = chance.permutation(packets)
    loaded = np.zeros_like(chunks)
    batch.load_lanes(records, positions, loaded, which[positions])
    untouched = np.setdiff1d(np.arange(packets + 3), which)
    assert loaded[which].tolist() == chunks[which].tolist()
    assert not loaded[untouched].any()


def test_checks_are_the_same_with_and_without_a_compiler(monkeypatch):
    records, _ = random_packets(50, 256, 42)
    compiled = checks(records, 0x0A000001, 5000).tolist()
    monkeypatch.setattr(batch, "compiled", lambda: None)
    assert checks(records, 0x0A000001, 5000).tolist() == compiled


@pytest.mark.skipif(not batch.compiled(), reason="there is no C compiler")
def test_c_is_given_nothing_that_it_would_take_for_something_else():
    records, _ = random_packets(3, 64, 42)
    chunks, which = np.zeros((5, 64), np.int32), np.array([0, 4, 2])
    batch.store_lanes(records, chunks, which)
    batch.load_lanes(records, np.array([2, 0, 1]), chunks, which)
    for wrong, rows in (
        (chunks.astype(">i4"), which),
        (chunks.astype(np.int16), which),
        (np.zeros((5, 128), np.int32)[:, ::2], which),
        (np.zeros((5, 65), np.int32), which),
        (chunks, np.array([0, 5, 2])),
        (chunks, np.array([0, -1, 2])),
        (chunks, which.astype(np.int32)),
        (chunks, np.arange(10)[::2][:3]),
        (chunks, np.array([0, 4, 2, 1])),
    ):
        with pytest.raises(AssertionError):
            batch.store_lanes(records, wrong, rows)
        with pytest.raises(AssertionError):
            batch.load_lanes(records, np.array([2, 0, 1]), wrong, rows)
    with pytest.raises(AssertionError):
        batch.load_lanes(records, np.array([3, 0, 1]), chunks, which)
    with pytest.raises(AssertionError):
        batch.word_sums(records, np.zeros(72, np.uint64))


def test_without_a_compiler_numpy_does_it(monkeypatch):
    def missing(*_):
        raise CompilerError("no C compiler found")

    monkeypatch.setattr(batch, "compile_library", missing)
    batch.compiled.cache_clear()
    try:
        assert batch.compiled() is None
    finally:
        monkeypatch.undo()
        batch.compiled.cache_clear()
    assert bool(batch.compiled()) == bool(shutil.which("cc") or shutil.which("gcc"))
