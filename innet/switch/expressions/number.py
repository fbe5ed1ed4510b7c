"""Integers in C: text, and the range of values that decides the text's type."""

from dataclasses import dataclass

from innet.errors import UnsupportedProgram

I64 = (-(1 << 63), (1 << 63) - 1)
I128 = (-(1 << 127), (1 << 127) - 1)
_INT = 1 << 31


@dataclass(frozen=True)
class Number:
    """A C expression of an integer, with the smallest and the largest value that it can have.

    The text has the type int64_t if the range allows it, and int128_t otherwise. If the value is not
    `exact`, the text has only its lowest 128 bits. `all_limbs` is an expression of the type ``struct
    limbs``, if the value may need one.
    """

    text: str
    low: int
    high: int
    all_limbs: str = ""

    @property
    def wide(self) -> bool:
        """Return whether the text has the type int128_t rather than int64_t."""
        return self.low < I64[0] or self.high > I64[1]

    @property
    def exact(self) -> bool:
        """Return whether the text has the whole value."""
        return self.low >= I128[0] and self.high <= I128[1]

    @property
    def unsigned(self) -> bool:
        """Return whether the text, as a uint128_t, has the whole value, also beyond an int128_t."""
        return self.low >= 0 and self.high < 1 << 128

    @property
    def limbs(self) -> str:
        """Return C text with all bits of the value that fit the program's limbs."""
        if self.unsigned and not self.exact:
            return f"limbs_unsigned((uint128_t){self.text})"
        return f"limbs({self.text})" if self.exact else self.all_limbs

    @property
    def bits(self) -> int:
        """Return the number of bits, including the sign, that the limbs need for the whole value."""
        return max(self.low.bit_length(), self.high.bit_length()) + 1


def constant(value: int) -> Number:
    """Return a constant as an operand, whose text is never an int."""
    small = abs(value) < _INT
    return Number(f"INT64_C({value})", value, value) if small else literal(value)


def literal(value: int, *, unsigned: bool = False) -> Number:
    """Return a constant. With `unsigned`, text of more than 64 bits has the type uint128_t.

    Small constants are an int in C, which an operator with two of them, or a shift, may overflow.
    """
    limbs = ""
    if I64[0] < value <= I64[1]:
        text = str(value) if abs(value) < _INT else f"INT64_C({value})"
    elif 0 <= value < 1 << 128:
        kind = "uint128_t" if unsigned or value >> 127 else "int128_t"
        text = f"(({kind})UINT64_C({value >> 64}) << 64 | UINT64_C({value & (1 << 64) - 1}))"
    elif value < 0:  # C has no negative literals
        other = literal(-1 - value)
        text, limbs = f"(-1 - {other.text})", f"limbs_not({other.limbs})"
    else:
        size = -(-value.bit_length() // 8)
        limbs = f"limbs_load({bytes_literal(value, size)}, {size})"
        text = f"(int128_t){literal(value & (1 << 128) - 1, unsigned=True).text}"
    return Number(text, value, value, limbs)


def bytes_literal(value: int, count: int) -> str:
    """Return C text of a constant as an array of bytes, most significant first."""
    try:
        content = ", ".join(map(str, value.to_bytes(count, "big")))
    except OverflowError:
        raise UnsupportedProgram(f"the constant {value:#x} has more than {count} bytes") from None
    return f"(const uint8_t[]){{{content}}}"


def truth_value(text: str) -> Number:
    """Return a condition as the number 0 or 1."""
    return Number(f"(int64_t){text}", 0, 1)


def unsigned(text: str, bits: int) -> Number:
    """Return an unsigned number of at most 128 bits."""
    return Number(text, 0, (1 << bits) - 1)


def low_bits(text: str, low: int, high: int, limbs: str) -> Number:
    """Return a number in this range, whose lowest 128 bits `text` holds in a 128-bit type."""
    cast = "int64_t" if I64[0] <= low and high <= I64[1] else "int128_t"
    return Number(f"({cast}){text}", low, high, limbs)


def of_limbs(limbs: str, low: int, high: int) -> Number:
    """Return a number in this range that is computed in limbs."""
    return low_bits(f"limbs_low({limbs})", low, high, limbs)


def wrapped(a: Number, bits: int) -> Number:
    """Return a number wrapped to a signed one of at most 128 bits."""
    low, high = -(1 << bits - 1), (1 << bits - 1) - 1
    if bits in (8, 16, 32, 64):
        return Number(f"(int64_t)(int{bits}_t){a.text}", low, high)
    cast = "(int64_t)" if bits < 64 else ""
    return Number(f"{cast}rt_signed({a.text}, {bits})", low, high)


def wrapped_limbs(a: Number, bits: int) -> Number:
    """Return a number wrapped to a signed one of more than 128 bits."""
    limbs = f"limbs_signed({a.limbs}, {bits})"
    return Number(a.text, -(1 << bits - 1), (1 << bits - 1) - 1, limbs)
