"""A translator of expressions to C.

In the programs that p4c makes for BMv2, arithmetic is over unbounded integers with explicit
wrapping. Every expression therefore has a range of possible values, and the range decides the C
type: 64 bits if they are enough, otherwise 128. A larger value has two forms. One form is its
lowest 128 bits, which are enough if the value is wrapped again at once. The other form is limbs:
64-bit words, as many as the widest value of the program needs.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.layout import argument_offset

_I64 = (-(1 << 63), (1 << 63) - 1)
_I128 = (-(1 << 127), (1 << 127) - 1)

_MOST_BITS = 1 << 14
"""The most bits that a value may need before it is wrapped. Larger shifts count as boundless."""

_BOUNDLESS = 1 << (1 << 16)


@dataclass(frozen=True)
class Number:
    """A C expression of an integer, with the smallest and the largest value that it can have.

    The text has the type i64 if the range allows it, and i128 otherwise. If the value is not
    `exact`, the text has only its lowest 128 bits. `limbs` is an expression of the type ``struct
    limbs``.
    """

    text: str
    low: int
    high: int
    all_limbs: str = ""

    @property
    def wide(self) -> bool:
        """Return whether the text has the type i128 rather than i64."""
        return self.low < _I64[0] or self.high > _I64[1]

    @property
    def exact(self) -> bool:
        """Return whether the text has the whole value."""
        return self.low >= _I128[0] and self.high <= _I128[1]

    @property
    def unsigned(self) -> bool:
        """Return whether the text, as a u128, has the whole value, even if it does not fit an i128."""
        return self.low >= 0 and self.high < 1 << 128

    @property
    def limbs(self) -> str:
        """Return C text with all bits of the value that fit the program's limbs."""
        if self.unsigned and not self.exact:
            return f"limbs_unsigned((u128){self.text})"
        return f"limbs({self.text})" if self.exact else self.all_limbs

    @property
    def bits(self) -> int:
        """Return the number of bits, including the sign, that the limbs need for the whole value."""
        return max(self.low.bit_length(), self.high.bit_length()) + 1


class Places(Protocol):
    """The places of a packet's parts in C."""

    def value(self, ref: ir.FieldRef) -> str:
        """Return text that reads a field, or for an array of bytes its address."""

    def length(self, header: str | ir.Element) -> str:
        """Return text that reads the number of bytes in a header's varbit."""

    def next_index(self, stack: str) -> str:
        """Return text that reads how many headers the parser has extracted to a stack."""


class Expressions:
    """A renderer of one program's expressions."""

    def __init__(self, program: ir.Program, places: Places) -> None:
        self._headers = {header.name: header for header in program.headers}
        self._stacks = {stack.name: stack for stack in program.stacks}
        self._unions = {union.name: union for union in program.unions}
        self._places = places
        self.params: tuple[tuple[str, int], ...] = ()
        self.lists: dict[ir.Listed, str] = {}
        """The arrays of a loop's constants. The loop's rounds are counted by ``i``."""
        self.limb_bits = 0
        """The bits of the widest value that has needed limbs so far."""

    def field_type(self, ref: ir.FieldRef) -> ir.FieldType:
        """Return the type of a field, or of a header's validity."""
        if ref.field == ir.VALID:
            return ir.FieldType(ir.VALID, 1)
        header = ref.header
        if isinstance(header, ir.Element):
            header = self._stacks[header.stack].headers[0]
        return self._headers[header].field(ref.field)

    def index(self, element: ir.Element) -> str:
        """Return C text of type u64 for the index into a stack."""
        if isinstance(element.index, ir.LastIndex):
            return f"(u64){self._places.next_index(element.index.stack)} - 1"
        return f"(u64){self.number(element.index).text}"

    def looked_at(self, *numbers: Number, bits: int = 0) -> None:
        """Make room in the limbs for these numbers. Raises UnsupportedProgram if they are too wide."""
        self.limb_bits = max(self.limb_bits, bits, *(number.bits for number in numbers))
        if self.limb_bits > _MOST_BITS:
            raise UnsupportedProgram(f"a value of more than {_MOST_BITS} bits")

    def is_truth(self, expr: ir.Expr) -> bool:
        """Return whether the expression is a truth value rather than a number."""
        truths = (ir.Bool, ir.UnionValidity)
        return isinstance(expr, truths) or (isinstance(expr, ir.Op) and expr.op in _TRUTHS)

    def truth(self, expr: ir.Expr) -> str:
        """Return C text of a condition."""
        match expr:
            case ir.Bool(value):
                return "true" if value else "false"
            case ir.UnionValidity(union):
                valid = (ir.FieldRef(each, ir.VALID) for each in self._unions[union].headers)
                return f"({' || '.join(map(self._places.value, valid))})"
            case ir.Op("d2b", (operand,)):
                return self._compared("!=", self.number(operand), _literal(0))
            case ir.Op("not", (operand,)):
                return f"!{self.truth(operand)}"
            case ir.Op("and" | "or" as op, (left, right)):
                return f"({self.truth(left)} {_C_LOGIC[op]} {self.truth(right)})"
            case ir.Op(op, (left, right)) if op in _COMPARISONS:
                return self._comparison(op, left, right)
            case ir.Op("?", (condition, left, right)):
                return f"({self.truth(condition)} ? {self.truth(left)} : {self.truth(right)})"
        return self._compared("!=", self.number(expr), _literal(0))

    def number(self, expr: ir.Expr) -> Number:
        """Return C text of an integer, with its range."""
        match expr:
            case ir.Const(value):
                return _literal(value)
            case ir.Listed(values):
                kind = "i64" if max(values) <= _I64[1] else "i128"
                return Number(f"({kind}){self.lists[expr]}[i]", min(values), max(values))
            case ir.FieldRef():
                return self._field(expr)
            case ir.LastIndex(stack):  # 2**64 - 1 for an empty stack, as in BMv2
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

    def u128(self, expr: ir.Expr) -> str:
        """Return C text of type u128 with the expression's lowest 128 bits."""
        if isinstance(expr, ir.FieldRef) and not is_bytes(self.field_type(expr)):
            return f"(u128){self._places.value(expr)}"
        return f"(u128){self.number(expr).text}"

    def stored(self, expr: ir.Expr, bits: int) -> str:
        """Return C text of the expression's lowest `bits` bits, at most 128."""
        if self.is_truth(expr):
            return self.truth(expr)
        if isinstance(expr, ir.FieldRef):
            kind = self.field_type(expr)
            if kind.bits <= bits and not kind.signed and not is_bytes(kind):
                return self._places.value(expr)
        number = self.number(expr)
        text = number.text if bits > 64 else self._modulo(expr, 32 if bits <= 32 else 64)
        if number.low >= 0 and number.high < 1 << bits:
            return text
        return f"{text} & {_literal((1 << bits) - 1, unsigned=True).text}"

    def _modulo(self, expr: ir.Expr, word: int) -> str:
        """Return C text of type u32 or u64, by the bits of `word`, with the expression's lowest bits.

        For most operators, the lowest bits of the operands determine the lowest bits of the result.
        Comparisons and right shifts are exceptions. Computing only these bits spares the compiler
        from finding out that the others do not matter.
        """
        match expr:
            case ir.Const(value):
                return f"UINT{word}_C({value % (1 << word)})"
            case ir.FieldRef() if not (is_bytes(kind := self.field_type(expr)) or kind.signed):
                return f"(u{word}){self._places.value(expr)}"
            case ir.Op("&", (left, ir.Const(mask))) | ir.Op("&", (ir.Const(mask), left)) if (
                mask + 1
            ) % (1 << word) == 0:
                return self._modulo(left, word)
            case ir.Op("two_comp_mod", (operand, ir.Const(width))) if width >= word:
                return self._modulo(operand, word)
            case ir.Op("+" | "-" | "*" | "&" | "|" | "^" as op, (left, right)):
                return f"({self._modulo(left, word)} {op} {self._modulo(right, word)})"
            case ir.Op("~", (operand,)):
                return f"(~{self._modulo(operand, word)})"
            case ir.Op("<<", (operand, ir.Const(by))) if 0 <= by < word:
                return f"({self._modulo(operand, word)} << {by})"
            case ir.Op("?", (condition, left, right)):
                choice = f"{self._modulo(left, word)} : {self._modulo(right, word)}"
                return f"({self.truth(condition)} ? {choice})"
        return f"(u{word}){self.number(expr).text}"

    def bytes_of(self, expr: ir.Expr) -> tuple[str, ir.FieldType] | None:
        """Return the address and the type of a field or parameter that is an array of bytes, or None."""
        match expr:
            case ir.FieldRef():
                kind = self.field_type(expr)
                return (self._places.value(expr), kind) if is_bytes(kind) else None
            case ir.ParamRef(index):
                kind = ir.FieldType(*self.params[index])
                place = f"(const u8 *)(a + {argument_offset(self.params, index)})"
                return (place, kind) if is_bytes(kind) else None
        return None

    def _field(self, ref: ir.FieldRef) -> Number:
        kind = self.field_type(ref)
        text = self._places.value(ref)
        if is_bytes(kind):
            return _loaded(text, kind)
        if kind.signed:
            return _wrapped(Number(f"(i128){text}", 0, (1 << kind.bits) - 1), kind.bits)
        return _unsigned(f"({'i128' if kind.bits > 63 else 'i64'}){text}", kind.bits)

    def _param(self, index: int) -> Number:
        if place := self.bytes_of(ir.ParamRef(index)):
            return _loaded(*place)
        bits, at = self.params[index][1], argument_offset(self.params, index)
        return _unsigned(f"(i128)rt_wide_arg(a, {at})" if bits > 63 else f"(i64)a[{at}]", bits)

    def _slice(self, part: ir.Expr, mask: int) -> Number | None:
        """Return ``field >> shift & mask`` if the field is an array of bytes, or None."""
        shift = 0
        match part:
            case ir.Op(">>", (shifted, ir.Const(by))):
                part, shift = shifted, by
        place = self.bytes_of(part)
        if not place or not 0 <= mask < 1 << 128:
            return None
        text, kind = place
        if kind.varbit or kind.signed:
            return None
        width = min(mask.bit_length(), kind.bits - shift)
        if width <= 0:
            return _literal(0)
        offset = -(-kind.bits // 8) * 8 - shift - width
        read = "(i128)rt_wide_bits" if width > 63 else "(i64)rt_bits"
        text = f"{read}({text}, {offset}, {width})"
        full = (1 << width) - 1
        if mask & full != full:
            text = f"({text} & {_literal(mask & full).text})"
        return Number(text, 0, mask & full)

    def _compared_bytes(self, op: str, left: ir.Expr, right: ir.Expr) -> str | None:
        """Return a byte-by-byte comparison of two arrays of bytes, or None if it is not possible."""
        kinds = [place[1] for place in map(self.bytes_of, (left, right)) if place]
        signs = {kind.signed for kind in kinds}
        if not kinds or len(signs) > 1 or (op not in ("==", "!=") and True in signs):
            return None
        a, b = (self._as_bytes(each, kinds[0]) for each in (left, right))
        return f"(rt_compare_bytes({a}, {b}) {op} 0)" if a and b else None

    def _as_bytes(self, expr: ir.Expr, like: ir.FieldType) -> str | None:
        """Return C text of the address and the number of the bytes, or None."""
        size = max(1, -(-like.bits // 8))
        place = self.bytes_of(expr)
        match expr:
            case ir.FieldRef(header, _) if place and place[1].varbit:
                return f"{place[0]}, {self._places.length(header)}"
            case _ if place:
                return f"{place[0]}, {-(-place[1].bits // 8)}"
            case ir.Const(value) if 0 <= value < 1 << 8 * size:
                return f"{bytes_literal(value, size)}, {size}"
        return None

    def _comparison(self, op: str, left: ir.Expr, right: ir.Expr) -> str:
        if text := self._compared_bytes(op, left, right):
            return text
        if self.is_truth(left) and self.is_truth(right):
            return f"({self.truth(left)} {op} {self.truth(right)})"
        return self._compared(op, self.number(left), self.number(right))

    def _compared(self, op: str, a: Number, b: Number) -> str:
        if a.exact and b.exact:
            return f"({a.text} {op} {b.text})"
        if a.unsigned and b.unsigned:
            return f"((u128){a.text} {op} (u128){b.text})"
        self.looked_at(a, b)
        return f"(limbs_compare({a.limbs}, {b.limbs}) {op} 0)"


def is_bytes(field: ir.FieldType) -> bool:
    """Return whether C stores the field as an array of bytes rather than as an integer."""
    return field.varbit or field.bits > 128


def bytes_literal(value: int, count: int) -> str:
    """Return C text of a constant as an array of bytes, most significant first."""
    try:
        content = ", ".join(map(str, value.to_bytes(count, "big")))
    except OverflowError:
        raise UnsupportedProgram(f"the constant {value:#x} has more than {count} bytes") from None
    return f"(const u8[]){{{content}}}"


def _unsigned(text: str, bits: int) -> Number:
    """Return an unsigned number of at most 128 bits."""
    return Number(text, 0, (1 << bits) - 1)


def _loaded(place: str, kind: ir.FieldType) -> Number:
    """Return the number in a field that is an array of bytes."""
    if kind.varbit:
        raise UnsupportedProgram("arithmetic on a varbit")
    size = -(-kind.bits // 8)
    low_bits = f"(i128)rt_wide_bits({place}, {8 * size - 128}, 128)"
    number = Number(low_bits, 0, (1 << kind.bits) - 1, f"limbs_load({place}, {size})")
    return _signed_limbs(number, kind.bits) if kind.signed else number


def _literal(value: int, *, unsigned: bool = False) -> Number:
    limbs = ""
    if _I64[0] < value <= _I64[1]:
        text = str(value) if abs(value) < 1 << 31 else f"INT64_C({value})"
    elif 0 <= value < 1 << 128:
        kind = "u128" if unsigned or value >> 127 else "i128"
        text = f"(({kind})UINT64_C({value >> 64}) << 64 | UINT64_C({value & (1 << 64) - 1}))"
    elif value < 0:  # C has no negative literals
        other = _literal(-1 - value)
        text, limbs = f"(-1 - {other.text})", f"limbs_not({other.limbs})"
    else:
        size = -(-value.bit_length() // 8)
        limbs = f"limbs_load({bytes_literal(value, size)}, {size})"
        text = f"(i128){_literal(value & (1 << 128) - 1, unsigned=True).text}"
    return Number(text, value, value, limbs)


def _low_bits(text: str, low: int, high: int, limbs: str) -> Number:
    """Return a number in this range, whose lowest 128 bits `text` holds in a 128-bit type."""
    cast = "i64" if _I64[0] <= low and high <= _I64[1] else "i128"
    return Number(f"({cast}){text}", low, high, limbs)


def _of_limbs(limbs: str, low: int, high: int) -> Number:
    return _low_bits(f"limbs_low({limbs})", low, high, limbs)


def _arithmetic(op: str, self: Expressions, left: ir.Expr, right: ir.Expr) -> Number:
    a, b = self.number(left), self.number(right)
    ends = [_PYTHON[op](x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    low, high = min(ends), max(ends)
    result = Number(f"({a.text} {op} {b.text})", low, high)
    if not (a.exact and b.exact and result.exact):
        limbs = f"limbs_{_LIMBS[op]}({a.limbs}, {b.limbs})"
        return _low_bits(f"((u128){a.text} {op} (u128){b.text})", low, high, limbs)
    return Number(f"((i128){a.text} {op} {b.text})", low, high) if result.wide else result


def _bitwise(op: str, self: Expressions, left: ir.Expr, right: ir.Expr) -> Number:
    a, b = self.number(left), self.number(right)
    text = f"({a.text} {op} {b.text})"
    if op == "&" and (a.low >= 0 or b.low >= 0):
        low, high = 0, min(each.high for each in (a, b) if each.low >= 0)
    else:
        bits = max(each.bit_length() for each in (a.low, a.high, b.low, b.high))
        low, high = 0 if a.low >= 0 and b.low >= 0 else -(1 << bits), (1 << bits) - 1
    result = Number(text, low, high)
    if not (a.exact and b.exact):
        if op == "&" and a.low >= 0 and isinstance(right, ir.Const) and _keeps(right.value, a.high):
            return a
        return _low_bits(text, low, high, f"limbs_{_LIMBS[op]}({a.limbs}, {b.limbs})")
    return result if result.wide or not (a.wide or b.wide) else Number(f"(i64){text}", low, high)


def _keeps(mask: int, high: int) -> bool:
    """Return whether a mask leaves all numbers from 0 to `high` unchanged."""
    return high <= mask & ~(mask + 1)


def _complement(self: Expressions, operand: ir.Expr) -> Number:
    a = self.number(operand)
    return Number(f"(~{a.text})", ~a.high, ~a.low, f"limbs_not({a.limbs})")


def _shift_left(self: Expressions, left: ir.Expr, right: ir.Expr) -> Number:
    a, b = self.number(left), self.number(right)
    if b.high <= _MOST_BITS:
        low, high = min(a.low << b.high, a.low), max(a.high << b.high, a.high)
    else:
        low, high = -_BOUNDLESS if a.low < 0 else 0, _BOUNDLESS
    if b.high < 127 and _I128[0] <= low and high <= _I128[1]:
        cast = "i64" if _I64[0] <= low and high <= _I64[1] else "i128"
        return Number(f"(({cast}){a.text} * (({cast})1 << {b.text}))", low, high)
    by = _amount(self, b)
    text, limbs = f"rt_shift_left({a.text}, {by})", f"limbs_shift_left({a.limbs}, {by})"
    result = Number(text, low, high, limbs)
    return result if result.wide else _low_bits(text, low, high, limbs)


def _shift_right(self: Expressions, left: ir.Expr, right: ir.Expr) -> Number:
    a, b = self.number(left), self.number(right)
    least = min(b.low, 2 * _BOUNDLESS.bit_length())
    low, high = min(a.low, a.low >> least), max(a.high >> least, -1 if a.low < 0 else 0)
    if not a.wide and b.high < 64:
        return Number(f"({a.text} >> {b.text})", low, high)
    by = _amount(self, b)
    if not (a.exact or a.unsigned):
        self.looked_at(a)
        return _of_limbs(f"limbs_shift_right({a.limbs}, {by})", low, high)
    shift = "rt_shift_right" if a.exact else "rt_unsigned_shift_right"
    result = Number(f"{shift}({a.text}, {by})", low, high)
    return result if result.wide else Number(f"(i64){result.text}", low, high)


def _amount(self: Expressions, by: Number) -> str:
    """Return C text of a shift's distance. For a distance beyond 127 bits the result is at least 127."""
    if by.exact:
        return by.text
    self.looked_at(by)
    return f"limbs_amount({by.limbs})"


def _wrap(self: Expressions, operand: ir.Expr, width: ir.Expr) -> Number:
    a, bits = self.number(operand), _constant(width)
    if bits <= 128:
        return _wrapped(a, bits)
    self.looked_at(bits=bits)
    return a if a.exact else _signed_limbs(a, bits)


def _wrapped(a: Number, bits: int) -> Number:
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    if bits in (8, 16, 32, 64):
        return Number(f"(i64)(int{bits}_t){a.text}", low, high)
    cast = "(i64)" if bits < 64 else ""
    return Number(f"{cast}rt_signed({a.text}, {bits})", low, high)


def _signed_limbs(a: Number, bits: int) -> Number:
    """Return a number of more than 128 bits, wrapped to `bits`."""
    limbs = f"limbs_signed({a.limbs}, {bits})"
    return Number(a.text, -(1 << bits - 1), (1 << bits - 1) - 1, limbs)


def _clamp(signed: bool, self: Expressions, operand: ir.Expr, width: ir.Expr) -> Number:
    a, bits = self.number(operand), _constant(width)
    if signed and bits == 32 and (text := _saturated_word(self, operand)):
        return Number(text, -(1 << 31), (1 << 31) - 1)
    least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
    low, high = (min(max(end, least), most) for end in (a.low, a.high))
    if not a.exact:
        self.looked_at(a, bits=bits + 1)
        saturate = "limbs_saturate_signed" if signed else "limbs_saturate"
        return _of_limbs(f"{saturate}({a.limbs}, {bits})", low, high)
    if not a.wide and bits < 64:
        return Number(
            f"rt_clamp({a.text}, {_literal(least).text}, {_literal(most).text})", low, high
        )
    bounds = (_literal(min(max(end, _I128[0]), _I128[1])).text for end in (least, most))
    result = Number(f"rt_wide_clamp({a.text}, {', '.join(bounds)})", low, high)
    return result if result.wide else Number(f"(i64){result.text}", low, high)


def _saturated_word(self: Expressions, operand: ir.Expr) -> str | None:
    """Return the commonest saturation in 32-bit arithmetic, or None. Twice as many fit in a vector."""
    match operand:
        case ir.Op("+" | "-" as op, (left, right)):
            parts = [self.number(left), self.number(right)]
            if all(each.low >= -(1 << 31) and each.high < 1 << 31 for each in parts):
                texts = ", ".join(f"(int32_t){each.text}" for each in parts)
                return f"(i64)rt_saturated_{'sum' if op == '+' else 'difference'}({texts})"
    return None


def _choice(self: Expressions, condition: ir.Expr, left: ir.Expr, right: ir.Expr) -> Number:
    a, b, truth = self.number(left), self.number(right), self.truth(condition)
    low, high = min(a.low, b.low), max(a.high, b.high)
    text = f"({truth} ? {a.text} : {b.text})"
    if a.exact and b.exact:
        return Number(text, low, high)
    return _low_bits(text, low, high, f"({truth} ? {a.limbs} : {b.limbs})")


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
_LIMBS = {
    "+": "add", "-": "subtract", "*": "multiply", "&": "and", "|": "or", "^": "xor",
}  # fmt: skip
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
