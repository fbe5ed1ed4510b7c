"""The reader of the parser's states."""

from innet.errors import UnsupportedProgram
from innet.switch import ir, limits
from innet.switch.bmv2json.actions import Actions, expect, source
from innet.switch.bmv2json.document import JsonObject, malformed, unique
from innet.switch.bmv2json.expressions import Expressions
from innet.switch.bmv2json.packet import Packet


class Parser:
    """The parser of a program: its states, and the value sets that they select by."""

    def __init__(self, document: JsonObject, packet: Packet, actions: Actions) -> None:
        self._packet, self._actions = packet, actions
        self._expressions = Expressions(packet)
        sets = [_value_set(each) for each in document.nodes("parse_vsets")]
        self.value_sets = unique(((each.name, each) for each in sets), "value sets with the name")
        parsers = document.nodes("parsers")
        if not parsers:
            raise malformed("there is no parser")
        nodes = parsers[0].nodes("parse_states")
        self._names = unique(
            ((name := each.text("name"), name) for each in nodes), "parser states with the name"
        )
        self.start = self._next(parsers[0], "init_state")
        self.states = tuple(map(self._state, nodes))

    def _next(self, node: JsonObject, key: str) -> str | None:
        return node.known(key, self._names, "parser state") if node.has(key) else None

    def _state(self, node: JsonObject) -> ir.ParserState:
        return ir.ParserState(
            node.text("name"),
            tuple(self._operation(each) for each in node.nodes("parser_ops")),
            tuple(self._select_key(each) for each in node.nodes("transition_key")),
            tuple(self._transition(each) for each in node.nodes("transitions")),
        )

    def _select_key(self, node: JsonObject) -> tuple[ir.Expr, int]:
        expr = self._union_field(node) or self._expressions.read(node)
        match expr:
            case ir.FieldRef() if not self._packet.field_type(expr).varbit:
                return expr, self._expressions.width(expr)
            case ir.Lookahead():
                return expr, expr.bits
        raise UnsupportedProgram(f"select keys of type {node.get('type')!r} are not supported")

    def _union_field(self, node: JsonObject) -> ir.FieldRef | None:
        """Return a field of the last union of a stack, which only a select key can name."""
        if node.get("type") != "union_stack_field":
            return None
        match node.get("value"):
            case [union_stack, member, field]:
                stack = self._packet.member_stack(node, union_stack, member)
                last = ir.Element(stack.name, ir.LastIndex(stack.counter))
                return self._packet.field(node, last, field)
        raise node.error("the value does not name a stack, a header and a field")

    def _transition(self, node: JsonObject) -> ir.Transition:
        following = self._next(node, "next_state")
        kind = node.optional_text("type") or "hexstr"  # p4c writes the type since May 2020
        if kind == "hexstr" and node.get("value") == "default":
            kind = "default"
        match kind:
            case "default":
                return ir.Transition(None, None, following)
            case "hexstr":
                mask = node.hexadecimal("mask") if node.has("mask") else None
                return ir.Transition(node.hexadecimal("value"), mask, following)
            case "parse_vset" if not node.has("mask"):
                value_set = node.known("value", self.value_sets, "value set")
                return ir.Transition(value_set.name, None, following)
        raise UnsupportedProgram(f"parser transitions of type {kind!r} are not supported")

    def _operation(self, node: JsonObject) -> ir.Primitive:
        place = source(node)
        try:
            return self._read(node, place)
        except UnsupportedProgram as problem:
            raise UnsupportedProgram(f"{place.prefix}{problem}") from None

    def _read(self, node: JsonObject, place: ir.SourceLocation) -> ir.Primitive:
        match op := node.text("op"):
            case "primitive":
                (primitive,) = expect(node, 1)
                return self._actions.parser_step(primitive)
            case "extract":
                (target,) = expect(node, 1)
                return ir.Primitive("extract", (self._extracted(target),), place)
            case "extract_VL":
                target, length = expect(node, 2)
                arguments = self._extracted(target), self._expressions.read(length)
                return ir.Primitive("extract", arguments, place)
            case "set":
                target, value = expect(node, 2)
                reader = self._expressions
                return ir.Primitive(op, (reader.target(target), reader.read(value)), place)
            case "advance":
                (distance,) = expect(node, 1)
                return ir.Primitive(op, (self._expressions.read(distance),), place)
            case "verify":
                return ir.Primitive(op, self._verified(node), place)
            case "shift":
                return ir.Primitive("advance", (_bits(node),), place)
        raise UnsupportedProgram(f"parser operation {op!r} is not supported")

    def _verified(self, node: JsonObject) -> tuple[ir.Expr, ir.Expr]:
        """Return the condition and the error's code, which p4c wrote as a plain number in 2017."""
        match node.items("parameters"):
            case [JsonObject() as condition, JsonObject() as error]:
                return self._expressions.read(condition), self._expressions.read(error)
            case [JsonObject() as condition, code]:
                limits.number("verify: the code of its error", code, limits.MAX_ID)
                return self._expressions.read(condition), ir.Const(code)
        raise node.error("verify has a condition and an error")

    def _extracted(self, target: JsonObject) -> ir.Name:
        kind = target.text("type")
        match kind, target.get("value"):
            case "regular", name:
                header = self._packet.header(target, name)
                if self._packet.headers[header].metadata:
                    raise UnsupportedProgram(f"{header} is metadata, which is in no packet")
                return ir.Name("header", header)
            case "stack", name:
                return ir.Name("header_stack", self._packet.stack(target, name).name)
            case "union_stack", [union_stack, member]:
                stack = self._packet.member_stack(target, union_stack, member)
                return ir.Name("header_stack", stack.name)
        raise UnsupportedProgram(f"extracting a {kind} is not supported")


def _bits(node: JsonObject) -> ir.Const:
    """Return the bits that the old operation `shift` skips. It gives them as a plain number of bytes."""
    match node.items("parameters"):
        case [distance]:
            most = limits.MAX_BITS // 8
            return ir.Const(8 * limits.number("shift: the number of bytes", distance, most))
    raise node.error("shift has a number of bytes")


def _value_set(node: JsonObject) -> ir.ValueSet:
    return ir.ValueSet(node.text("name"), node.width("compressed_bitwidth", node.text("name")))
