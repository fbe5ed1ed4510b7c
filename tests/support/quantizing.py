"""Sums of quantized integers, as a switch makes them."""

import numpy as np
from hypothesis import strategies as st

from innet.host.limbs import overflow_flags
from innet.host.quantizers.interface import Quantizer
from innet.host.quantizers.rounding import Stochastic, nearest
from innet.host.quantizers.spec import QuantizerSpec, most_workers

INT32 = np.iinfo(np.int32)


LANES = 3


quantizer_names = st.sampled_from(["int32", "int16", "int8", "int16+stochastic", "int8+stochastic"])


def usable(spec: QuantizerSpec, workers: int) -> int:
    """Return the number of workers, limited to the quantizer's maximum."""
    return min(workers, most_workers(8)) if spec.name == "int8" else workers


def rows_of(values: np.ndarray, quantizer: Quantizer, lanes: int = LANES) -> np.ndarray:
    return quantizer.rows(values, lanes)


def all_reduce(
    gradient: np.ndarray,
    spec: QuantizerSpec,
    *,
    mean: bool = True,
    agreeing: np.ndarray | None = None,
    contributing: np.ndarray | None = None,
    lanes: int = LANES,
) -> np.ndarray:
    """Return the result of summing integers as the switch does, which must never saturate.

    `agreeing` and `contributing`, (workers,) bool, are the workers in the scales and in the sum.
    """
    workers, elements = gradient.shape
    everybody = np.ones(workers, bool)
    agreeing = everybody if agreeing is None else agreeing
    contributing = everybody if contributing is None else contributing
    quantizer = spec.bind(workers)
    rows = [rows_of(each, quantizer, lanes) for each in gradient]
    own = [quantizer.scales(each) for each in rows]
    agreed = np.max([each for each, is_in in zip(own, agreeing, strict=True) if is_in], axis=0)
    total, flags = 0, 0
    for rank in np.flatnonzero(contributing):
        rounding = Stochastic.of(1, int(rank), 0) if spec.stochastic else nearest
        before = rows[rank].copy()
        integers, flagged = quantizer.quantize(rows[rank], own[rank], agreed, rounding)
        assert before.tobytes() == rows[rank].tobytes()
        assert integers.dtype == np.int32
        assert not overflow_flags(integers, workers).any()
        total, flags = total + integers.astype(np.int64), flags | flagged
        assert ((total > INT32.min) & (total < INT32.max)).all()
    counts = np.full((len(total), 1), contributing.sum(), np.uint16)
    got = quantizer.dequantize(total.astype(np.int32), counts, agreed, flags, mean=mean)
    assert got.dtype == np.float32
    return got.reshape(-1)[:elements]
