"""From p4c's BMv2 JSON to the intermediate form; what cannot be run is refused here, by name."""

import json
from collections.abc import Iterable
from typing import Any

from innet.errors import UnsupportedProgram
from innet.switch import ir

Json = dict[str, Any]

OPERATORS = frozenset(
    "+ - * << >> & | ^ ~ == != < > <= >= and or not ? d2b b2d two_comp_mod usat_cast sat_cast".split()
)

PRIMITIVES = frozenset(
    """assign assign_header add_header remove_header register_read register_write count drop
    mark_to_drop exit no_op _jump _jump_if_zero log_msg""".split()
)

_PARSER_OPERATIONS = frozenset({"extract", "set", "advance", "verify", "primitive"})

_MUST_BE_EMPTY = {
    "header_stacks": "header stacks",
    "header_unions": "header unions",
    "header_union_stacks": "header union stacks",
    "parse_vsets": "parser value sets",
    "meter_arrays": "meters",
    "extern_instances": "extern instances",
}

_WIDEST_FIELD = 128


def load(text: str | bytes) -> ir.Program:
    """Read a BMv2 JSON document. Raises UnsupportedProgram, naming what is wrong and where."""
    try:
        document = json.loads(text)
    except ValueError as problem:
        raise UnsupportedProgram(f"not a BMv2 JSON: {problem}") from None
    wanted = ("header_types", "headers", "parsers", "deparsers", "actions", "pipelines")
    if not isinstance(document, dict) or any(key not in document for key in wanted):
        raise UnsupportedProgram(
            "not a BMv2 JSON: it lacks one of " + ", ".join(wanted) + "; was it made by p4c-bm2-ss?"
        )
    for key, what in _MUST_BE_EMPTY.items():
        if document.get(key):
            raise UnsupportedProgram(f"{what} are not supported")
    try:
        return _Reader(document).program()
    except (LookupError, TypeError, ValueError, AttributeError, RuntimeError) as problem:
        raise UnsupportedProgram(f"malformed BMv2 JSON: {problem!r}") from problem


class _Reader:
    """One document being read: lookups that several parts need."""

    def __init__(self, document: Json) -> None:
        self.document = document
        types = {each["name"]: each for each in document["header_types"]}
        self.headers = tuple(
            _header(each, types[each["header_type"]]) for each in document["headers"]
        )
        self.by_name = {header.name: header for header in self.headers}

    def program(self) -> ir.Program:
        document = self.document
        parser = document["parsers"][0]
        pipelines = {each["name"]: self.pipeline(each) for each in document["pipelines"]}
        return ir.Program(
            headers=self.headers,
            errors={name: int(code) for name, code in document.get("errors", [])},
            parser_start=parser["init_state"],
            states=tuple(self.state(each) for each in parser["parse_states"]),
            deparser=tuple(document["deparsers"][0]["order"]),
            actions=tuple(self.action(each) for each in document["actions"]),
            ingress=pipelines["ingress"],
            egress=pipelines["egress"],
            registers=tuple(
                ir.Register(each["name"], int(each["bitwidth"]), int(each["size"]))
                for each in document.get("register_arrays", [])
            ),
            counters=tuple(_counter(each) for each in document.get("counter_arrays", [])),
            checksums=tuple(self.checksums()),
        )

    def expr(self, node: Any) -> ir.Expr:
        kind, value = node["type"], node["value"]
        match kind:
            case "hexstr":
                return ir.Const(int(value, 16))
            case "bool":
                return ir.Bool(bool(value))
            case "field":
                return self.field(value)
            case "local" | "runtime_data":
                return ir.ParamRef(int(value))
            case "lookahead":
                return ir.Lookahead(int(value[0]), int(value[1]))
            case "expression" if "op" in value:
                return self.operation(value)
            case "expression":
                return self.expr(value)
        raise UnsupportedProgram(f"operands of type {kind!r} are not supported")

    def field(self, value: list[str]) -> ir.FieldRef:
        ref = ir.FieldRef(value[0], value[1])
        if ref.field != ir.VALID:
            self.by_name[ref.header].field(ref.field)
        return ref

    def operation(self, value: Json) -> ir.Expr:
        if value["op"] not in OPERATORS:
            raise UnsupportedProgram(f"operator {value['op']!r} is not supported")
        parts = [value.get("cond"), value.get("left"), value.get("right")]
        return ir.Op(value["op"], tuple(self.expr(part) for part in parts if part is not None))

    def argument(self, node: Any) -> ir.Expr | ir.Name:
        if node["type"] in ("header", "register_array", "counter_array"):
            return ir.Name(node["type"], node["value"])
        if node["type"] == "string":
            return ir.Const(0)  # only log_msg has one, and it is not printed
        return self.expr(node)

    def primitive(self, node: Json) -> ir.Primitive:
        source = _source(node)
        if node["op"] not in PRIMITIVES:
            raise UnsupportedProgram(f"{source}: primitive {node['op']!r} is not supported")
        arguments = node["parameters"] if node["op"] != "log_msg" else []
        try:
            return ir.Primitive(
                node["op"], tuple(self.argument(each) for each in arguments), source
            )
        except UnsupportedProgram as problem:
            raise UnsupportedProgram(f"{source}: {problem}") from None

    def action(self, node: Json) -> ir.Action:
        return ir.Action(
            int(node["id"]),
            node["name"],
            tuple((each["name"], each["bitwidth"]) for each in node["runtime_data"]),
            tuple(self.primitive(each) for each in node["primitives"]),
        )

    def state(self, node: Json) -> ir.ParserState:
        keys = tuple(self.select_key(each) for each in node.get("transition_key", []))
        return ir.ParserState(
            node["name"],
            tuple(self.parser_operation(each) for each in node["parser_ops"]),
            keys,
            tuple(self.transition(each) for each in node["transitions"]),
        )

    def select_key(self, node: Any) -> tuple[ir.Expr, int]:
        expr = self.expr(node)
        match expr:
            case ir.FieldRef():
                return expr, self.by_name[expr.header].field(expr.field).bits
            case ir.Lookahead():
                return expr, expr.bits
        raise UnsupportedProgram(f"select keys of type {node['type']!r} are not supported")

    def transition(self, node: Json) -> ir.Transition:
        match node["type"]:
            case "default":
                return ir.Transition(None, None, node["next_state"])
            case "hexstr":
                mask = int(node["mask"], 16) if node["mask"] else None
                return ir.Transition(int(node["value"], 16), mask, node["next_state"])
        raise UnsupportedProgram(f"parser transitions of type {node['type']!r} are not supported")

    def parser_operation(self, node: Json) -> ir.Primitive:
        source = _source(node)
        op = node["op"]
        if op not in _PARSER_OPERATIONS:
            raise UnsupportedProgram(f"{source}: parser operation {op!r} is not supported")
        if op == "primitive":
            return self.primitive(node["parameters"][0])
        if op == "extract":
            target = node["parameters"][0]
            if target["type"] != "regular":
                raise UnsupportedProgram(
                    f"{source}: extracting a {target['type']} is not supported"
                )
            return ir.Primitive("extract", (ir.Name("header", target["value"]),), source)
        return ir.Primitive(op, tuple(self.expr(each) for each in node["parameters"]), source)

    def pipeline(self, node: Json) -> ir.Pipeline:
        if node.get("action_profiles"):
            raise UnsupportedProgram("action profiles and selectors are not supported")
        return ir.Pipeline(
            node["name"],
            node["init_table"],
            tuple(self.table(each) for each in node["tables"]),
            tuple(
                ir.Conditional(
                    each["name"],
                    self.expr(each["expression"]),
                    each["true_next"],
                    each["false_next"],
                )
                for each in node["conditionals"]
            ),
        )

    def table(self, node: Json) -> ir.Table:
        if node.get("type", "simple") != "simple" or node.get("direct_meters"):
            raise UnsupportedProgram(f"table {node['name']}: indirect or metered tables")
        keys = tuple(self.match_key(node["name"], each) for each in node["key"])
        ids = dict(zip(node["actions"], node["action_ids"], strict=True))
        default = node.get("default_entry", {})
        following = node["next_tables"]
        by_hit = "__HIT__" in following
        return ir.Table(
            name=node["name"],
            keys=keys,
            actions=tuple(map(int, node["action_ids"])),
            size=node["max_size"],
            default_action=default.get("action_id"),
            default_args=tuple(int(each, 16) for each in default.get("action_data", [])),
            default_is_const=default.get("action_const", False),
            entries=tuple(_entry(keys, each) for each in node.get("entries", [])),
            entries_are_const=bool(node.get("entries")),
            direct_counter=self.direct_counter(node),
            next_by_action={} if by_hit else {ids[name]: following[name] for name in ids},
            next_on_hit=following.get("__HIT__"),
            next_on_miss=following.get("__MISS__", node.get("base_default_next")),
            by_hit=by_hit,
        )

    def direct_counter(self, table: Json) -> str | None:
        for each in self.document.get("counter_arrays", []):
            if each.get("is_direct") and each.get("binding") == table["name"]:
                return str(each["name"])
        return None

    def match_key(self, table: str, node: Json) -> ir.MatchKey:
        if node["match_type"] not in ("exact", "lpm", "ternary", "optional"):
            raise UnsupportedProgram(
                f"table {table}: {node['match_type']!r} matches are not supported"
            )
        ref = self.field(node["target"])
        bits = 1 if ref.field == ir.VALID else self.by_name[ref.header].field(ref.field).bits
        mask = int(node["mask"], 16) if node.get("mask") else None
        name = node.get("name") or ".".join(node["target"])
        return ir.MatchKey(name, node["match_type"], ref, bits, mask)

    def checksums(self) -> Iterable[ir.Checksum]:
        calculations = {each["name"]: each for each in self.document.get("calculations", [])}
        for node in self.document.get("checksums", []):
            calculation = calculations[node["calculation"]]
            if calculation["algo"] != "csum16":
                raise UnsupportedProgram(f"checksum {calculation['algo']!r} is not supported")
            yield ir.Checksum(
                target=self.field(node["target"]),
                inputs=tuple(self.sized(each) for each in calculation["input"]),
                condition=self.expr(node["if_cond"]) if node.get("if_cond") else ir.Bool(True),
                verify=node.get("verify", False),
                update=node.get("update", False),
            )

    def sized(self, node: Any) -> tuple[ir.Expr, int]:
        if node["type"] == "field":
            ref = self.field(node["value"])
            return ref, self.by_name[ref.header].field(ref.field).bits
        if node["type"] == "hexstr":
            return ir.Const(int(node["value"], 16)), node["bitwidth"]
        raise UnsupportedProgram(f"checksum inputs of type {node['type']!r} are not supported")


def _header(node: Json, header_type: Json) -> ir.Header:
    fields = []
    for name, bits, *signed in header_type["fields"]:
        if bits == "*" or bits > _WIDEST_FIELD:
            raise UnsupportedProgram(
                f"field {node['name']}.{name}: varbits and fields wider than {_WIDEST_FIELD} bits"
            )
        fields.append(ir.FieldType(name, bits, bool(signed and signed[0])))
    return ir.Header(node["name"], tuple(fields), node["metadata"])


def _counter(node: Json) -> ir.Counter:
    table = node.get("binding") if node.get("is_direct") else None
    return ir.Counter(node["name"], int(node.get("size", 0)), table)


def _entry(keys: tuple[ir.MatchKey, ...], node: Json) -> ir.ConstEntry:
    values, masks = [], []
    for key, match in zip(keys, node["match_key"], strict=True):
        full = (1 << key.bits) - 1
        kind = match["match_type"]
        if kind == "exact":
            mask = full
        elif kind == "lpm":
            length = match["prefix_length"]
            mask = full ^ (full >> length)
        elif kind in ("ternary", "optional"):
            mask = int(match["mask"], 16)
        else:
            raise UnsupportedProgram(f"{kind!r} matches are not supported")
        values.append(int(match["key"], 16) & mask)
        masks.append(mask)
    action = node["action_entry"]
    arguments = tuple(int(each, 16) for each in action["action_data"])
    if any(key.match in ("ternary", "optional") for key in keys):
        # In the JSON the smallest number wins; in the engine, as in P4Runtime, the largest.
        priority = 1_000_000 - node["priority"]
    else:  # the longest prefix wins, wherever it stands
        priority = 1 + sum(mask.bit_count() for mask in masks)
    return ir.ConstEntry(tuple(values), tuple(masks), priority, action["action_id"], arguments)


def _source(node: Json) -> ir.Source:
    info = node.get("source_info")
    if not info:
        return ir.Source()
    return ir.Source(info["filename"], info["line"], info["source_fragment"])
