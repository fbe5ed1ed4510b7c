"""P4's operators on numbers in C: the text of each result, and its range."""

from collections.abc import Callable

from innet.errors import UnsupportedProgram
from innet.switch.expressions.number import (
    I64,
    I128,
    Number,
    literal,
    low_bits,
    of_limbs,
    wrapped,
    wrapped_limbs,
)

_MAX_BITS = 1 << 14
"""The most bits that a value may need before it is wrapped. Larger shifts count as boundless."""

_BOUNDLESS = 1 << (1 << 16)

_PYTHON: dict[str, Callable[[int, int], int]] = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "*": lambda x, y: x * y,
}
_LIMBS = {
    "+": "add", "-": "subtract", "*": "multiply", "&": "and", "|": "or", "^": "xor",
}  # fmt: skip


class Arithmetic:
    """The operators whose results may need limbs, in one program."""

    def __init__(self) -> None:
        self.limb_bits = 0
        """The bits of the widest value that has needed limbs so far."""

    def need_limbs(self, *numbers: Number, bits: int = 0) -> None:
        """Make room in the limbs for these numbers. Raises UnsupportedProgram if they are too wide."""
        self.limb_bits = max(self.limb_bits, bits, *(number.bits for number in numbers))
        if self.limb_bits > _MAX_BITS:
            raise UnsupportedProgram(f"a value of more than {_MAX_BITS} bits is not supported")

    def binary(self, op: str, a: Number, b: Number) -> Number:
        """Return the result of an operator with two operands."""
        match op:
            case "<<":
                return self._shift_left(a, b)
            case ">>":
                return self._shift_right(a, b)
            case "&" | "|" | "^":
                return combine(op, a, b)
        return calculate(op, a, b)

    def _shift_left(self, a: Number, b: Number) -> Number:
        """Return ``a << b``."""
        _check_distance(b)
        if b.high <= _MAX_BITS:
            low, high = min(a.low << b.high, a.low), max(a.high << b.high, a.high)
        else:
            low, high = -_BOUNDLESS if a.low < 0 else 0, _BOUNDLESS
        if b.high < 127 and I128[0] <= low and high <= I128[1]:
            cast = "int64_t" if I64[0] <= low and high <= I64[1] else "int128_t"
            return Number(f"(({cast}){a.text} * (({cast})1 << {b.text}))", low, high)
        by = self._distance(b)
        text, limbs = f"rt_shift_left({a.text}, {by})", f"limbs_shift_left({a.limbs}, {by})"
        result = Number(text, low, high, limbs)
        return result if result.wide else low_bits(text, low, high, limbs)

    def _shift_right(self, a: Number, b: Number) -> Number:
        """Return ``a >> b``."""
        _check_distance(b)
        distances = [min(end, 2 * _BOUNDLESS.bit_length()) for end in (b.low, b.high)]
        ends = [x >> by for x in (a.low, a.high) for by in distances]
        low, high = min(ends), max(ends)
        if not a.wide and b.high < 64:
            return Number(f"({a.text} >> {b.text})", low, high)
        by = self._distance(b)
        if not (a.exact or a.unsigned):
            self.need_limbs(a)
            return of_limbs(f"limbs_shift_right({a.limbs}, {by})", low, high)
        shift = "rt_shift_right" if a.exact else "rt_unsigned_shift_right"
        result = Number(f"{shift}({a.text}, {by})", low, high)
        return result if result.wide else Number(f"(int64_t){result.text}", low, high)

    def _distance(self, by: Number) -> str:
        """Return C text of a shift's distance. Beyond 127 bits, the text is at least 127."""
        if by.exact:
            return by.text
        self.need_limbs(by)
        return f"limbs_amount({by.limbs})"

    def wrap(self, a: Number, bits: int) -> Number:
        """Return a number wrapped to a signed one of `bits` bits."""
        if bits <= 128:
            return wrapped(a, bits)
        self.need_limbs(bits=bits)
        return a if a.exact else wrapped_limbs(a, bits)

    def saturate(self, a: Number, bits: int, *, signed: bool) -> Number:
        """Return the nearest number of `bits` bits."""
        least, most = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)
        low, high = (min(max(end, least), most) for end in (a.low, a.high))
        if not a.exact:
            self.need_limbs(a, bits=bits + 1)
            saturate = "limbs_saturate_signed" if signed else "limbs_saturate"
            return of_limbs(f"{saturate}({a.limbs}, {bits})", low, high)
        if not a.wide and bits < 64:
            bounds = f"{literal(least).text}, {literal(most).text}"
            return Number(f"rt_clamp({a.text}, {bounds})", low, high)
        ends = (literal(min(max(end, I128[0]), I128[1])).text for end in (least, most))
        result = Number(f"rt_wide_clamp({a.text}, {', '.join(ends)})", low, high)
        return result if result.wide else Number(f"(int64_t){result.text}", low, high)

    def compare(self, op: str, a: Number, b: Number) -> str:
        """Return C text of a comparison."""
        if a.exact and b.exact:
            return f"({a.text} {op} {b.text})"
        if a.unsigned and b.unsigned:
            return f"((uint128_t){a.text} {op} (uint128_t){b.text})"
        self.need_limbs(a, b)
        return f"(limbs_compare({a.limbs}, {b.limbs}) {op} 0)"


def calculate(op: str, a: Number, b: Number) -> Number:
    """Return a sum, a difference or a product."""
    ends = [_PYTHON[op](x, y) for x in (a.low, a.high) for y in (b.low, b.high)]
    low, high = min(ends), max(ends)
    result = Number(f"({a.text} {op} {b.text})", low, high)
    if not (a.exact and b.exact and result.exact):
        limbs = f"limbs_{_LIMBS[op]}({a.limbs}, {b.limbs})"
        return low_bits(f"((uint128_t){a.text} {op} (uint128_t){b.text})", low, high, limbs)
    return Number(f"((int128_t){a.text} {op} {b.text})", low, high) if result.wide else result


def combine(op: str, a: Number, b: Number) -> Number:
    """Return ``a & b``, ``a | b`` or ``a ^ b``."""
    text = f"({a.text} {op} {b.text})"
    if op == "&" and (a.low >= 0 or b.low >= 0):
        low, high = 0, min(each.high for each in (a, b) if each.low >= 0)
    else:
        ends = (a.low, a.high, b.low, b.high)
        bits = max((each if each >= 0 else ~each).bit_length() for each in ends)
        low, high = 0 if a.low >= 0 and b.low >= 0 else -(1 << bits), (1 << bits) - 1
    result = Number(text, low, high)
    if not (a.exact and b.exact):
        if op == "&" and a.low >= 0 and b.low == b.high and _keeps(b.low, a.high):
            return a
        return low_bits(text, low, high, f"limbs_{_LIMBS[op]}({a.limbs}, {b.limbs})")
    return (
        result if result.wide or not (a.wide or b.wide) else Number(f"(int64_t){text}", low, high)
    )


def complement(a: Number) -> Number:
    """Return ``~a``."""
    return Number(f"(~{a.text})", ~a.high, ~a.low, f"limbs_not({a.limbs})")


def choose(truth: str, a: Number, b: Number) -> Number:
    """Return ``truth ? a : b``."""
    low, high = min(a.low, b.low), max(a.high, b.high)
    text = f"({truth} ? {a.text} : {b.text})"
    if a.exact and b.exact:
        return Number(text, low, high)
    return low_bits(text, low, high, f"({truth} ? {a.limbs} : {b.limbs})")


def fits_word(a: Number) -> bool:
    """Return whether a number surely fits 32 bits with a sign."""
    return a.low >= -(1 << 31) and a.high < 1 << 31


def saturated_word(op: str, a: Number, b: Number) -> Number:
    """Return the saturated sum or difference of 32-bit numbers, computed in 32 bits.

    A vector register holds twice as many of them as of 64-bit numbers.
    """
    name = "rt_saturated_sum" if op == "+" else "rt_saturated_difference"
    text = f"(int64_t){name}((int32_t){a.text}, (int32_t){b.text})"
    return Number(text, -(1 << 31), (1 << 31) - 1)


def _keeps(mask: int, high: int) -> bool:
    """Return whether a mask leaves all numbers from 0 to `high` unchanged."""
    return high <= mask & ~(mask + 1)


def _check_distance(by: Number) -> None:
    if by.low < 0:
        raise UnsupportedProgram("a shift by a number that may be negative is not supported")
