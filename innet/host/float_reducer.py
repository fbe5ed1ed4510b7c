"""The reducer of floats: the exchanges that make the sum or mean of float32 over the workers.

A sum takes two exchanges: the maximum of the block exponents, and the sum of integers. A small vector
takes one exchange, which gathers the values of all workers (:mod:`innet.host.gathering`).
"""

from collections.abc import Callable, Hashable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from innet.errors import UsageError
from innet.host.agreement import ALL_REDUCE, Call, Collective
from innet.host.blocks import Blocks, Mask
from innet.host.exchanges import Exchanges
from innet.host.gathering import Gathering, float_sums, layout
from innet.host.integers import Integers, Reduction
from innet.host.job import WorkerInfo
from innet.host.maxima import NO_WORDS, Maxima
from innet.host.portions import Portions, cut, portion
from innet.host.quantizers.block_scale import BlockScale
from innet.host.quantizers.interface import Floats, Quantizer, Rounding
from innet.host.quantizers.residuals import Residuals
from innet.host.quantizers.rounding import Stochastic, nearest
from innet.host.quantizers.scaling import Scaling, integers_of
from innet.host.quantizers.spec import QuantizerSpec
from innet.host.sums import Sums
from innet.host.unions import Unions
from innet.wire.layout import LANE_BYTES

if TYPE_CHECKING:
    import torch

    from innet.host.tensors import ReduceOp

Keep = Callable[[Any, Any], None]
"""A function that keeps the residual, given the contributed values and a mask of those in the sum."""

LARGE = 8 << 20
"""The size of a vector, in bytes, from which on workers do not keep its sums.

They make the floats directly from the packets. So no worker could give the sums to one that lacks some.
A worker therefore sums the last chunk alone, after it has received all others. This takes another round
trip (:mod:`innet.host.portioned`).
"""

_ONCE = np.ones((1, 1), np.uint16)
_FLOAT = np.dtype(np.float32)


class FloatReducer:
    """The part of :class:`innet.host.reducer.Reducer` that reduces flat float32 vectors."""

    def __init__(
        self, exchanges: Exchanges, info: WorkerInfo, spec: QuantizerSpec | None = None
    ) -> None:
        """Set the default quantizer to `spec`. Raises UsageError if it does not suit the job."""
        self._sums = Sums(exchanges, info.lanes)
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
        spec = self._spec
        if text is not None:
            spec = QuantizerSpec.read(text)
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
        if spec.feedback:
            try:
                hash(key)
            except TypeError:
                raise UsageError(
                    f"the key {key!r} has no hash: give a key that does not change, such as a name"
                ) from None
        return spec.dense if sparse else spec

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
        gathering = self._layout(values.size, spec, collective, mean=mean)
        given, keep = self._corrected(values, spec, key)
        if gathering.fits:
            return portion(self._in_one_exchange(gathering, given, keep, mean=mean), part)
        call, quantizer = gathering.call, self._quantizer(spec)
        if spec.blocks is not None:
            return portion(self._in_blocks(quantizer, given, call, keep, mean=mean), part)
        reduced: Floats = self._in_two_exchanges(
            quantizer, given, call, keep, mean=mean, in_place=in_place, part=part
        )
        return reduced

    def _corrected(
        self, values: Any, spec: QuantizerSpec, key: Hashable
    ) -> tuple[Any, Keep | None]:
        """Return the values to contribute, and with error feedback a function that keeps their errors."""
        if not spec.feedback:
            return values, None
        given = self._residuals.added(key, values)
        return given, partial(self._residuals.keep, key, given)

    def _layout(
        self, size: int, spec: QuantizerSpec, collective: Collective, *, mean: bool
    ) -> Gathering:
        op: ReduceOp = "mean" if mean else "sum"
        return layout(self._info, size, _FLOAT, op, spec, collective)

    def _in_one_exchange(
        self, gathering: Gathering, given: Floats, keep: Keep | None, *, mean: bool
    ) -> Floats:
        """Reduce a small vector, which needs no quantizer."""
        gathered, present = self._maxima.gather(gathering, given)
        if keep:
            keep(given, present[self._info.rank])
        return float_sums(gathered, present, mean=mean)

    def _in_blocks(
        self, quantizer: Quantizer, given: Floats, call: Call, keep: Keep | None, *, mean: bool
    ) -> Floats:
        """Reduce the blocks on which the workers agree, and return zeros for the others."""
        spec = call.spec
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
        inner = replace(call, size=packed.size)
        keeper = keep_packed if keep else None
        reduced = self._in_two_exchanges(quantizer, packed, inner, keeper, mean=mean, in_place=True)
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
        gathering = self._layout(len(values), spec, collective, mean=mean)
        if spec.blocks is not None or gathering.fits:
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
        on_gpu: torch.Tensor = self._in_two_exchanges(
            self._on_devices[variant], given, gathering.call, keep, mean=mean, part=part
        )
        return on_gpu

    def _in_two_exchanges(
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
        """Reduce flat values, a numpy array or a tensor on the quantizer's device; return the same kind.

        Without a `part`, the result is as long as the values.
        """
        lanes, size, spec = self._info.lanes, call.size, call.spec
        elements = quantizer.rows_per_chunk * lanes  # of a chunk
        rows = quantizer.rows(given, lanes)
        own = quantizer.scales(rows)
        agreed = self.agree(call, own)
        rounding, scaling = self._rounding(spec), None
        portions = self._portions(call, part, elements)
        if isinstance(quantizer, BlockScale):
            # Error feedback still needs the values after the exchange.
            reuse = in_place and not keep and part is None
            scaling = quantizer.on_the_way(
                rows, own, agreed, rounding, mean=mean, in_place=reuse,
                wanted=portions.received if portions else None,
            )  # fmt: skip
        if scaling:
            contribution, flags = scaling, quantizer.flags(own, agreed)
            first, done = scaling.wanted.start, self._sums.on_the_way(scaling, flags, portions)
            reduced = self._results(quantizer, scaling, agreed, done, mean=mean)
        else:
            contribution, flags = quantizer.quantize(rows, own, agreed, rounding)
            sums, counts, here, done = self._sums.of_chunks(contribution, flags, portions)
            first, per = here.start, quantizer.rows_per_chunk
            scales = agreed[first * per : here.stop * per]
            reduced = quantizer.dequantize(sums, counts, scales, done.flags[here], mean=mean)
        if keep:
            alone = quantizer.dequantize(
                integers_of(contribution), _ONCE, agreed, flags, mean=False
            )
            included = done.includes(self._info.rank, self._info.workers)
            counted = np.repeat(included, elements)[:size]
            keep(alone.reshape(-1)[:size], counted)
        return cut(reduced, first * elements, range(size) if part is None else part)

    def _results(
        self,
        quantizer: BlockScale,
        scaling: Scaling,
        agreed: Integers,
        done: Reduction,
        *,
        mean: bool,
    ) -> Floats:
        """Return the floats of the wanted rows, (rows, lanes), after their exchange."""
        here = slice(scaling.wanted.start, scaling.wanted.stop)
        reduced = quantizer.results(scaling, agreed[here], done.flags[here])
        if (overflowed := done.overflowed).size:
            sums, counts = self._sums.again(scaling, overflowed)
            found = quantizer.dequantize(
                sums, counts, agreed[overflowed], done.flags[overflowed], mean=mean
            )
            inside = (here.start <= overflowed) & (overflowed < here.stop)
            reduced[overflowed[inside] - here.start] = found[inside]
        return reduced

    def _portions(self, call: Call, part: range | None, elements: int) -> Portions | None:
        """Return the portions of a sum, given the elements of a chunk, or None for an all-reduce.

        A large vector has portions, too, on all workers alike: its sums are not kept (:data:`LARGE`).
        """
        count = -(-call.size // elements)
        if part is not None:
            return Portions.receiving(part, count, elements)
        is_large = call.size * LANE_BYTES >= LARGE and not self._info.has_quorum
        if is_large and isinstance(self._quantizer(call.spec), BlockScale):
            return Portions.whole(count)
        return None

    def _quantizer(self, spec: QuantizerSpec) -> Quantizer:
        if spec not in self._quantizers:
            self._quantizers[spec] = spec.bind(self._info.workers)
        return self._quantizers[spec]

    def _rounding(self, spec: QuantizerSpec) -> Rounding:
        if not spec.stochastic:
            return nearest
        self._rounded += 1
        return Stochastic.of(0, self._info.rank, self._rounded)

    def agree(self, call: Call, words: Integers = NO_WORDS) -> Integers:
        """Return the maximum of (n,) int32 over the workers; see :meth:`Maxima.agree`."""
        return self._maxima.agree(call, words)
