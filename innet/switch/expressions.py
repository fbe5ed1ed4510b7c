"""Expressions to C.

P4's arithmetic, as p4c leaves it for BMv2, is over unbounded integers with explicit wrapping. So every
expression is given the range of values that it can take, and the C type follows from the range:
64 bits where that is enough, 128 where it is not. Past 128 bits only values that are wrapped again
at once are allowed, for which 128 bits are as good as infinitely many.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

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

    @property
    def unsigned(self) -> bool:
        """Whether the text, as a u128, is right, even if it is not as an i128."""
        return self.low >= 0 and self.high < 1 << 128


class Places(Protocol):
    """Where the parts of a packet are in C."""

    def value(self, ref: ir.FieldRef) -> str:
        """Text that reads a field; of one that is an array of bytes, its address."""

    def length(self, header: str | ir.Element) -> str:
        """Text that reads how many bytes a header's varbit has."""

    def next_index(self, stack: str) -> str:
        """Text that reads how many headers the parser has extracted to a stack."""


class Expressions:
    """Renders expressions for one program."""

    def __init__(self, program: ir.Program, places: Places) -> None:
        self._headers = {header.name: header for header in program.headers}
        self._stacks = {stack.name: stack for stack in program.stacks}
        self._unions = {union.name: union for union in program.unions}
        self._places = places
        self.params: tuple[tuple[str, int], ...] = ()

    def field_type(self, ref: ir.FieldRef) -> ir.FieldType:
        """The type of a field, or of a header's validity."""
        if ref.field == ir.VALID:
            return ir.FieldType(ir.VALID, 1)
        header = ref.header
        if isinstance(header, ir.Element):
            header = self._stacks[header.stack].headers[0]
        return self._headers[header].field(ref.field)

    def index(self, element: ir.Element) -> str:
        """C text of type u64 of the index into a stack."""
        if isinstance(element.index, ir.LastIndex):
            return f"(u64){self._places.next_index(element.index.stack)} - 1"
        return f"(u64){self.number(element.index).text}"

    def is_truth(self, expr: ir.Expr) -> bool:
        """Whether the expression is a truth value rather than a number."""
        truths = (ir.Bool, ir.UnionValidity)
        return isinstance(expr, truths) or (isinstance(expr, ir.Op) and expr.op in _TRUTHS)

    def truth(self, expr: ir.Expr) -> str:
        """C text of a condition."""
        match expr:
            case ir.Bool(value):
                return "true" if value else "false"
            case ir.UnionValidity(union):
                valid = (ir.FieldRef(each, ir.VALID) for each in self._unions[union].headers)
                return f"({' || '.join(map(self._places.value, valid))})"
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
            case ir.LastIndex(stack):  # of an empty stack, as in BMv2, 2**64 - 1
                text = f"(i128)((u64){self._places.next_index(stack)} - 1)"
                return Number(text, 0, (1 << 64) - 1)
            case ir.ParamRef(index):
                return self._param(index)
            case ir.Op("&", (part, ir.Const(mask))) if number := self._slice(part, mask):
                return number
            case ir.Op(op, operands):
                return _RULES[op](self, *operands)
        if self.is_truth(expr):
            return Number(f"(i64){self.truth(expr)}", 0, 1)
        raise UnsupportedProgram(f"{expr} cannot stand in an expression")

    def wide(self, expr: ir.Expr) -> str:
        """C text of type u128, also for fields that are too wide for arithmetic."""
        if isinstance(expr, ir.FieldRef):
            kind = self.field_type(expr)
            if is_bytes(kind):
                raise UnsupportedProgram(f"{expr}, {kind.bits} bits wide, cannot stand here")
            return f"(u128){self._places.value(expr)}"
        return f"(u128){self.number(expr).text}"

    def stored(self, expr: ir.Expr, bits: int) -> str:
        """C text of the expression's lowest `bits` bits."""
        if self.is_truth(expr):
            return self.truth(expr)
        if isinstance(expr, ir.FieldRef):
            kind = self.field_type(expr)
            if kind.bits <= bits and not kind.signed and not is_bytes(kind):
                return self._places.value(expr)
        number = self.number(expr)
        if number.low >= 0 and number.high < 1 << bits:
            return number.text
        return f"{number.text} & {_literal((1 << bits) - 1, unsigned=True).text}"

    def _field(self, ref: ir.FieldRef) -> Number:
        kind = self.field_type(ref)
        text = self._places.value(ref)
        if is_bytes(kind):
            what = "of variable length" if kind.varbit else f"{kind.bits} bits wide"
            raise UnsupportedProgram(f"arithmetic on {ref.header}.{ref.field}, {what}")
        if kind.signed:
            return _wrapped(Number(f"(i128){text}", 0, (1 << kind.bits) - 1), kind.bits)
        return _unsigned(f"({'i128' if kind.bits > 63 else 'i64'}){text}", kind.bits)

    def _param(self, index: int) -> Number:
        bits = self.params[index][1]
        if bits > 128:
            raise UnsupportedProgram(f"arithmetic on a parameter {bits} bits wide")
        text = f"(i128)rt_wide_arg(a, {index})" if bits > 63 else f"(i64)a[{2 * index}]"
        return _unsigned(text, bits)

    def _slice(self, part: ir.Expr, mask: int) -> Number | None:
        """``field >> shift & mask`` of a field that is an array of bytes, if it is that."""
        shift = 0
        match part:
            case ir.Op(">>", (shifted, ir.Const(by))):
                part, shift = shifted, by
        if not isinstance(part, ir.FieldRef) or not 0 <= mask < 1 << 128:
            return None
        kind = self.field_type(part)
        if not is_bytes(kind) or kind.varbit or kind.signed:
            return None
        width = min(mask.bit_length(), kind.bits - shift)
        if width <= 0:
            return _literal(0)
        offset = -(-kind.bits // 8) * 8 - shift - width
        read = "(i128)rt_wide_bits" if width > 63 else "(i64)rt_bits"
        text = f"{read}({self._places.value(part)}, {offset}, {width})"
        full = (1 << width) - 1
        if mask & full != full:
            text = f"({text} & {_literal(mask & full).text})"
        return Number(text, 0, mask & full) if width < 127 else Number(text, *_I128, exact=False)

    def _compared_bytes(self, op: str, left: ir.Expr, right: ir.Expr) -> str | None:
        """A comparison in which a field takes part that is an array of bytes, if it is that."""
        types = [self.field_type(x) for x in (left, right) if isinstance(x, ir.FieldRef)]
        types = [kind for kind in types if is_bytes(kind)]
        if not types:
            return None
        if any(kind.signed for kind in types) and op not in ("==", "!="):
            raise UnsupportedProgram(f"comparing signed fields wider than 128 bits ({op})")
        a, b = (self._as_bytes(each, types[0]) for each in (left, right))
        return f"(rt_compare_bytes({a}, {b}) {op} 0)"

    def _as_bytes(self, expr: ir.Expr, like: ir.FieldType) -> str:
        """The address of the bytes, and how many they are."""
        match expr:
            case ir.FieldRef() if is_bytes(kind := self.field_type(expr)):
                length = self._places.length(expr.header) if kind.varbit else -(-kind.bits // 8)
                return f"{self._places.value(expr)}, {length}"
            case ir.Const(value) if value >= 0:
                count = max(1, -(-like.bits // 8))
                return f"{bytes_literal(value, count)}, {count}"
        raise UnsupportedProgram(f"comparing {like.name}, {like.bits} bits wide, with {expr}")

    def _comparison(self, op: str, left: ir.Expr, right: ir.Expr) -> str:
        if text := self._compared_bytes(op, left, right):
            return text
        if self.is_truth(left) and self.is_truth(right):
            return f"({self.truth(left)} {op} {self.truth(right)})"
        if op in ("==", "!=") and self._too_wide(left) | self._too_wide(right):
            return f"({self.wide(left)} {op} {self.wide(right)})"
        a, b = self.number(left), self.number(right)
        if a.exact and b.exact:
            return f"({a.text} {op} {b.text})"
        if a.unsigned and b.unsigned:
            return f"((u128){a.text} {op} (u128){b.text})"
        raise UnsupportedProgram(f"comparing values that do not fit 128 bits ({op})")

    def _too_wide(self, expr: ir.Expr) -> bool:
        if isinstance(expr, ir.FieldRef):
            return self.field_type(expr).bits > 126
        return isinstance(expr, ir.Const) and expr.value.bit_length() > 126


def is_bytes(field: ir.FieldType) -> bool:
    """Whether C has the field as an array of bytes, not as an integer."""
    return field.varbit or field.bits > 128


def bytes_literal(value: int, count: int) -> str:
    """C text of a constant as an array of bytes, most significant first."""
    try:
        content = ", ".join(map(str, value.to_bytes(count, "big")))
    except OverflowError:
        raise UnsupportedProgram(f"the constant {value:#x} has more than {count} bytes") from None
    return f"(const u8[]){{{content}}}"


def _unsigned(text: str, bits: int) -> Number:
    """A number of at most 128 bits."""
    return Number(text, 0, (1 << bits) - 1, exact=bits < 128)


def _literal(value: int, *, unsigned: bool = False) -> Number:
    if _I64[0] < value <= _I64[1]:
        text = str(value) if abs(value) < 1 << 31 else f"INT64_C({value})"
    elif 0 <= value < 1 << 128:
        kind = "u128" if unsigned or value >> 127 else "i128"
        text = f"(({kind})UINT64_C({value >> 64}) << 64 | UINT64_C({value & (1 << 64) - 1}))"
    elif _I128[0] <= value < 0:
        text = f"(-1 - {_literal(-1 - value).text})"  # C has no negative literals
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
        narrow = Number(text, 0, high, exact=high <= _I128[1])
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
    if not a.exact and a.unsigned:
        result = _unsigned(
            f"rt_unsigned_shift_right({a.text}, {b.text})", (a.high >> b.low).bit_length()
        )
        return result if result.wide else replace(result, text=f"(i64){result.text}")
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
