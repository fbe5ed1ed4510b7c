"""Fields of any width in C.

Up to 128 bits a field is an unsigned integer. A wider one, and a varbit, is an array of bytes, most
significant first and right-aligned, as in a packet whose field ends at a byte.
"""

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.text import c_name, c_type
from innet.switch.expressions import bytes_literal, is_bytes


def declaration(field: ir.FieldType) -> str:
    """The field as a member of its header's structure."""
    if is_bytes(field):
        return f"u8 {c_name(field.name)}[{size(field)}];"
    return f"{c_type(field.bits)} {c_name(field.name)};"


def size(field: ir.FieldType) -> int:
    """Bytes of a field that is an array of bytes."""
    return max(1, (field.bits + 7) // 8)


def load(place: str, field: ir.FieldType, source: str, offset: int, width: int) -> str:
    """A statement that sets a field to the last of `width` bits from `offset` on in `source`."""
    taken = min(width, field.bits)
    offset += width - taken
    if is_bytes(field):
        return f"rt_load_bytes({place}, {size(field)}, {source}, {offset}, {taken});"
    read = "rt_wide_bits" if taken > 64 else "rt_bits"
    return f"{place} = ({c_type(field.bits)}){read}({source}, {offset}, {taken});"


def store(place: str, field: ir.FieldType, target: str, offset: int | str) -> str:
    """A statement that writes a field to `target`, `offset` bits from its start."""
    put = "rt_put_bytes" if is_bytes(field) else "rt_put_bits"
    return f"{put}({target}, {offset}, {field.bits}, {place});"


def assign(scope: Scope, target: ir.FieldRef, value: ir.Expr) -> None:
    """Set a field that is an array of bytes."""
    expressions = scope.expressions
    kind = expressions.field_type(target)
    place, count = scope.place(target), size(kind)
    while isinstance(value, ir.Op) and value.op == "&" and _covers(value.operands[1], kind.bits):
        value = value.operands[0]  # the target wraps anyway
    match value:
        case ir.Const(constant):
            scope.emit(
                f"memcpy({place}, {bytes_literal(constant % (1 << kind.bits), count)}, {count});"
            )
            return
        case ir.FieldRef() if is_bytes(source := expressions.field_type(value)):
            if source.varbit or kind.varbit or (source.signed and source.bits < kind.bits):
                raise UnsupportedProgram(f"assigning {source.name} to {kind.name}")
            scope.emit(
                f"rt_copy_bytes({place}, {kind.bits}, {scope.value(value)}, {size(source)});"
            )
            return
        case ir.ParamRef(index) if expressions.params[index][1] <= 128:
            scope.emit(f"rt_set_bytes({place}, {count}, rt_wide_arg(a, {index}));")
            return
        case ir.FieldRef() if not expressions.field_type(value).signed:
            scope.emit(f"rt_set_bytes({place}, {count}, {expressions.wide(value)});")
            return
        case ir.Op("|", (ir.Op("&", (ir.FieldRef() as old, ir.Const(kept))), part)) if (
            old == target
        ):
            _assign_slice(scope, target, part, kept)
            return
    number = expressions.number(value)
    if number.low < 0:
        raise UnsupportedProgram(f"a signed value in {kind.name}, which has {kind.bits} bits")
    scope.emit(f"rt_set_bytes({place}, {count}, (u128){number.text});")


def _assign_slice(scope: Scope, target: ir.FieldRef, part: ir.Expr, kept: int) -> None:
    """Set the bits that are not kept, which lie next to each other, as p4c assigns a slice."""
    kind = scope.expressions.field_type(target)
    new = (1 << kind.bits) - 1 & ~kept
    shift = (new & -new).bit_length() - 1
    width = new.bit_length() - shift
    match part:
        case ir.Op("&", (ir.Op("<<", (value, ir.Const(by))), ir.Const(mask))) if by == shift:
            pass
        case ir.Op("&", (value, ir.Const(mask))) if shift == 0:
            pass
        case _:
            raise UnsupportedProgram(f"arithmetic on {kind.name}, {kind.bits} bits wide")
    if mask != new or new >> shift != (1 << width) - 1 or width > 126:
        raise UnsupportedProgram(f"arithmetic on {kind.name}, {kind.bits} bits wide")
    while isinstance(value, ir.Op) and value.op == "&" and _covers(value.operands[1], width):
        value = value.operands[0]
    offset = size(kind) * 8 - shift - width
    number = scope.expressions.number(ir.Op("&", (value, ir.Const((1 << width) - 1)))).text
    scope.emit(f"rt_put_bits({scope.place(target)}, {offset}, {width}, (u128){number});")


def _covers(mask: ir.Expr, bits: int) -> bool:
    return isinstance(mask, ir.Const) and mask.value & ((1 << bits) - 1) == (1 << bits) - 1
