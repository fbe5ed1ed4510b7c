"""The reader of expressions, and of the references to fields in them."""

from typing import Any

from innet.errors import UnsupportedProgram
from innet.switch import ir, limits
from innet.switch.bmv2json.document import JsonObject
from innet.switch.bmv2json.packet import Packet

_UNARY, _BINARY, _TERNARY = ("right",), ("left", "right"), ("cond", "left", "right")
_OPERANDS = {
    **dict.fromkeys("~ not d2b b2d".split(), _UNARY),
    **dict.fromkeys("+ - * << >> & | ^ == != < > <= >= and or".split(), _BINARY),
    **dict.fromkeys("two_comp_mod usat_cast sat_cast".split(), _BINARY),
    "?": _TERNARY,
}
"""The operators, each with the parts of the JSON that have its operands."""

_TO_WIDTH = frozenset({"two_comp_mod", "usat_cast", "sat_cast"})
_SHIFTS = frozenset({"<<", ">>"})
_SIGNS = frozenset({"+", "-"})
"""The operators that may have only a right operand."""


class Expressions:
    """A reader of expressions in a part of the program that has `parameters` parameters."""

    def __init__(self, packet: Packet, parameters: int = 0) -> None:
        self._packet, self._parameters = packet, parameters

    def read(self, node: JsonObject) -> ir.Expr:
        """Return an expression. Raises UnsupportedProgram."""
        match kind := node.text("type"):
            case "hexstr":
                return ir.Const(node.hexadecimal("value"))
            case "bool":
                return ir.Bool(node.flag("value", default=False))
            case "field":
                return self.field(node, "value")
            case "stack_field":
                return self._field_of_last(node)
            case "local" | "runtime_data":
                return self._argument(node)
            case "lookahead":
                return self._lookahead(node)
            case "expression":
                value = node.node("value")
                return self._operation(value) if value.has("op") else self.read(value)
        raise UnsupportedProgram(f"operands of type {kind!r} are not supported")

    def field(self, node: JsonObject, key: str) -> ir.FieldRef:
        """Return a reference to a field: a header, or an element of a stack, and the field's name."""
        match node.get(key):
            case [str() as header, name]:
                if header in self._packet.union_stacks:
                    raise UnsupportedProgram(
                        f"{header}.last: fields of the last union of a stack are not supported"
                    )
                return self._packet.field(node, self._packet.header(node, header), name)
            case [JsonObject() as element, name]:
                return self._packet.field(node, self.element(element), name)
        raise node.error(f"the {key} does not name a header and a field")

    def target(self, node: JsonObject) -> ir.FieldRef:
        """Return the field that an assignment sets."""
        expr = self.read(node)
        if not isinstance(expr, ir.FieldRef):
            raise node.error("only a field can be set")
        return expr

    def constant(self, node: JsonObject, maximum: int, name: str, *, minimum: int = 0) -> ir.Const:
        """Return a constant from `minimum` to `maximum`. Messages call it `name`."""
        expr = self.read(node)
        if not isinstance(expr, ir.Const):
            raise UnsupportedProgram(f"{name} has to be a constant")
        limits.number(name, expr.value, maximum, minimum)
        return expr

    def element(self, node: JsonObject) -> ir.Element:
        """Return the stack element that a runtime index selects."""
        node = innermost(node)
        if node.get("op") != "dereference_header_stack":
            raise UnsupportedProgram(f"{node.get('op')!r} cannot stand for a header")
        stack = self._packet.stack(node, node.node("left").get("value"))
        return ir.Element(stack.name, self.read(node.node("right")))

    def width(self, ref: ir.FieldRef) -> int:
        """Return the width of a field in bits."""
        return self._packet.field_type(ref).bits

    def _field_of_last(self, node: JsonObject) -> ir.FieldRef:
        match node.get("value"):
            case [stack, field]:
                name = self._packet.stack(node, stack).name
                return self._packet.field(node, ir.Element(name, ir.LastIndex(name)), field)
        raise node.error("the value does not name a stack and a field")

    def _argument(self, node: JsonObject) -> ir.ParamRef:
        if not self._parameters:
            raise node.error("there are no arguments here: only actions have some")
        return ir.ParamRef(node.number("value", self._parameters - 1))

    def _lookahead(self, node: JsonObject) -> ir.Lookahead:
        match node.get("value"):
            case [offset, bits, *_]:
                return ir.Lookahead(*(limits.width("lookahead", each) for each in (offset, bits)))
        raise node.error("the value is not an offset and a width")

    def _operation(self, node: JsonObject) -> ir.Expr:
        match op := node.text("op"):
            case "access_field":
                element = self.element(node.node("left"))
                fields = self._packet.type_of(element).fields
                return ir.FieldRef(element, fields[node.number("right", len(fields) - 1)].name)
            case "last_stack_index":
                stacks: dict[str, Any] = {**self._packet.stacks, **self._packet.union_stacks}
                right = node.node("right")
                return ir.LastIndex(right.known("value", stacks, "header stack").name)
            case "valid":
                right = node.node("right")
                header = self._packet.header(right, right.get("value"))
                return ir.Op("d2b", (ir.FieldRef(header, ir.VALID),))
            case "valid_union":
                right = node.node("right")
                return ir.UnionValidity(right.known("value", self._packet.unions, "union").name)
        if op not in _OPERANDS:
            raise UnsupportedProgram(f"operator {op!r} is not supported")
        if op in _SIGNS and not node.has("left"):
            return operation(op, (ir.Const(0), self.read(node.node("right"))))
        return operation(op, tuple(self.read(node.node(key)) for key in _OPERANDS[op]))


def operation(op: str, operands: tuple[ir.Expr, ...]) -> ir.Expr:
    """Return the expression of an operator. Raises UnsupportedProgram if it cannot be computed."""
    match op, operands:
        case "&", (ir.Op("&", (inner, ir.Const(mask))), ir.Const(other)):
            return ir.Op("&", (inner, ir.Const(mask & other)))  # a cast, or a cast of a cast
        case op, (_, ir.Const(bits)) if op in _TO_WIDTH:
            limits.width(op, bits, minimum=1)
        case op, _ if op in _TO_WIDTH:
            raise UnsupportedProgram(f"{op}: the width has to be a constant")
        case op, (_, ir.Const(distance)) if op in _SHIFTS and distance < 0:
            raise UnsupportedProgram(
                f"a shift by {limits.shown(distance)}, which is negative, is not supported"
            )
    return ir.Op(op, operands)


def innermost(node: JsonObject) -> JsonObject:
    """Return the operation inside of an expression, without the layers around it."""
    while node.get("type") == "expression" and not node.has("op"):
        node = node.node("value")
    return node
