"""The reducer: the exchanges that make the sum, mean or maximum of vectors over the workers.

A sum of float32 takes two exchanges: the maximum of the block exponents, and the sum of integers.
One of integers also takes two, since the workers have to agree on the size first. A sum that may
overflow 32 bits is made again, in limbs. A small vector takes one exchange, which gathers it
(:mod:`innet.host.gathering`), and so does a maximum.
"""

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from innet.errors import SumOverflow, UnsupportedTensor, UsageError
from innet.host import memory
from innet.host.agreement import ALL_REDUCE, Call, Collective
from innet.host.blocks import Blocks, Mask
from innet.host.exchanges import Exchanges
from innet.host.gathering import Gathering, float_sums, integer_sums, small_layout
from innet.host.integers import Counts, Flags, Integers, Reduction, Wide
from innet.host.job import WorkerInfo
from innet.host.limbs import HALVES, THIRDS, Limbs, overflow_flags
from innet.host.maxima import NO_WORDS, Maxima
from innet.host.portions import Portions, chunks_of, cut, portion
from innet.host.quantizers import fixed_point
from innet.host.quantizers.block_scale import BlockScale
from innet.host.quantizers.interface import Floats, Quantizer, Rounding
from innet.host.quantizers.residuals import Residuals
from innet.host.quantizers.rounding import Stochastic, nearest
from innet.host.quantizers.scaling import Scaling, integers_of
from innet.host.quantizers.spec import QuantizerSpec
from innet.host.sparse import Rows
from innet.host.tensors import MOST_ELEMENTS, ReduceOp
from innet.host.unions import Unions
from innet.wire.layout import Flag, Operation

if TYPE_CHECKING:
    import torch

EXACT = QuantizerSpec()
Keep = Callable[[Any, Any], None]
"""A function that keeps the residual, from the contributed values and whether each has counted."""

_ONCE = np.ones((1, 1), np.uint16)
_FLOAT = np.dtype(np.float32)


class Reducer:
    """A reducer of flat vectors. Every worker of the job makes the same calls in the same order."""

    def __init__(
        self, exchanges: Exchanges, info: WorkerInfo, spec: QuantizerSpec | None = None
    ) -> None:
        """Set the default quantizer to `spec`. Raises UsageError if it does not suit the job."""
        self._exchanges = exchanges
        self._maxima = Maxima(exchanges, info)
        self._unions = Unions(exchanges, info)
        self._info = info
        self._spec = spec or QuantizerSpec()
        self._residuals = Residuals()
        self._quantizers: dict[QuantizerSpec, Quantizer] = {}
        self._on_devices: dict[Any, Any] = {}
        self._rounded = 0  # number of calls that have rounded at random
        self._quantizer(self._spec)

    def choose(self, text: str | None, key: Hashable, *, sparse: bool = False) -> QuantizerSpec:
        """Return the requested quantizer, or the default. Raises UsageError if it cannot be used."""
        spec = self._spec if text is None else QuantizerSpec.read(text)
        self._quantizer(spec)
        if spec.feedback and sparse:
            raise UsageError(
                f"quantizer {spec} uses error feedback, which cannot follow the rows of a sparse "
                'tensor: choose another, as in all_reduce(tensor, quantizer="int8")'
            )
        if spec.feedback and key is None:
            raise UsageError(
                f"quantizer {spec} uses error feedback, which has to know the tensor: give it "
                "a key, as in all_reduce(tensor, key=...), the same every time"
            )
        return spec.dense if sparse else spec

    def choose_exact(self, text: str | None) -> QuantizerSpec:
        """Return what the requested quantizer, or the default, means for integers: their blocks."""
        spec = self._spec if text is None else QuantizerSpec.read(text)
        return EXACT if spec.share else QuantizerSpec(blocks=spec.blocks)

    def floats(
        self,
        values: Floats,
        spec: QuantizerSpec,
        key: Hashable = None,
        *,
        mean: bool,
        in_place: bool = False,
        collective: Collective = ALL_REDUCE,
        part: range | None = None,
    ) -> Floats:
        """Return the mean or sum of float32 vectors, or the `part` of it that this worker wants.

        :mod:`innet.host.quantizers` gives the error bounds. `key` identifies the tensor for error
        feedback. With `in_place`, the result may take the place of the values.
        """
        call = _call(values.size, spec, collective, mean=mean)
        given, keep = self._corrected(values, spec, key)
        if small := self._small(call):
            return portion(self._small_floats(small, given, keep, mean=mean), part)
        if spec.blocks is not None:
            return portion(self._floats_in_blocks(given, call, keep, mean=mean), part)
        quantizer = self._quantizer(spec)
        reduced: Floats = self._floats(
            quantizer, given, call, keep, mean=mean, in_place=in_place, part=part
        )
        return reduced

    def _corrected(
        self, values: Any, spec: QuantizerSpec, key: Hashable
    ) -> tuple[Any, Keep | None]:
        """Return the values to contribute, and a function that keeps their errors, if there is one."""
        if not spec.feedback:
            return values, None
        given = self._residuals.added(key, values)
        return given, partial(self._residuals.keep, key, given)

    def _small(self, call: Call) -> Gathering | None:
        small = small_layout(call, self._info, _FLOAT)
        return small if call.spec.rounds and small.fits else None

    def _small_floats(
        self, small: Gathering, given: Floats, keep: Keep | None, *, mean: bool
    ) -> Floats:
        gathered, present = self._maxima.gather(small, given)
        if keep:
            keep(given, present[self._info.rank])
        return float_sums(gathered, present, mean=mean)

    def _floats_in_blocks(
        self, given: Floats, call: Call, keep: Keep | None, *, mean: bool
    ) -> Floats:
        """Reduce the blocks on which the workers agree, and return zeros for the others."""
        spec, quantizer = call.spec, self._quantizer(call.spec)
        blocks = Blocks(given.size, spec.blocks or quantizer.rows_per_chunk * self._info.lanes)
        if spec.share:
            chosen = self._unions.largest(call, blocks.largest(given), spec.share)
        else:
            chosen = self._unions.occupied(call, blocks.occupied(given))
        packed = blocks.packed(given, chosen)

        def keep_packed(contributed: Floats, counted: Mask) -> None:
            if keep:  # the other blocks have contributed nothing, and remain
                keep(blocks.spread(contributed, chosen), blocks.spread(counted, chosen, rest=True))

        if not packed.size:
            keep_packed(packed, np.empty(0, bool))
            return blocks.spread(packed, chosen)
        inner = _call(packed.size, spec, call.collective, mean=mean)
        keeper = keep_packed if keep else None
        reduced = self._floats(quantizer, packed, inner, keeper, mean=mean, in_place=True)
        return blocks.spread(reduced, chosen)

    def on_device(
        self,
        values: "torch.Tensor",
        spec: QuantizerSpec,
        key: Hashable = None,
        *,
        mean: bool,
        collective: Collective = ALL_REDUCE,
        part: range | None = None,
    ) -> "torch.Tensor":
        """Do the same as :meth:`floats` for a flat float32 tensor; only integers leave its device."""
        call = _call(len(values), spec, collective, mean=mean)
        if spec.blocks is not None or self._small(call):
            import torch

            reduced = self.floats(
                values.cpu().numpy(), spec, key, mean=mean, collective=collective, part=part
            )
            return torch.from_numpy(reduced).to(values.device)
        from innet.host.quantizers.device import on_device

        variant = spec, values.device
        if variant not in self._on_devices:
            quantizer = self._quantizer(spec)
            self._on_devices[variant] = on_device(quantizer, values.device, self._info.lanes)
        given, keep = self._corrected(values, spec, key)
        on_gpu: torch.Tensor = self._floats(
            self._on_devices[variant], given, call, keep, mean=mean, part=part
        )
        return on_gpu

    def _floats(
        self,
        quantizer: Any,
        given: Any,
        call: Call,
        keep: Keep | None,
        *,
        mean: bool,
        in_place: bool = False,
        part: range | None = None,
    ) -> Any:
        """Reduce values of the quantizer's kind: a numpy array, or a tensor on its device."""
        lanes, size, spec = self._info.lanes, call.size, call.spec
        elements = quantizer.rows_per_chunk * lanes  # of a chunk
        rows = quantizer.rows(given, lanes)
        own = quantizer.scales(rows)
        agreed = self.agree(call, own)
        rounding, scaling = self._rounding(spec), None
        wanted = None if part is None else chunks_of(part, elements)
        if isinstance(quantizer, BlockScale):
            # Error feedback compares the values with the result.
            reuse = in_place and not keep and wanted is None
            scaling = quantizer.on_the_way(
                rows, own, agreed, rounding, mean=mean, in_place=reuse, wanted=wanted
            )
        if scaling:
            contribution, flags = scaling, quantizer.flags(own, agreed)
        else:
            contribution, flags = quantizer.quantize(rows, own, agreed, rounding)
        sums, counts, done = self._sum(contribution, flags, wanted)
        if keep:
            alone = quantizer.dequantize(
                integers_of(contribution), _ONCE, agreed, flags, mean=False
            )
            included = done.includes(self._info.rank, self._info.workers)
            counted = np.repeat(included, elements)[:size]
            keep(alone.reshape(-1)[:size], counted)
        here = done.rows if sums is done.lanes else slice(0, len(flags))
        if scaling and sums is done.lanes:
            reduced = quantizer.results(scaling, done, agreed)
        else:
            scales = agreed[
                here.start * quantizer.rows_per_chunk : here.stop * quantizer.rows_per_chunk
            ]
            reduced = quantizer.dequantize(sums, counts, scales, done.flags[here], mean=mean)
        return cut(reduced, here.start * elements, range(size) if part is None else part)

    def _quantizer(self, spec: QuantizerSpec) -> Quantizer:
        if spec not in self._quantizers:
            self._quantizers[spec] = spec.bind(self._info.workers)
        return self._quantizers[spec]

    def _rounding(self, spec: QuantizerSpec) -> Rounding:
        if not spec.stochastic:
            return nearest
        self._rounded += 1
        return Stochastic.of(0, self._info.rank, self._rounded)

    def integers(
        self,
        values: npt.NDArray[Any],
        collective: Collective = ALL_REDUCE,
        spec: QuantizerSpec = EXACT,
        part: range | None = None,
    ) -> npt.NDArray[Any]:
        """Return the exact sum of int32 or int64 vectors, or a `part` of it, of the same dtype.

        Raises SumOverflow, whichever part overflows. So all workers receive all sums of int64. Of
        `spec`, only the blocks count.
        """
        call = Call(values.size, values.dtype.name, spec=spec, collective=collective)
        small = small_layout(call, self._info, values.dtype)
        if small.fits:
            gathered = integer_sums(*self._maxima.gather(small, values))
            return portion(_checked(gathered, values.dtype).astype(values.dtype), part)
        if spec.blocks is not None:
            blocks = Blocks(values.size, spec.blocks or self._info.lanes)
            chosen = self._unions.occupied(call, blocks.occupied(values))
            packed = blocks.packed(values, chosen)
            filled = self._filled(packed, EXACT, collective)
            return portion(blocks.spread(filled, chosen), part)
        self.agree(call)
        if values.dtype == np.int64:
            return portion(self._sum_in_limbs(values, THIRDS)[0], part)
        lanes = self._info.lanes
        chunks = fixed_point.blocks(values, lanes)
        wanted = None if part is None else chunks_of(part, lanes)
        sums, _, done = self._sum(chunks, overflow_flags(chunks, self._info.workers), wanted)
        if sums is done.lanes:  # so none can have left int32
            first = done.rows.start * lanes
            return memory.copy(
                cut(sums, first, range(values.size) if part is None else part), np.int32
            )
        checked = _checked(sums.reshape(-1)[: values.size], values.dtype)
        return memory.copy(portion(checked, part), np.int32)

    def rows(
        self, own: Rows, spec: QuantizerSpec, *, mean: bool, collective: Collective = ALL_REDUCE
    ) -> Rows:
        """Return the sum or mean of sparse matrices: the rows that any worker has.

        `spec` is for float32, and without error feedback; integers are exact. Raises SumOverflow,
        and UnsupportedTensor if the rows of all workers together are too many.
        """
        op: ReduceOp = "mean" if mean else "sum"
        dtype = own.values.dtype
        call = Call(own.count, f"sparse {dtype.name}", op, spec, collective)
        chosen = self._unions.occupied(call, own.occupied)
        if (elements := len(chosen) * own.values.shape[1]) > MOST_ELEMENTS:
            raise UnsupportedTensor(
                f"all workers' rows together have {elements} elements, and at most {MOST_ELEMENTS} "
                "can be summed at once: sum parts of the tensor"
            )
        packed = own.at(chosen)
        summed = self._filled(packed.reshape(-1), spec, collective, mean=mean)
        return Rows(own.count, chosen, summed.reshape(packed.shape))

    def _filled(
        self,
        packed: npt.NDArray[Any],
        spec: QuantizerSpec,
        collective: Collective,
        *,
        mean: bool = False,
    ) -> npt.NDArray[Any]:
        """Reduce packed blocks. If there are none, all workers know it and exchange nothing."""
        if not packed.size:
            return packed
        if packed.dtype == np.float32:
            return self.floats(packed, spec, mean=mean, in_place=True, collective=collective)
        return self.integers(packed, collective)

    def extremes(
        self, values: npt.NDArray[Any], op: ReduceOp, collective: Collective = ALL_REDUCE
    ) -> npt.NDArray[Any]:
        """Return the exact largest ("max") or smallest ("min") of int32 or float32 vectors.

        A NaN wins either way.
        """
        words = _in_order(values.view(np.int32)) if values.dtype == np.float32 else values
        words = words if op == "max" else ~words
        if values.dtype == np.float32:
            words = np.where(np.isnan(values), np.iinfo(np.int32).max, words)
        call = Call(values.size, values.dtype.name, op, collective=collective)
        found = self.agree(call, words)
        found = memory.copy(found, np.int32) if op == "max" else ~found
        return _in_order(found).view(np.float32) if values.dtype == np.float32 else found

    def agree(self, call: Call, words: Integers = NO_WORDS) -> Integers:
        """Return the maximum of (n,) int32 over the workers; see :meth:`Maxima.agree`."""
        return self._maxima.agree(call, words)

    def _sum(
        self, chunks: Integers | Scaling, flags: Flags, wanted: range | None = None
    ) -> tuple[Integers | Wide, Counts, Reduction]:
        """Return the exact sums of (n, lanes) int32, the contributions' counts, and the raw result.

        The counts broadcast against the sums. `flags`, (n,), go with the chunks. Sums are those of the
        `wanted` chunks, or of all if one had to be made again. The raw result tells which.
        """
        if wanted is None:
            done = self._exchanges.all_reduce(chunks, Operation.SUM, flags)
        else:
            done = self._sum_portion(chunks, flags, wanted)
        overflowed = np.flatnonzero(done.flags & Flag.OVERFLOW)
        if not overflowed.size:
            return done.lanes, done.counts[done.rows, None], done
        sums = np.zeros((len(flags), self._info.lanes), np.int64)
        sums[done.rows] = done.lanes
        counts = np.broadcast_to(done.counts[:, None], sums.shape).copy()
        again = self._sum_in_limbs(chunks[overflowed].reshape(-1), HALVES)
        sums[overflowed], counts[overflowed] = (part.reshape(-1, sums.shape[1]) for part in again)
        return sums, counts, done

    def _sum_portion(self, chunks: Integers | Scaling, flags: Flags, wanted: range) -> Reduction:
        """Return the result of a sum with the lanes of the wanted chunks."""
        count, lanes = len(flags), self._info.lanes
        if not count:
            return Reduction.empty(0, lanes)
        sums = memory.empty((len(wanted), lanes), np.int32)
        rows, last = sums, np.empty((1, lanes), np.int32)
        if count - 1 in wanted:
            rows, last = sums[:-1], sums[-1:]
        portions = Portions.of(count, range(count), wanted)
        done = self._exchanges.sum_portions(chunks, flags, portions, rows, last)
        return replace(done, lanes=sums)

    def _sum_in_limbs(self, values: npt.NDArray[Any], limbs: Limbs) -> tuple[Wide, Counts]:
        """Return the exact sums of a flat vector, and the number of contributions in each."""
        rows = limbs.split(values.astype(np.int64), self._info.lanes)
        done = self._exchanges.all_reduce(rows, Operation.SUM, np.zeros(len(rows), np.uint16))
        sums, lost = limbs.join(done.lanes, values.size)
        if lost.any():
            raise SumOverflow(
                f"{lost.sum()} sums do not fit int64, the first at element {lost.argmax()}: "
                "sum smaller numbers"
            )
        return sums, np.repeat(done.counts, self._info.lanes // limbs.count)[: values.size]


def _in_order(bits: Integers) -> Integers:
    """Map float32's bits to integers of the same order, and back; the bits of negatives are inverted."""
    ordered: Integers = bits ^ (bits >> 31 & np.int32(0x7FFFFFFF))
    return ordered


def _checked(sums: npt.NDArray[Any], dtype: np.dtype[Any]) -> npt.NDArray[Any]:
    """Return the sums. Raises SumOverflow if one does not fit `dtype`."""
    info = np.iinfo(dtype)
    beyond = (sums < info.min) | (sums > info.max)
    if beyond.any():
        at = beyond.argmax()
        remedy = "convert the tensors to int64" if dtype == np.int32 else "sum smaller numbers"
        raise SumOverflow(
            f"{beyond.sum()} sums do not fit {dtype}, the first {sums[at]} at element {at}: {remedy}"
        )
    return sums


def _call(size: int, spec: QuantizerSpec, collective: Collective, *, mean: bool) -> Call:
    return Call(size, "float32", "mean" if mean else "sum", spec, collective)
