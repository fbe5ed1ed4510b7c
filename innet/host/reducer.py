"""The reducer: the exchanges that make the sum, mean or maximum of vectors over the workers.

:mod:`innet.host.float_reducer` reduces floats. A sum of integers (:mod:`innet.host.sums`) takes two
exchanges, since the workers have to agree on the size first. A small vector takes only one exchange,
which gathers the values of all workers (:mod:`innet.host.gathering`). A maximum also takes only one.
"""

from collections.abc import Hashable
from typing import Any

import numpy as np
import numpy.typing as npt

from innet.errors import UnsupportedTensor
from innet.host import memory
from innet.host.agreement import ALL_REDUCE, EXACT, Call, Collective
from innet.host.blocks import Blocks
from innet.host.float_reducer import FloatReducer
from innet.host.gathering import integer_sums, layout
from innet.host.integers import Integers
from innet.host.limbs import int64_limbs, overflow_flags
from innet.host.portions import Portions, cut, portion
from innet.host.quantizers import fixed_point
from innet.host.quantizers.spec import QuantizerSpec
from innet.host.sparse import Rows
from innet.host.sums import checked
from innet.host.tensors import MOST_ELEMENTS, ReduceOp, dtype_name, is_sparse


class Reducer(FloatReducer):
    """A reducer of flat vectors of any dtype, which inherits the reductions of floats.

    Every worker of the job makes the same calls in the same order.
    """

    def choose_exact(self, text: str | None) -> QuantizerSpec:
        """Return a quantizer for integers: only the blocks of the requested one, or of the default."""
        spec = self._spec if text is None else QuantizerSpec.read(text)
        return EXACT if spec.share else QuantizerSpec(blocks=spec.blocks)

    def choose_for(self, tensor: Any, text: str | None, key: Hashable) -> QuantizerSpec:
        """Return the quantizer of a float32 tensor, or one that leaves integers exact."""
        sparse = is_sparse(tensor)
        if dtype_name(tensor.dtype) == "float32":
            return self.choose(text, key, sparse=sparse)
        return EXACT if sparse else self.choose_exact(text)

    def integers(
        self,
        values: npt.NDArray[Any],
        collective: Collective = ALL_REDUCE,
        spec: QuantizerSpec = EXACT,
        part: range | None = None,
    ) -> npt.NDArray[Any]:
        """Return the exact sum of int32 or int64 vectors, or a `part` of it, of the same dtype.

        Raises SumOverflow on all workers if any part overflows. So all workers receive all sums of int64.
        Of `spec`, only the blocks count.
        """
        gathering = layout(self._info, values.size, values.dtype, spec=spec, collective=collective)
        call = gathering.call
        if gathering.fits:
            gathered = integer_sums(*self._maxima.gather(gathering, values))
            return portion(checked(gathered, values.dtype).astype(values.dtype), part)
        if spec.blocks is not None:
            blocks = Blocks(values.size, spec.blocks or self._info.lanes)
            chosen = self._unions.occupied(call, blocks.occupied(values))
            packed = blocks.packed(values, chosen)
            filled = self._filled(packed, EXACT, collective)
            return portion(blocks.spread(filled, chosen), part)
        self.agree(call)
        if values.dtype == np.int64:
            limbs = int64_limbs(self._info.workers)
            return portion(self._sums.in_limbs(values, limbs)[0], part)
        lanes = self._info.lanes
        chunks = fixed_point.blocks(values, lanes)
        portions = None if part is None else Portions.receiving(part, len(chunks), lanes)
        sums, _, rows, _ = self._sums.of_chunks(
            chunks, overflow_flags(chunks, self._info.workers), portions
        )
        if sums.dtype == np.int64:  # so some may not fit int32
            sums = checked(sums.reshape(-1)[: values.size], values.dtype)
        whole = range(values.size)
        return memory.copy(cut(sums, rows.start * lanes, whole if part is None else part), np.int32)

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


def _in_order(bits: Integers) -> Integers:
    """Map float32's bits to integers of the same order, and back; the bits of negatives are inverted."""
    ordered: Integers = bits ^ (bits >> 31 & np.int32(0x7FFFFFFF))
    return ordered
