"""Floats in C: scaled before an exchange, during it, or after it.

During an exchange :class:`Scaling` makes a row's integers when the row is sent, and its floats as soon
as the sum arrives. So the first packet need not wait for the last number, nor the first result for the
last packet. The integers are kept only if results overwrite the values. Otherwise they are made again
when the row is sent again. The bits are those of :mod:`innet.host.quantizers.fixed_point`.
"""

import ctypes
from functools import cached_property

import numpy as np
import numpy.typing as npt

from innet.host import memory
from innet.host.fastpath import at
from innet.host.integers import Counts, Integers, Reduction
from innet.host.quantizers.packing import Packing
from innet.host.structs import NativeScaling
from innet.wire.layout import Flag

Floats = npt.NDArray[np.float32]


class Scaling:
    """The floats of an exchange, (rows, lanes) float32: its contribution and its result.

    `shape` is that of the floats. There are results for the `wanted` rows, by default for all. A row is
    multiplied by its `up`, (rows,) float32, and rounded to the nearest. Rows that are not `fit`, (rows,)
    bool, become zeros. A sum is divided by its count if a `mean` is wanted, and then multiplied by its
    `down`.

    With `in_place` the results overwrite the values, and all rows have to be wanted. A row's integers are
    then kept when they are sent, since the exchange may have to begin again.
    """

    def __init__(
        self,
        library: ctypes.CDLL,
        values: Floats,
        up: Floats,
        fit: npt.NDArray[np.bool_],
        down: Floats,
        *,
        mean: bool,
        in_place: bool = False,
        wanted: range | None = None,
    ) -> None:
        self._library = library
        self.shape = rows, lanes = values.shape
        self._values, self._up, self._fit = np.ascontiguousarray(values), up, fit
        self.wanted = range(rows) if wanted is None else wanted
        self._results = (
            self._values if in_place else memory.empty((len(self.wanted), lanes), np.float32)
        )
        self._kept = memory.empty(values.shape, np.int32) if in_place else None
        self._is_kept = np.zeros(rows, np.bool_)
        self._done = np.zeros(rows, np.uint8)
        self._down, self._mean = down, mean
        self.native = NativeScaling(
            lanes, at(self._values, np.float32), at(up, np.float32, rows),
            None if self._kept is None else at(self._kept, np.int32),
            at(self._is_kept, np.bool_), at(fit, np.bool_, rows),
            at(down, np.float32, rows), mean, self.wanted.start, len(self.wanted),
            at(self._results, np.float32), at(self._done, np.uint8),
        )  # fmt: skip

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, rows: npt.NDArray[np.int64]) -> Integers:
        """Return the integers of some rows, (len(rows), lanes)."""
        made = memory.empty((len(rows), self.shape[1]), np.int32)
        self.put(rows, made)
        return made

    def put(self, rows: slice | npt.NDArray[np.int64], into: Integers) -> None:
        """Write the integers of some rows into a contiguous array, (rows, lanes)."""
        quantize(self._library, self._values[rows], self._up[rows], self._fit[rows], into)
        if self._kept is not None and (kept := self._is_kept[rows]).any():
            into[kept] = self._kept[rows][kept]

    @cached_property
    def integers(self) -> Integers:
        """The integers of all rows, (rows, lanes)."""
        if self._is_kept.any():
            return self[np.arange(len(self))]
        return quantize(self._library, self._values, self._up, self._fit)

    def forget(self) -> None:
        """Discard all results, because the exchange was broken off."""
        self._done[:] = 0

    def take(self, rows: npt.NDArray[np.int64], sums: Integers, counts: Counts) -> None:
        """Make the results of those wanted rows that have none yet, from their sums, (len(rows), lanes).

        `counts`, (len(rows),), are the numbers of contributions.
        """
        missing = (self._done[rows] == 0) & (self.wanted.start <= rows) & (rows < self.wanted.stop)
        if not missing.any():
            return
        if not missing.all():
            rows, sums, counts = rows[missing], sums[missing], counts[missing]
        self._keep(rows)  # the exchange may still have to begin again
        divisors = counts[:, None] if self._mean else None
        made = dequantize(self._library, sums, self._down[rows], divisors)
        self._results[rows - self.wanted.start] = made
        self._done[rows] = 1

    def finish(self, rows: range, sums: Integers, result: Reduction) -> None:
        """Make the results of consecutive rows from their sums, (len(rows), lanes).

        Of the `result`, this method reads the counts and the flags of these rows. The exchange must not
        begin again, since values are overwritten. Only rows with an overflow keep their integers.
        """
        here = slice(rows.start, rows.stop)
        self._keep(rows.start + np.flatnonzero(result.flags[here] & Flag.OVERFLOW))
        divisors = result.counts[here] if self._mean else None
        wanted = slice(rows.start - self.wanted.start, rows.stop - self.wanted.start)
        dequantize(
            self._library,
            sums,
            self._down[here],
            divisors,
            self._results[wanted],
            len(self._results),
        )
        self._done[here] = 1

    def _keep(self, rows: npt.NDArray[np.int64]) -> None:
        """Keep the integers of rows whose values results will overwrite, if they are not kept yet."""
        if self._kept is None:
            return
        lost = rows[~self._is_kept[rows]]
        if lost.size:
            self._kept[lost], self._is_kept[lost] = self[lost], True

    @property
    def results(self) -> Floats:
        """Return the sums or means of the wanted rows, (rows, lanes). All must have been made."""
        if not self._done[self.wanted.start : self.wanted.stop].all():
            raise AssertionError
        return self._results


Target = Integers | Scaling | None
"""The place of a result's lanes: an array, new memory (None), or the scaling that turns them into floats.

With a scaling, the result has lanes only if they have not come through C.
"""


def integers_of(chunks: Integers | Scaling) -> Integers:
    """Return the integers of a contribution, (chunks, lanes) int32."""
    return chunks.integers if isinstance(chunks, Scaling) else chunks


def put_integers(chunks: Integers | Scaling, rows: slice, into: Integers) -> None:
    """Write some rows of a contribution into a contiguous array, (rows, lanes) int32."""
    if isinstance(chunks, Scaling):
        chunks.put(rows, into)
    else:
        into[:] = chunks[rows]


def largest(library: ctypes.CDLL, values: Floats) -> Floats:
    """Return the largest magnitude of each row of (rows, lanes) float32, (rows,); a NaN is largest."""
    found = np.empty(len(values), np.float32)
    values = np.ascontiguousarray(values)
    library.innet_largest(at(values, np.float32), *values.shape, at(found, np.float32))
    return found


def quantize(
    library: ctypes.CDLL,
    values: Floats,
    scales: Floats,
    fit: npt.NDArray[np.bool_],
    into: Integers | None = None,
) -> Integers:
    """Multiply (rows, lanes) float32 by `scales`, (rows,), and round to int32.

    Rows that are not `fit`, (rows,) bool, become zeros. The result is written `into` a contiguous
    array if one is given.
    """
    values = np.ascontiguousarray(values)
    integers = memory.empty(values.shape, np.int32) if into is None else into
    library.innet_quantize(
        at(values, np.float32), *values.shape, at(scales, np.float32, len(values)),
        at(fit, np.bool_, len(values)), at(integers, np.int32),
    )  # fmt: skip
    return integers


def pack(
    library: ctypes.CDLL,
    values: Floats,
    steps: Floats,
    fit: npt.NDArray[np.bool_],
    packing: Packing,
) -> Integers:
    """Round (rows, lanes) float32 to multiples of their `steps`, (rows,), and pack them into words.

    Rows that are not `fit`, (rows,) bool, become zeros.
    """
    per, lanes = packing.per_lane, values.shape[1]
    words = memory.empty((len(values) // per, lanes), np.int32)
    library.innet_pack(
        at(np.ascontiguousarray(values), np.float32), len(words), per, lanes,
        at(steps, np.float32, len(values)), at(fit, np.bool_, len(values)), packing.limit,
        at(words, np.int32),
    )  # fmt: skip
    return words


def unpack(
    library: ctypes.CDLL,
    sums: Integers,
    steps: Floats,
    counts: Counts,
    packing: Packing,
    *,
    mean: bool,
) -> Floats:
    """Return the sums or means of such words as floats, (rows, lanes).

    `sums`, (chunks, lanes), are those of `counts`, (chunks,), contributions.
    """
    per, lanes = packing.per_lane, sums.shape[1]
    values = memory.empty((len(sums) * per, lanes), np.float32)
    library.innet_unpack(
        at(np.ascontiguousarray(sums), np.int32), len(sums), per, lanes,
        at(steps, np.float32, len(values)), at(counts, np.uint16, len(sums)), packing.limit, mean,
        at(values, np.float32),
    )  # fmt: skip
    return values


def dequantize(
    library: ctypes.CDLL,
    sums: Integers,
    scales: Floats,
    counts: Counts | None,
    into: Floats | None = None,
    all_rows: int = 0,
) -> Floats:
    """Divide (rows, lanes) int32 by `counts`, (rows, 1), if given; multiply by `scales`, (rows,).

    The result is written `into` a contiguous array if one is given. This may be a part of an array with
    `all_rows` rows. A large array is written past the processor's caches.
    """
    sums = np.ascontiguousarray(sums)
    values = memory.empty(sums.shape, np.float32) if into is None else into
    divisors = None if counts is None else at(counts, np.uint16, len(sums))
    library.innet_dequantize(
        at(sums, np.int32), *sums.shape, at(scales, np.float32, len(sums)), divisors,
        at(values, np.float32), all_rows or len(sums),
    )  # fmt: skip
    return values
