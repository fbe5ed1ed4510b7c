"""Fields of any width in C.

A field of up to 128 bits is an unsigned integer. A wider one, or a varbit, is an array of bytes,
most significant first and right-aligned. A packet holds a field in the same form if the field ends
at a byte boundary.
"""

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.text import c_type
from innet.switch.expressions.byte_arrays import is_bytes
from innet.switch.expressions.number import bytes_literal
from innet.switch.expressions.rendering import Expressions
from innet.switch.layout import argument_offset


def declaration(field: ir.FieldType) -> str:
    """Return the declaration of a field as a member of its header's structure."""
    if is_bytes(field):
        return f"uint8_t {field.name}[{size(field)}];"
    return f"{c_type(field.bits)} {field.name};"


def size(field: ir.FieldType) -> int:
    """Return the bytes of a field that is an array of bytes."""
    return max(1, (field.bits + 7) // 8)


def load(lvalue: str, field: ir.FieldType, source: str, offset: int, width: int) -> str:
    """Return a statement that sets a field to `width` bits that begin at bit `offset` of `source`.

    A field that is narrower gets the last of these bits.
    """
    taken = min(width, field.bits)
    offset += width - taken
    if is_bytes(field):
        return f"rt_load_bytes({lvalue}, {size(field)}, {source}, {offset}, {taken});"
    read = "rt_wide_bits" if taken > 64 else "rt_bits"
    return f"{lvalue} = ({c_type(field.bits)}){read}({source}, {offset}, {taken});"


def store(lvalue: str, field: ir.FieldType, target: str, offset: int | str) -> str:
    """Return a statement that writes a field to `target`, `offset` bits from its start."""
    put = "rt_put_bytes" if is_bytes(field) else "rt_put_bits"
    return f"{put}({target}, {offset}, {field.bits}, {lvalue});"


def of(register: ir.Register) -> ir.FieldType:
    """Return the type of a register's cells. It has no sign, even if the register has."""
    return ir.FieldType(register.name, register.bits)


def copy(lvalue: str, kind: ir.FieldType, source: str, source_kind: ir.FieldType) -> str:
    """Return a statement that sets a field to another of the same width."""
    if is_bytes(kind) or is_bytes(source_kind):
        return f"rt_copy_bytes({lvalue}, {kind.bits}, {source}, {size(source_kind)});"
    return f"{lvalue} = ({c_type(kind.bits)}){source};"


def put(lvalue: str, kind: ir.FieldType, number: str) -> str:
    """Return a statement that sets a field to the lowest bits of a uint64_t."""
    if is_bytes(kind):
        return f"rt_set_bytes({lvalue}, {size(kind)}, {number});"
    if kind.bits < 64 and kind.bits not in (8, 16, 32):
        number = f"({number}) & {hex((1 << kind.bits) - 1)}u"
    return f"{lvalue} = ({c_type(kind.bits)})({number});"


def assign(scope: Scope, lvalue: str, kind: ir.FieldType, value: ir.Expr) -> str:
    """Return a statement that sets a field to an expression, wrapped to the field's width."""
    expressions = scope.expressions
    if is_bytes(kind):
        return _assign_bytes(expressions, lvalue, kind, value)
    if isinstance(value, ir.ParamRef):
        at = argument_offset(expressions.params, value.index)
        text = f"rt_wide_arg(a, {at})" if kind.bits > 64 else f"a[{at}]"
        return f"{lvalue} = ({c_type(kind.bits)}){text};"
    return f"{lvalue} = ({c_type(kind.bits)})({expressions.stored(value, kind.bits)});"


def _assign_bytes(expressions: Expressions, lvalue: str, kind: ir.FieldType, value: ir.Expr) -> str:
    count = size(kind)
    while isinstance(value, ir.Op) and value.op == "&" and _covers(value.operands[1], kind.bits):
        value = value.operands[0]  # the target wraps anyway
    if isinstance(value, ir.Const):
        constant = bytes_literal(value.value % (1 << kind.bits), count)
        return f"memcpy({lvalue}, {constant}, {count});"
    if source := expressions.bytes_of(value):
        text, like = source
        if kind.varbit or like.varbit:
            raise UnsupportedProgram(
                "assigning a varbit to a field of another type is not supported"
            )
        if like.bits >= kind.bits or not like.signed:
            return f"rt_copy_bytes({lvalue}, {kind.bits}, {text}, {size(like)});"
    number = expressions.number(value)
    if number.unsigned:
        return f"rt_set_bytes({lvalue}, {count}, {expressions.low_128_bits(value)});"
    expressions.arithmetic.need_limbs(bits=kind.bits)
    return f"limbs_store({lvalue}, {kind.bits}, {number.limbs});"


def assign_slice(scope: Scope, target: ir.FieldRef, value: ir.Expr) -> str | None:
    """Return a statement that sets a slice of a field that is an array of bytes, or None.

    `value` must have p4c's form of such a slice: ``target & kept | part << shift & ~kept``.
    """
    kind = scope.expressions.field_type(target)
    match value:
        case ir.Op("|", (ir.Op("&", (ir.FieldRef() as old, ir.Const(kept))), part)) if (
            old == target
        ):
            new = (1 << kind.bits) - 1 & ~kept
        case _:
            return None
    shift = (new & -new).bit_length() - 1
    width = new.bit_length() - shift
    match part:
        case ir.Op("&", (ir.Op("<<", (value, ir.Const(by))), ir.Const(mask))) if by == shift:
            pass
        case ir.Op("&", (value, ir.Const(mask))) if shift == 0:
            pass
        case _:
            return None
    if mask != new or new >> shift != (1 << width) - 1 or width > 128:
        return None
    while isinstance(value, ir.Op) and value.op == "&" and _covers(value.operands[1], width):
        value = value.operands[0]
    offset = size(kind) * 8 - shift - width
    number = scope.expressions.number(ir.Op("&", (value, ir.Const((1 << width) - 1)))).text
    return f"rt_put_bits({scope.lvalue(target)}, {offset}, {width}, (uint128_t){number});"


def _covers(mask: ir.Expr, bits: int) -> bool:
    return isinstance(mask, ir.Const) and mask.value & ((1 << bits) - 1) == (1 << bits) - 1
