"""Fields that C stores as arrays of bytes: varbits, and numbers of more than 128 bits."""

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.expressions.number import Number, literal, wrapped_limbs
from innet.switch.layout import MAX_INTEGER_BITS


def is_bytes(field: ir.FieldType) -> bool:
    """Return whether C stores the field as an array of bytes rather than as an integer."""
    return field.varbit or field.bits > MAX_INTEGER_BITS


def loaded(address: str, kind: ir.FieldType) -> Number:
    """Return the number in an array of bytes. Raises UnsupportedProgram for a varbit."""
    if kind.varbit:
        raise UnsupportedProgram("arithmetic on a varbit is not supported")
    size = -(-kind.bits // 8)
    low = f"(int128_t)rt_wide_bits({address}, {8 * size - 128}, 128)"
    number = Number(low, 0, (1 << kind.bits) - 1, f"limbs_load({address}, {size})")
    return wrapped_limbs(number, kind.bits) if kind.signed else number


def sliced(address: str, kind: ir.FieldType, shift: int, mask: int) -> Number | None:
    """Return ``number >> shift & mask`` of an array of bytes if it is at most 128 bits, or None."""
    if kind.varbit or kind.signed or not 0 <= mask < 1 << 128:
        return None
    width = min(mask.bit_length(), kind.bits - shift)
    if width <= 0:
        return literal(0)
    offset = -(-kind.bits // 8) * 8 - shift - width
    read = "(int128_t)rt_wide_bits" if width > 63 else "(int64_t)rt_bits"
    text = f"{read}({address}, {offset}, {width})"
    full = (1 << width) - 1
    if mask & full != full:
        text = f"({text} & {literal(mask & full).text})"
    return Number(text, 0, mask & full)
