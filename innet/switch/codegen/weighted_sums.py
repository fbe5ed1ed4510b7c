"""Loops that add words, each times a weight, to a field: one call of the runtime.

The check of a packet of innet is such a sum. A loop would multiply 64 bits at a time, which takes longer
than the runtime's function.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from innet.switch import ir
from innet.switch.codegen.loops import Loop


@dataclass(frozen=True)
class WeightedSum:
    """A sum modulo 2⁶⁴ of neighbouring words, from the field `first` on, times their weights."""

    total: ir.FieldRef
    first: ir.FieldRef
    weights: Sequence[int]


def weighted_sum(loop: Loop) -> WeightedSum | None:
    """Return the sum that a loop adds to a field, or None if the loop does something else.

    The caller has to check that the field `total` has 64 bits, and each word 32.
    """
    if not len(loop.steps) == len(loop.lanes) == len(loop.constants) == 1:
        return None
    (word,), (weights,) = loop.lanes, loop.constants
    product = _modulo(ir.Op("*", (_modulo(word), weights)))
    match loop.steps[0]:
        case ir.Primitive("assign", (ir.FieldRef() as total, added)):
            if added == _modulo(ir.Op("+", (total, product))):
                return WeightedSum(total, word, weights.values)
    return None


def _modulo(number: ir.Expr) -> ir.Expr:
    return ir.Op("&", (number, ir.Const((1 << 64) - 1)))
