"""Expressions to C.

P4's arithmetic, as p4c leaves it for BMv2, is over unbounded integers with explicit wrapping. So every
expression is given the range of values that it can take, and the C type follows from the range:
64 bits where that is enough, 128 where it is not. Past 128 bits only values that are wrapped again
at once are allowed, for which 128 bits are as good as infinitely many.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from innet.errors import UnsupportedProgram
from innet.switch import ir

_I64 = (-(1 << 63), (1 << 63) - 1)
_I128 = (-(1 << 127), (1 << 127) - 1)


@dataclass(frozen=True)
class Number:
    """C text of an integer, and the smallest and largest value that it can have.

    `exact` is false where only the lowest 128 bits are right.
    """

    text: str
    low: int
    high: int
    exact: bool = True

    @property
    def wide(self) -> bool:
        """Whether the text is of type i128 rather than i64."""
        return self.low < _I64[0] or self.high > _I64[1]


class Expressions:
    """Renders expressions for one program. `place` gives a field's C lvalue."""

    def __init__(self, program: ir.Program, place: Callable[[ir.FieldRef], str]) -> None:
        self._headers = {header.name: header for header in program.headers}
        self.place = place
        self.params: tuple[tuple[str, int], ...] = ()

    def field_type(self, ref: ir.FieldRef) -> ir.FieldType:
        """The type of a field, or of a header's validity."""
        if ref.field == ir.VALID:
            return ir.FieldType(ir.VALID, 1)
        return self._headers[ref.header].field(ref.field)

    def is_truth(self, expr: ir.Expr) -> bool:
        """Whether the expression is a truth value rather than a number."""
        return isinstance(expr, ir.Bool) or (isinstance(expr, ir.Op) and expr.op in _TRUTHS)

    def truth(self, expr: ir.Expr) -> str:
        """C text of a condition."""
        match expr:
            case ir.Bool(value):
                return "true" if value else "false"
            case ir.Op("d2b", (operand,)):
                return f"({self.number(operand).text} != 0)"
            case ir.Op("not", (operand,)):
                return f"!{self.truth(operand)}"
            case ir.Op("and" | "or" as op, (left, right)):
                return f"({self.truth(left)} {_C_LOGIC[op]} {self.truth(right)})"
            case ir.Op(op, (left, right)) if op in _COMPARISONS:
                return self._comparison(op, left, right)
            case ir.Op("?", (condition, left, right)):
                return f"({self.truth(condition)} ? {self.truth(left)} : {self.truth(right)})"
        return f"({self.number(expr).text} != 0)"

    def number(self, expr: ir.Expr) -> Number:
        """C text of an integer, with its range."""
        match expr:
            case ir.Const(value):
                return _literal(value)
            case ir.FieldRef():
                return self._field(expr)
            case ir.ParamRef(index):
                return self._param(index)
            case ir.Op(op, operands):
                return _RULES[op](self, *operands)
        if self.is_truth(expr):
            return Number(f"(i64){self.truth(expr)}", 0, 1)
        raise UnsupportedProgram(f"{expr} cannot stand in an expression")

    def wide(self, expr: ir.Expr) -> str:
        """C text of type u128, also for fields that are too wide for arithmetic."""
        if isinstance(expr, ir.FieldRef):
            return f"(u128){self.place(expr)}"
        return f"(u128){self.number(expr).text}"

    def stored(self, expr: ir.Expr, bits: int) -> str:
        """C text of the expression's lowest `bits` bits."""
        if self.is_truth(expr):
            return self.truth(expr)
        if isinstance(expr, ir.FieldRef):
            kind = self.field_type(expr)
            if kind.bits <= bits and not kind.signed:
                return self.place(expr)
        number = self.number(expr)
        if number.low >= 0 and number.high < 1 << bits:
            return number.text
        return f"{number.text} & {_literal((1 << bits) - 1, unsigned=True).text}"

    def _field(self, ref: ir.FieldRef) -> Number:
        kind = self.field_type(ref)
        text = self.place(ref)
        if kind.signed:
            return _wrapped(Number(f"(i128){text}", 0, (1 << kind.bits) - 1), kind.bits)
        if kind.bits > 126:
            raise UnsupportedProgram(
                f"arithmetic on {ref.header}.{ref.field}, {kind.bits} bits wide"
            )
        return Number(f"({'i128' if kind.bits > 63 else 'i64'}){text}", 0, (1 << kind.bits) - 1)

    def _param(self, index: int) -> Number:
        bits = self.params[index][1]
        if bits > 126:
            raise UnsupportedProgram(f"arithmetic on a parameter {bits} bits wide")
        if bits > 63:
            return Number(f"(i128)rt_wide_arg(a, {index})", 0, (1 << bits) - 1)
        return Number(f"(i64)a[{2 * index}]", 0, (1 << bits) - 1)

    def _comparison(self, op: str, left: ir.Expr, right: ir.Expr) -> str:
        if self.is_truth(left) and self.is_truth(right):
            return f"({self.truth(left)} {op} {self.truth(right)})"
        if op in ("==", "!=") and self._too_wide(left) | self._too_wide(right):
            return f"({self.wide(left)} {op} {self.wide(right)})"
        a, b = self.number(left), self.number(right)
        if not (a.exact and b.exact):
            raise UnsupportedProgram(f"comparing values that do not fit 128 bits ({op})")
        return f"({a.text} {op} {b.text})"

    def _too_wide(self, expr: ir.Expr) -> bool:
        if isinstance(expr, ir.FieldRef):
            return self.field_type(expr).bits > 126
        return isinstance(expr, ir.Const) and expr.value.bit_length() > 126


def _literal(value: int, *, unsigned: bool = False) -> Number:
    if _I64[0] < value <= _I64[1]:
        text = str(value) if abs(value) < 1 << 31 else f"INT64_C({value})"
    elif 0 <= value < 1 << 128:
        kind = "u128" if unsigned or value >> 127 else "i128"
        text = f"(({kind})UINT64_C({value >> 64}) << 64 | UINT64_C({value & (1 << 64) - 1}))"
    else:
        raise UnsupportedProgram(f"the constant {value:#x} has more than 128 bits")
    return Number(text, value, value)


def _arithmetic(op: str, self: Expressions, left: ir.Expr, right: ir.Expr) -> Number:
    a, b = self.number(left), self.number(right)
    ends = [_PYTHON[op](x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    low, high = min(ends), max(ends)
    if low < _I128[0] or high > _I128[1] or not (a.exact and b.exact):
        return Number(f"(i128)((u128){a.text} {op} (u128){b.text})", *_I128, exact=False)
    result = Number(f"({a.text} {op} {b.text})", low, high)
    return Number(f"((i128){a.text} {op} {b.text})", low, high) if result.wide else result


def _bitwise(op: str, self: Expressions, left: ir.Expr, right: ir.Expr) -> Number:
    a, b = self.number(left), self.number(right)
    text = f"({a.text} {op} {b.text})"
    if op == "&" and (a.low >= 0 or b.low >= 0):
        high = min(each.high for each in (a, b) if each.low >= 0)
        narrow = Number(text, 0, high)
        return narrow if narrow.wide or not (a.wide or b.wide) else Number(f"(i64){text}", 0, high)
    bits = max(each.bit_length() for each in (a.low, a.high, b.low, b.high))
    low = 0 if a.low >= 0 and b.low >= 0 else -(1 << bits)
    return Number(text, low, (1 << bits) - 1, a.exact and b.exact)


def _complement(self: Expressions, operand: ir.Expr) -> Number:
    a = self.number(operand)
    return Number(f"(~{a.text})", ~a.high, ~a.low, a.exact)


def _shift_left(self: Expressions, left: ir.Expr, right: ir.Expr) -> Number:
    a, b = self.number(left), self.number(right)
    if b.high < 127 and a.high << b.high <= _I128[1] and a.low << b.high >= _I128[0]:
        low, high = min(a.low << b.high, a.low), max(a.high << b.high, a.high)
        cast = "i64" if _I64[0] <= low and high <= _I64[1] else "i128"
        return Number(f"(({cast}){a.text} * (({cast})1 << {b.text}))", low, high)
    return Number(f"rt_shift_left({a.text}, {b.text})", *_I128, exact=False)


def _shift_right(self: Expressions, left: ir.Expr, right: ir.Expr) -> Number:
    a, b = self.number(left), self.number(right)
    if not a.exact:
        raise UnsupportedProgram("shifting a value that does not fit 128 bits")
    low, high = min(a.low, a.low >> b.low), max(a.high >> b.low, -1 if a.low < 0 else 0)
    if not a.wide and b.high < 64:
        return Number(f"({a.text} >> {b.text})", low, high)
    result = Number(f"rt_shift_right({a.text}, {b.text})", low, high)
    return result if result.wide else Number(f"(i64){result.text}", low, high)


def _wrap(self: Expressions, operand: ir.Expr, width: ir.Expr) -> Number:
    return _wrapped(self.number(operand), _constant(width))


def _wrapped(a: Number, bits: int) -> Number:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    if bits in (8, 16, 32, 64):
        return Number(f"(i64)(int{bits}_t){a.text}", low, high)
    cast = "(i64)" if bits < 64 else ""
    return Number(f"{cast}rt_signed({a.text}, {bits})", low, high)


def _clamp(signed: bool, self: Expressions, operand: ir.Expr, width: ir.Expr) -> Number:
    a, bits = self.number(operand), _constant(width)
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    if not a.exact:
        raise UnsupportedProgram("saturating a value that does not fit 128 bits")
    bounds = f"{_literal(low).text}, {_literal(high).text}"
    if not a.wide and bits < 64:
        return Number(f"rt_clamp({a.text}, {bounds})", low, high)
    result = Number(f"rt_wide_clamp({a.text}, {bounds})", low, high)
    return result if result.wide else Number(f"(i64){result.text}", low, high)


def _choice(self: Expressions, condition: ir.Expr, left: ir.Expr, right: ir.Expr) -> Number:
    a, b = self.number(left), self.number(right)
    text = f"({self.truth(condition)} ? {a.text} : {b.text})"
    return Number(text, min(a.low, b.low), max(a.high, b.high), a.exact and b.exact)


def _from_truth(self: Expressions, operand: ir.Expr) -> Number:
    return Number(f"(i64){self.truth(operand)}", 0, 1)


def _truth_as_number(op: str, self: Expressions, *operands: ir.Expr) -> Number:
    return Number(f"(i64){self.truth(ir.Op(op, operands))}", 0, 1)


def _constant(expr: ir.Expr) -> int:
    if not isinstance(expr, ir.Const):
        raise UnsupportedProgram("a width that is not a constant")
    return expr.value


_COMPARISONS = frozenset({"==", "!=", "<", ">", "<=", ">="})
_TRUTHS = _COMPARISONS | {"and", "or", "not", "d2b"}
_C_LOGIC = {"and": "&&", "or": "||"}
_PYTHON: dict[str, Callable[[int, int], int]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
}
_RULES: dict[str, Callable[..., Number]] = {
    **{op: partial(_arithmetic, op) for op in _PYTHON},
    **{op: partial(_bitwise, op) for op in "&|^"},
    **{op: partial(_truth_as_number, op) for op in _TRUTHS},
    "~": _complement,
    "<<": _shift_left,
    ">>": _shift_right,
    "two_comp_mod": _wrap,
    "sat_cast": partial(_clamp, True),
    "usat_cast": partial(_clamp, False),
    "?": _choice,
    "b2d": _from_truth,
}
