"""The reader of actions and of their steps, which p4c calls primitives."""

import re
from collections.abc import Mapping

from innet.errors import UnsupportedProgram
from innet.switch import ir, limits
from innet.switch.bmv2json.document import JsonObject
from innet.switch.bmv2json.expressions import Expressions, operation
from innet.switch.bmv2json.externs import Externs
from innet.switch.bmv2json.packet import Packet

Named = Mapping[str, Mapping[str, object]]
Argument = ir.Expr | ir.Name | ir.Element | ir.Format

_ARGUMENTS = {
    "assign": "field expression",
    "assign_header": "header header",
    "assign_header_stack": "header_stack header_stack",
    "assign_union": "header_union header_union",
    "assign_union_stack": "header_union_stack header_union_stack",
    "assign_VL": "field expression",
    "add_header": "header",
    "remove_header": "header",
    "push": "stack count",
    "pop": "stack count",
    "register_read": "field register_array expression",
    "register_write": "register_array expression expression",
    "count": "counter_array expression",
    "execute_meter": "meter_array expression field",
    "modify_field_with_hash_based_offset": "field expression calculation expression",
    "modify_field_rng_uniform": "field expression expression",
    "drop": None,
    "exit": "",
    "no_op": "",
    "_jump": "step",
    "_jump_if_zero": "expression step",
    "clone_ingress_pkt_to_egress": "expression expression",
    "clone_egress_pkt_to_egress": "expression expression",
    "resubmit": "expression",
    "recirculate": "expression",
    "generate_digest": "expression expression",
    "truncate": "expression",
}
"""The primitives, each with the kinds of its arguments, or None if these do not matter."""

_RENAMED = {"modify_field": "assign", "copy_header": "assign_header"}
"""P4_14's names of primitives."""

_ARITHMETIC = {
    "add_to_field": "+",
    "subtract_from_field": "-",
    "add": "+",
    "subtract": "-",
    "bit_and": "&",
    "bit_or": "|",
    "bit_xor": "^",
    "shift_left": "<<",
    "shift_right": ">>",
}
"""P4_14's primitives that assign the result of an operator."""

_IN_PLACE = frozenset({"add_to_field", "subtract_from_field"})
_COPIES = frozenset({"assign_header", "assign_header_stack", "assign_union", "assign_union_stack"})
_ONLY_IN_ACTIONS = frozenset({"_jump", "_jump_if_zero", "exit", "assert", "assume"})


class Actions:
    """A reader of actions, and of primitives in parser states."""

    def __init__(self, packet: Packet, externs: Externs) -> None:
        self._packet, self._named = packet, _named(packet, externs)

    def read(self, node: JsonObject) -> ir.Action:
        """Return an action. Raises UnsupportedProgram."""
        params = tuple(
            (each.text("name"), each.width("bitwidth", each.text("name")))
            for each in node.nodes("runtime_data")
        )
        primitives = node.nodes("primitives")
        steps = _Steps(self._packet, self._named, len(params), len(primitives))
        return ir.Action(
            node.number("id", limits.MAX_ID),
            node.text("name"),
            params,
            tuple(map(steps.read, primitives)),
        )

    def parser_step(self, node: JsonObject) -> ir.Primitive:
        """Return a primitive of a parser state. Raises UnsupportedProgram."""
        if (op := node.text("op")) in _ONLY_IN_ACTIONS:
            raise UnsupportedProgram(
                f"{source(node).prefix}{op} in a parser state is not supported"
            )
        return _Steps(self._packet, self._named, 0, 0).read(node)


def _named(packet: Packet, externs: Externs) -> Named:
    """Return all that primitives can refer to by name, by its type in the JSON."""
    return {
        "header": packet.headers,
        "header_stack": packet.stacks,
        "header_union": packet.unions,
        "header_union_stack": packet.union_stacks,
        "register_array": externs.registers,
        "counter_array": externs.counters,
        "meter_array": externs.meters,
        "calculation": externs.calculations,
    }


class _Steps:
    """A reader of the steps of one body, which has `count` steps and `parameters` parameters."""

    def __init__(self, packet: Packet, named: Named, parameters: int, count: int) -> None:
        self._packet, self._count = packet, count
        self._expressions = Expressions(packet, parameters)
        self._named = named

    def read(self, node: JsonObject) -> ir.Primitive:
        place = source(node)
        try:
            return self._primitive(node, place)
        except UnsupportedProgram as problem:
            raise UnsupportedProgram(f"{place.prefix}{problem}") from None

    def _primitive(self, node: JsonObject, place: ir.SourceLocation) -> ir.Primitive:
        op = node.text("op")
        if op in _ARITHMETIC:
            parameters = expect(node, 2 if op in _IN_PLACE else 3)
            target = self._expressions.target(parameters[0])
            left, right = map(self._expressions.read, parameters[-2:])
            value = operation(_ARITHMETIC[op], (left, right))
            return ir.Primitive("assign", (target, value), place)
        op = _RENAMED.get(op, op)
        return ir.Primitive(op, self._arguments(node, op, place), place)

    def _arguments(
        self, node: JsonObject, op: str, place: ir.SourceLocation
    ) -> tuple[Argument, ...]:
        if op == "log_msg":
            return self._log_arguments(*expect(node, 2))
        if op in ("assert", "assume"):
            (condition,) = expect(node, 1)
            return self._expressions.read(condition), ir.Format((str(place),))
        if op == "mark_to_drop":
            return self._marked(node)
        if op not in _ARGUMENTS:
            raise UnsupportedProgram(f"primitive {op!r} is not supported")
        if (text := _ARGUMENTS[op]) is None:
            return ()
        kinds = text.split()
        arguments = tuple(map(self._argument, expect(node, len(kinds)), kinds))
        if op in _COPIES:
            self._check_types(node, *arguments)
        return arguments

    def _marked(self, node: JsonObject) -> tuple[ir.Name, ...]:
        """Return the copy of standard metadata that is marked, or nothing for the packet's own."""
        if not node.nodes("parameters"):
            return ()
        [parameter] = expect(node, 1)
        marked = self._reference(parameter, "header")
        return () if marked.name == ir.STANDARD_METADATA else (marked,)

    def _argument(self, node: JsonObject, kind: str) -> Argument:
        match kind:
            case "expression":
                return self._expressions.read(node)
            case "field":
                return self._expressions.target(node)
            case "step":
                return self._expressions.constant(node, self._count, "the target of a jump")
            case "count":
                return self._expressions.constant(node, limits.MAX_ID, "the count of a push or pop")
            case "stack" if node.get("type") == "header_union_stack":
                return self._reference(node, "header_union_stack")
            case "stack":
                return self._reference(node, "header_stack")
            case "header" if node.get("type") == "expression":
                return self._expressions.element(node)
        return self._reference(node, kind)

    def _reference(self, node: JsonObject, kind: str) -> ir.Name:
        if node.get("type") != kind:
            raise node.error(f"its type is {node.get('type')!r}, not {kind!r}")
        name = node.text("value")
        node.look_up(name, self._named[kind], kind.replace("_", " "))
        if kind == "header":
            self._packet.whole(name)
        return ir.Name(kind, name)  # type: ignore[arg-type]

    def _check_types(self, node: JsonObject, target: Argument, origin: Argument) -> None:
        """Raise UnsupportedProgram unless all headers of both have the same types."""
        forms = [
            self._packet.form(each.name if isinstance(each, ir.Name) else each)
            for each in (target, origin)
            if isinstance(each, ir.Name | ir.Element)
        ]
        if forms[0] != forms[1]:
            raise node.error("the headers differ in type")

    def _log_arguments(self, form: JsonObject, values: JsonObject) -> tuple[Argument, ...]:
        listed = values.nodes("value") if isinstance(values.get("value"), list) else ()
        arguments = tuple(map(self._expressions.read, listed))
        parts = tuple(_log_parts(form.text("value")))
        if len(parts) != len(arguments) + 1:
            raise UnsupportedProgram(
                f"log_msg has {len(arguments)} arguments for {len(parts) - 1} pairs of braces"
            )
        return ir.Format(parts), *arguments


def source(node: JsonObject) -> ir.SourceLocation:
    """Return the place in the P4 source that an object of the JSON comes from."""
    if not node.has("source_info"):
        return ir.SourceLocation()
    info = node.node("source_info")
    return ir.SourceLocation(
        info.optional_text("filename") or "",
        info.optional_number("line", limits.MAX_ID),
        info.optional_text("source_fragment") or "",
    )


def expect(node: JsonObject, count: int) -> list[JsonObject]:
    """Return the parameters of a primitive. Raises UnsupportedProgram unless there are `count`."""
    parameters = node.nodes("parameters")
    if len(parameters) != count:
        raise node.error(f"{len(parameters)} parameters, not {count}")
    return parameters


def _log_parts(text: str) -> list[str]:
    """Return the text around the braces. A brace behind a backslash is an ordinary character."""
    parts = re.split(r"(?<!\\)\{.*?(?<!\\)\}", text)
    return [re.sub(r"\\([{}])", r"\1", part) for part in parts]
