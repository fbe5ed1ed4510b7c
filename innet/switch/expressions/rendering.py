"""The translation of a program's expressions to C."""

from typing import Protocol

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.expressions.arithmetic import (
    Arithmetic,
    calculate,
    choose,
    complement,
    fits_word,
    saturated_word,
)
from innet.switch.expressions.byte_arrays import is_bytes, loaded, sliced
from innet.switch.expressions.number import (
    I64,
    Number,
    bytes_literal,
    constant,
    literal,
    truth_value,
    unsigned,
    wrapped,
)
from innet.switch.layout import argument_offset

_COMPARISONS = frozenset({"==", "!=", "<", ">", "<=", ">="})
_TRUTHS = _COMPARISONS | {"and", "or", "not", "d2b"}
_C_LOGIC = {"and": "&&", "or": "||"}


class PacketAccess(Protocol):
    """C text that reads the parts of a packet."""

    def value(self, ref: ir.FieldRef) -> str:
        """Return text that reads a field, or for an array of bytes its address."""

    def length(self, header: str | ir.Element) -> str:
        """Return text that reads the number of bytes in a header's varbit."""

    def next_index(self, stack: str) -> str:
        """Return text that reads how many headers the parser has extracted to a stack."""


class Expressions:
    """A renderer of one program's expressions."""

    def __init__(self, program: ir.Program, packet: PacketAccess) -> None:
        self._headers = {header.name: header for header in program.headers}
        self._stacks = {stack.name: stack for stack in program.stacks}
        self._unions = {union.name: union for union in program.unions}
        self._packet = packet
        self.params: tuple[tuple[str, int], ...] = ()
        self.loop_constants: dict[ir.LoopConstants, str] = {}
        """The arrays of a loop's constants. The loop's rounds are counted by ``i``."""
        self.arithmetic = Arithmetic()

    def field_type(self, ref: ir.FieldRef) -> ir.FieldType:
        """Return the type of a field, or of a header's validity."""
        if ref.field == ir.VALID:
            return ir.FieldType(ir.VALID, 1)
        header = ref.header
        if isinstance(header, ir.Element):
            header = self._stacks[header.stack].headers[0]
        return self._headers[header].field(ref.field)

    def index(self, element: ir.Element) -> str:
        """Return C text of type uint64_t for the index into a stack."""
        if isinstance(element.index, ir.LastIndex):
            return f"(uint64_t){self._packet.next_index(element.index.stack)} - 1"
        return f"(uint64_t){self.number(element.index).text}"

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
                return f"({' || '.join(map(self._packet.value, valid))})"
            case ir.Op("d2b", (operand,)):
                return self.arithmetic.compare("!=", self.number(operand), literal(0))
            case ir.Op("not", (operand,)):
                return f"!{self.truth(operand)}"
            case ir.Op("and" | "or" as op, (left, right)):
                return f"({self.truth(left)} {_C_LOGIC[op]} {self.truth(right)})"
            case ir.Op(op, (left, right)) if op in _COMPARISONS:
                return self._comparison(op, left, right)
            case ir.Op("?", (condition, left, right)):
                return f"({self.truth(condition)} ? {self.truth(left)} : {self.truth(right)})"
        return self.arithmetic.compare("!=", self.number(expr), literal(0))

    def number(self, expr: ir.Expr) -> Number:
        """Return C text of an integer, with its range."""
        match expr:
            case ir.Const(value):
                return constant(value)
            case ir.LoopConstants(values):
                kind = "int64_t" if max(values) <= I64[1] else "int128_t"
                return Number(f"({kind}){self.loop_constants[expr]}[i]", min(values), max(values))
            case ir.FieldRef():
                return self._field(expr)
            case ir.LastIndex(stack):  # 2**64 - 1 for an empty stack, as in BMv2
                text = f"(int128_t)((uint64_t){self._packet.next_index(stack)} - 1)"
                return Number(text, 0, (1 << 64) - 1)
            case ir.ParamRef(index):
                return self._param(index)
            case ir.Op("&", (part, ir.Const(mask))) if number := self._slice(part, mask):
                return number
            case ir.Op() if not self.is_truth(expr):
                return self._operation(expr)
        if self.is_truth(expr):
            return truth_value(self.truth(expr))
        raise UnsupportedProgram(f"{expr} cannot stand in an expression")

    def low_128_bits(self, expr: ir.Expr) -> str:
        """Return C text of type uint128_t with the expression's lowest 128 bits."""
        if isinstance(expr, ir.FieldRef) and not is_bytes(self.field_type(expr)):
            return f"(uint128_t){self._packet.value(expr)}"
        return f"(uint128_t){self.number(expr).text}"

    def stored(self, expr: ir.Expr, bits: int) -> str:
        """Return C text of the expression's lowest `bits` bits, at most 128."""
        if self.is_truth(expr):
            return self.truth(expr)
        if isinstance(expr, ir.FieldRef):
            kind = self.field_type(expr)
            if kind.bits <= bits and not kind.signed and not is_bytes(kind):
                return self._packet.value(expr)
        number = self.number(expr)
        text = number.text if bits > 64 else self._modulo(expr, 32 if bits <= 32 else 64)
        if number.low >= 0 and number.high < 1 << bits:
            return text
        return f"{text} & {literal((1 << bits) - 1, unsigned=True).text}"

    def _modulo(self, expr: ir.Expr, word: int) -> str:
        """Return C text of an unsigned type of `word` bits, with the expression's lowest bits.

        For most operators, the lowest bits of the operands determine the lowest bits of the result.
        Comparisons and right shifts are exceptions. Computing only these bits spares the compiler
        from finding out that the others do not matter.
        """
        match expr:
            case ir.Const(value):
                return f"UINT{word}_C({value % (1 << word)})"
            case ir.FieldRef() if not (is_bytes(kind := self.field_type(expr)) or kind.signed):
                return f"(uint{word}_t){self._packet.value(expr)}"
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
        return f"(uint{word}_t){self.number(expr).text}"

    def bytes_of(self, expr: ir.Expr) -> tuple[str, ir.FieldType] | None:
        """Return the address and the type of a field or parameter that is an array of bytes, or None."""
        match expr:
            case ir.FieldRef():
                kind = self.field_type(expr)
                return (self._packet.value(expr), kind) if is_bytes(kind) else None
            case ir.ParamRef(index):
                kind = ir.FieldType(*self.params[index])
                address = f"(const uint8_t *)(a + {argument_offset(self.params, index)})"
                return (address, kind) if is_bytes(kind) else None
        return None

    def _field(self, ref: ir.FieldRef) -> Number:
        kind = self.field_type(ref)
        text = self._packet.value(ref)
        if is_bytes(kind):
            return loaded(text, kind)
        if kind.signed:
            return wrapped(Number(f"(int128_t){text}", 0, (1 << kind.bits) - 1), kind.bits)
        return unsigned(f"({'int128_t' if kind.bits > 63 else 'int64_t'}){text}", kind.bits)

    def _param(self, index: int) -> Number:
        if array := self.bytes_of(ir.ParamRef(index)):
            return loaded(*array)
        bits, at = self.params[index][1], argument_offset(self.params, index)
        return unsigned(
            f"(int128_t)rt_wide_arg(a, {at})" if bits > 63 else f"(int64_t)a[{at}]", bits
        )

    def _operation(self, expr: ir.Op) -> Number:
        match expr.op, expr.operands:
            case "b2d", (operand,):
                return truth_value(self.truth(operand))
            case "~", (operand,):
                return complement(self.number(operand))
            case "two_comp_mod", (operand, ir.Const(bits)):
                return self.arithmetic.wrap(self.number(operand), bits)
            case "sat_cast" | "usat_cast" as op, (operand, ir.Const(bits)):
                return self._saturated(operand, bits, signed=op == "sat_cast")
            case "?", (condition, left, right):
                return choose(self.truth(condition), self.number(left), self.number(right))
            case op, (left, right):
                return self.arithmetic.binary(op, self.number(left), self.number(right))
        raise AssertionError(expr)  # the reader knows the operators and their operands

    def _saturated(self, operand: ir.Expr, bits: int, *, signed: bool) -> Number:
        match operand:
            case ir.Op("+" | "-" as op, (left, right)) if signed and bits == 32:
                a, b = self.number(left), self.number(right)
                if fits_word(a) and fits_word(b):  # the commonest case
                    return saturated_word(op, a, b)
                return self.arithmetic.saturate(calculate(op, a, b), bits, signed=True)
        return self.arithmetic.saturate(self.number(operand), bits, signed=signed)

    def _slice(self, part: ir.Expr, mask: int) -> Number | None:
        """Return ``field >> shift & mask`` if the field is an array of bytes, or None."""
        shift = 0
        match part:
            case ir.Op(">>", (shifted, ir.Const(by))):
                part, shift = shifted, by
        array = self.bytes_of(part)
        return sliced(*array, shift, mask) if array else None

    def _compared_bytes(self, op: str, left: ir.Expr, right: ir.Expr) -> str | None:
        """Return a byte-by-byte comparison of two arrays of bytes, or None if it is not possible."""
        kinds = [array[1] for array in map(self.bytes_of, (left, right)) if array]
        signs = {kind.signed for kind in kinds}
        if not kinds or len(signs) > 1 or (op not in ("==", "!=") and True in signs):
            return None
        a, b = (self._as_bytes(each, kinds[0]) for each in (left, right))
        return f"(rt_compare_bytes({a}, {b}) {op} 0)" if a and b else None

    def _as_bytes(self, expr: ir.Expr, like: ir.FieldType) -> str | None:
        """Return C text of the address and the number of the bytes, or None."""
        size = max(1, -(-like.bits // 8))
        array = self.bytes_of(expr)
        match expr:
            case ir.FieldRef(header, _) if array and array[1].varbit:
                return f"{array[0]}, {self._packet.length(header)}"
            case _ if array:
                return f"{array[0]}, {-(-array[1].bits // 8)}"
            case ir.Const(value) if 0 <= value < 1 << 8 * size:
                return f"{bytes_literal(value, size)}, {size}"
        return None

    def _comparison(self, op: str, left: ir.Expr, right: ir.Expr) -> str:
        if text := self._compared_bytes(op, left, right):
            return text
        if self.is_truth(left) and self.is_truth(right):
            return f"({self.truth(left)} {op} {self.truth(right)})"
        return self.arithmetic.compare(op, self.number(left), self.number(right))
