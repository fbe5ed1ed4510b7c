"""A reader that turns p4c's BMv2 JSON into the intermediate form, and refuses unsupported programs."""

import json
import re
from collections.abc import Iterable
from typing import Any

from innet.errors import UnsupportedProgram
from innet.switch import ir, limits

Json = dict[str, Any]

OPERATORS = frozenset(
    "+ - * << >> & | ^ ~ == != < > <= >= and or not ? d2b b2d two_comp_mod usat_cast sat_cast".split()
)

PRIMITIVES = frozenset(
    """assign assign_header add_header remove_header register_read register_write count drop
    mark_to_drop exit no_op _jump _jump_if_zero log_msg assert assume execute_meter push pop
    assign_header_stack assign_union assign_union_stack assign_VL
    modify_field_with_hash_based_offset modify_field_rng_uniform clone_ingress_pkt_to_egress
    clone_egress_pkt_to_egress resubmit recirculate generate_digest truncate""".split()
)

HASHES = frozenset(
    """crc16 crc32 crc8_custom crc16_custom crc32_custom crc64_custom crcCCITT csum16 cksum16 xor16
    xor32 identity xxh64 random""".split()
)

_NAMES = (
    "header",
    "header_stack",
    "header_union",
    "header_union_stack",
    "register_array",
    "counter_array",
    "meter_array",
    "calculation",
)

_PARSER_OPERATIONS = frozenset({"extract", "extract_VL", "set", "advance", "verify", "primitive"})


def load(text: str | bytes) -> ir.Program:
    """Read a BMv2 JSON document. Raises UnsupportedProgram, which names the problem and its place."""
    try:
        document = json.loads(text)
    except RecursionError:
        raise UnsupportedProgram(limits.TOO_DEEP) from None
    except ValueError as problem:
        raise UnsupportedProgram(f"not a BMv2 JSON: {problem}") from None
    wanted = ("header_types", "headers", "parsers", "deparsers", "actions", "pipelines")
    if not isinstance(document, dict) or any(key not in document for key in wanted):
        raise UnsupportedProgram(
            "not a BMv2 JSON: it lacks one of " + ", ".join(wanted) + "; was it made by p4c-bm2-ss?"
        )
    if document.get("extern_instances"):
        raise UnsupportedProgram("extern instances are not supported")
    try:
        _check_names(document)
        program = _Reader(document).program()
        limits.check(program)
    except RecursionError:
        raise UnsupportedProgram(limits.TOO_DEEP) from None
    except (
        LookupError,
        TypeError,
        ValueError,
        AttributeError,
        ArithmeticError,
        RuntimeError,
    ) as problem:
        raise UnsupportedProgram(f"malformed BMv2 JSON: {problem!r}") from problem
    return program


def _check_names(node: Any) -> None:
    """Raise UnsupportedProgram for a name that is not text, because names serve as dictionary keys."""
    if isinstance(node, dict):
        name = node.get("name", "")
        if not isinstance(name, str) or (not name.isascii() and _has_surrogates(name)):
            raise UnsupportedProgram(f"malformed BMv2 JSON: the name {name!a} is not text")
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            _check_names(each)


def _has_surrogates(text: str) -> bool:
    return any("\ud800" <= each <= "\udfff" for each in text)


class _Reader:
    """A document being read, with the lookups that several parts need."""

    def __init__(self, document: Json) -> None:
        self.document = document
        types = {each["name"]: each for each in document["header_types"]}
        self.headers = tuple(
            _header(each, types[each["header_type"]]) for each in document["headers"]
        )
        self.by_name = {header.name: header for header in self.headers}
        names = {each["id"]: each["name"] for each in document["headers"]}
        self.stacks = {
            each["name"]: ir.Stack(each["name"], tuple(names[i] for i in each["header_ids"]))
            for each in document.get("header_stacks", [])
        }
        self.unions = {
            each["name"]: ir.Union(each["name"], tuple(names[i] for i in each["header_ids"]))
            for each in document.get("header_unions", [])
        }
        self.union_stacks = {
            each["name"]: self.union_stack(each) for each in document.get("header_union_stacks", [])
        }
        self.params = {
            each["id"]: [
                limits.width(param["name"], param["bitwidth"]) for param in each["runtime_data"]
            ]
            for each in document["actions"]
        }
        self.calculations = {
            each["name"]: self.calculation(each) for each in document.get("calculations", [])
        }

    def program(self) -> ir.Program:
        document = self.document
        parser = document["parsers"][0]
        pipelines = {each["name"]: self.pipeline(each) for each in document["pipelines"]}
        return ir.Program(
            headers=self.headers,
            errors=dict(document.get("errors", [])),
            stacks=tuple(self.stacks.values()),
            unions=tuple(self.unions.values()),
            union_stacks=tuple(self.union_stacks.values()),
            value_sets=tuple(
                ir.ValueSet(each["name"], limits.width(each["name"], each["compressed_bitwidth"]))
                for each in document.get("parse_vsets", [])
            ),
            parser_start=parser["init_state"],
            states=tuple(self.state(each) for each in parser["parse_states"]),
            deparser=tuple(document["deparsers"][0]["order"]),
            actions=tuple(self.action(each) for each in document["actions"]),
            ingress=pipelines["ingress"],
            egress=pipelines["egress"],
            registers=tuple(
                ir.Register(
                    each["name"], limits.width(each["name"], each["bitwidth"]), each["size"]
                )
                for each in document.get("register_arrays", [])
            ),
            counters=tuple(_counter(each) for each in document.get("counter_arrays", [])),
            checksums=tuple(self.checksums()),
            meters=tuple(self.meter(each) for each in document.get("meter_arrays", [])),
            profiles=tuple(
                self.profile(each)
                for pipeline in document["pipelines"]
                for each in pipeline.get("action_profiles", [])
            ),
            calculations=self.calculations,
            field_lists=tuple(map(self.field_list, document.get("field_lists", []))),
            learn_lists=tuple(map(self.field_list, document.get("learn_lists", []))),
        )

    def union_stack(self, node: Json) -> ir.UnionStack:
        """Read a stack of unions, and make one header stack for each header type of the union."""
        numbers = {each["id"]: each["name"] for each in self.document["header_unions"]}
        unions = tuple(numbers[number] for number in node["header_union_ids"])
        types = {each["name"]: each for each in self.document["header_union_types"]}
        members = [member for member, _ in types[node["union_type"]]["headers"]]
        columns = zip(*(self.unions[union].headers for union in unions), strict=True)
        stacks = [
            ir.Stack(_member_stack(node["name"], member), headers, node["name"])
            for member, headers in zip(members, columns, strict=True)
        ]
        self.stacks |= {stack.name: stack for stack in stacks}
        return ir.UnionStack(node["name"], unions, tuple(stack.name for stack in stacks))

    def expr(self, node: Any) -> ir.Expr:
        kind, value = node["type"], node["value"]
        match kind:
            case "hexstr":
                return ir.Const(int(value, 16))
            case "bool":
                return ir.Bool(bool(value))
            case "field":
                return self.field(value)
            case "stack_field":
                stack = self.stacks[value[0]].name
                return self.field([ir.Element(stack, ir.LastIndex(stack)), value[1]])
            case "local" | "runtime_data":
                return ir.ParamRef(int(value))
            case "lookahead":
                return ir.Lookahead(*(limits.width("lookahead", each) for each in value[:2]))
            case "expression" if "op" in value:
                return self.operation(value)
            case "expression":
                return self.expr(value)
        raise UnsupportedProgram(f"operands of type {kind!r} are not supported")

    def field(self, value: list[Any]) -> ir.FieldRef:
        name = value[0][0] if isinstance(value[0], list) else value[0]
        if isinstance(name, str) and name in self.union_stacks:
            raise UnsupportedProgram(f"{name}.last: fields of the last union of a stack")
        header = self.element(value[0]) if isinstance(value[0], dict) else value[0]
        ref = ir.FieldRef(header, value[1])
        self.bits(ref)
        return ref

    def bits(self, ref: ir.FieldRef) -> int:
        """Return the width of a field, and fail if there is no such field."""
        return 1 if ref.field == ir.VALID else self.type_of(ref.header).field(ref.field).bits

    def type_of(self, header: str | ir.Element) -> ir.Header:
        if isinstance(header, ir.Element):
            header = self.stacks[header.stack].headers[0]
        return self.by_name[header]

    def element(self, node: Any) -> ir.Element:
        """Return the stack element that a runtime index selects."""
        while node.get("type") == "expression":
            node = node["value"]
        if node.get("op") != "dereference_header_stack":
            raise UnsupportedProgram(f"{node.get('op')!r} cannot stand for a header")
        return ir.Element(self.stacks[node["left"]["value"]].name, self.expr(node["right"]))

    def operation(self, value: Json) -> ir.Expr:
        match value["op"]:
            case "access_field":
                header = self.element(value["left"])
                return ir.FieldRef(header, self.type_of(header).fields[value["right"]].name)
            case "last_stack_index":
                return ir.LastIndex(self.extracted_to(value["right"]["value"]))
            case "valid_union":
                return ir.UnionValidity(self.unions[value["right"]["value"]].name)
        if value["op"] not in OPERATORS:
            raise UnsupportedProgram(f"operator {value['op']!r} is not supported")
        parts = [value.get("cond"), value.get("left"), value.get("right")]
        operands = tuple(self.expr(part) for part in parts if part is not None)
        match value["op"], operands:
            case "&", (ir.Op("&", (inner, ir.Const(mask))), ir.Const(other)):
                return ir.Op("&", (inner, ir.Const(mask & other)))  # a cast, or a cast of a cast
        return ir.Op(value["op"], operands)

    def extracted_to(self, name: str) -> str:
        """Return the name of a stack of headers or unions. Raises KeyError if there is none."""
        return name if name in self.stacks else self.union_stacks[name].name

    def argument(self, node: Any) -> ir.Expr | ir.Name | ir.Element:
        if node["type"] in _NAMES:
            return ir.Name(node["type"], node["value"])
        value = node["value"]
        while isinstance(value, dict) and "op" not in value:
            value = value["value"]
        if isinstance(value, dict) and value["op"] == "dereference_header_stack":
            return self.element(value)
        return self.expr(node)

    def primitive(self, node: Json) -> ir.Primitive:
        source = _source(node)
        if node["op"] not in PRIMITIVES:
            raise UnsupportedProgram(f"{source}: primitive {node['op']!r} is not supported")
        try:
            if node["op"] == "log_msg":
                return ir.Primitive("log_msg", self.log_arguments(*node["parameters"]), source)
            if node["op"] in ("assert", "assume"):
                condition, where = self.expr(node["parameters"][0]), ir.Format((str(source),))
                return ir.Primitive(node["op"], (condition, where), source)
            return ir.Primitive(
                node["op"], tuple(self.argument(each) for each in node["parameters"]), source
            )
        except UnsupportedProgram as problem:
            raise UnsupportedProgram(f"{source}: {problem}") from None

    def log_arguments(self, form: Json, values: Json) -> tuple[ir.Format | ir.Expr, ...]:
        arguments = tuple(self.expr(each) for each in values["value"] or ())
        form_parts = tuple(_log_parts(form["value"]))
        if len(form_parts) != len(arguments) + 1:
            raise UnsupportedProgram(
                f"log_msg has {len(arguments)} arguments for {len(form_parts) - 1} pairs of braces"
            )
        return ir.Format(form_parts), *arguments

    def action(self, node: Json) -> ir.Action:
        return ir.Action(
            node["id"],
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
                return expr, self.bits(expr)
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
            case "parse_vset" if node["mask"] is None:
                return ir.Transition(node["value"], None, node["next_state"])
        raise UnsupportedProgram(f"parser transitions of type {node['type']!r} are not supported")

    def parser_operation(self, node: Json) -> ir.Primitive:
        source = _source(node)
        op = node["op"]
        if op not in _PARSER_OPERATIONS:
            raise UnsupportedProgram(f"{source}: parser operation {op!r} is not supported")
        if op == "primitive":
            return self.primitive(node["parameters"][0])
        if op.startswith("extract"):
            target, *length = node["parameters"]
            match target["type"], target["value"]:
                case "regular", name:
                    place = ir.Name("header", name)
                case "stack", name:
                    place = ir.Name("header_stack", name)
                case "union_stack", [stack, member]:
                    place = ir.Name("header_stack", self.stacks[_member_stack(stack, member)].name)
                case kind, _:
                    raise UnsupportedProgram(f"{source}: extracting a {kind} is not supported")
            return ir.Primitive("extract", (place, *map(self.expr, length)), source)
        return ir.Primitive(op, tuple(self.expr(each) for each in node["parameters"]), source)

    def pipeline(self, node: Json) -> ir.Pipeline:
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
                    _source(each),
                )
                for each in node["conditionals"]
            ),
        )

    def table(self, node: Json) -> ir.Table:
        if node.get("type", "simple") not in ("simple", "indirect", "indirect_ws"):
            raise UnsupportedProgram(f"table {node['name']}: tables of type {node['type']!r}")
        keys = tuple(self.match_key(node["name"], each) for each in node["key"])
        ids = dict(zip(node["actions"], node["action_ids"], strict=True))
        default = node.get("default_entry", {})
        following = node["next_tables"]
        by_hit = "__HIT__" in following
        return ir.Table(
            name=node["name"],
            keys=keys,
            actions=tuple(node["action_ids"]),
            size=node["max_size"],
            default_action=default.get("action_id"),
            default_args=self.arguments(default) if default else (),
            default_is_const=default.get("action_const", False),
            entries=tuple(
                self.entry(keys, each, len(node["entries"])) for each in node.get("entries", [])
            ),
            direct_counter=self.direct_counter(node),
            direct_meter=node.get("direct_meters"),
            profile=node["action_profile"] if node.get("type", "simple") != "simple" else None,
            next_by_action={} if by_hit else {ids[name]: following[name] for name in ids},
            next_on_hit=following.get("__HIT__"),
            next_on_miss=following.get("__MISS__", node.get("base_default_next")),
            by_hit=by_hit,
        )

    def entry(self, keys: tuple[ir.MatchKey, ...], node: Json, count: int) -> ir.ConstEntry:
        action = node["action_entry"]
        return _entry(keys, node, count, action["action_id"], self.arguments(action))

    def arguments(self, call: Json) -> tuple[int, ...]:
        """Return the arguments of an action call, wrapped to the widths of the action's parameters."""
        params = self.params[call["action_id"]]
        data = call.get("action_data", [])
        return tuple(int(value, 16) % (1 << bits) for value, bits in zip(data, params, strict=True))

    def direct_counter(self, table: Json) -> str | None:
        for each in self.document.get("counter_arrays", []):
            if each.get("is_direct") and each.get("binding") == table["name"]:
                return str(each["name"])
        return None

    def match_key(self, table: str, node: Json) -> ir.MatchKey:
        if node["match_type"] not in ("exact", "lpm", "ternary", "optional", "range"):
            raise UnsupportedProgram(
                f"table {table}: {node['match_type']!r} matches are not supported"
            )
        ref = self.field(node["target"])
        bits = self.bits(ref)
        mask = int(node["mask"], 16) if node.get("mask") else None
        name = node.get("name") or ".".join(node["target"])
        return ir.MatchKey(name, node["match_type"], ref, bits, mask)

    def checksums(self) -> Iterable[ir.Checksum]:
        for node in self.document.get("checksums", []):
            if node["type"] != "generic":
                raise UnsupportedProgram(f"checksums of type {node['type']!r} are not supported")
            if self.calculations[node["calculation"]].algorithm == "random":
                raise UnsupportedProgram("a checksum by 'random' is not supported")
            yield ir.Checksum(
                target=self.field(node["target"]),
                calculation=node["calculation"],
                condition=self.expr(node["if_cond"]) if node.get("if_cond") else ir.Bool(True),
                verify=node.get("verify", True),
                update=node.get("update", True),
            )

    def field_list(self, node: Json) -> ir.FieldList:
        for each in node["elements"]:
            if each["type"] != "field":
                raise UnsupportedProgram(
                    f"field list {node['name']}: elements of type {each['type']!r} "
                    "are not supported"
                )
        fields = tuple(self.field(each["value"]) for each in node["elements"])
        return ir.FieldList(int(node["id"]), str(node["name"]), fields)

    def calculation(self, node: Json) -> ir.Calculation:
        if node["algo"] not in HASHES:
            raise UnsupportedProgram(f"hash algorithm {node['algo']!r} is not supported")
        inputs = [each for each in node["input"] if each["type"] != "payload"]
        with_payload = len(inputs) < len(node["input"])  # the payload is always hashed last
        return ir.Calculation(node["algo"], tuple(map(self.hashed, inputs)), with_payload)

    def hashed(self, node: Any) -> tuple[ir.Expr, int] | ir.Name:
        match node["type"]:
            case "field":
                ref = self.field(node["value"])
                return ref, self.by_name[str(ref.header)].field(ref.field).bits
            case "hexstr":
                return ir.Const(int(node["value"], 16)), limits.width(
                    "a hash's input", node["bitwidth"]
                )
            case "header":
                return ir.Name("header", self.by_name[node["value"]].name)
        raise UnsupportedProgram(f"hash inputs of type {node['type']!r} are not supported")

    def profile(self, node: Json) -> ir.Profile:
        selector = node.get("selector")
        return ir.Profile(node["name"], self.calculation(selector) if selector else None)

    def meter(self, node: Json) -> ir.Meter:
        if node["rate_count"] != 2 or node["type"] not in ("packets", "bytes"):
            raise UnsupportedProgram(f"meter {node['name']}: only two rates, packets or bytes")
        direct = node.get("is_direct", False)
        return ir.Meter(
            node["name"],
            0 if direct else node["size"],
            node["type"] == "bytes",
            node["binding"] if direct else None,
            self.field(node["result_target"]) if direct else None,
        )


def _member_stack(union_stack: str, member: str) -> str:
    return f"{union_stack}[].{member}"


def _header(node: Json, header_type: Json) -> ir.Header:
    fixed = sum(bits for _, bits, *_ in header_type["fields"] if bits != "*")
    fields = []
    for name, bits, *signed in header_type["fields"]:
        varbit = bits == "*"
        width = limits.width(name, header_type["max_length"] * 8 - fixed if varbit else bits)
        fields.append(ir.FieldType(name, width, bool(signed and signed[0]), varbit))
    if sum(each.varbit for each in fields) > 1:
        raise UnsupportedProgram(f"header {node['name']}: more than one varbit")
    if ir.VALID in (each.name for each in fields):
        raise UnsupportedProgram(f"header {node['name']}: {ir.VALID} is no name of a field")
    return ir.Header(node["name"], tuple(fields), node["metadata"])


def _counter(node: Json) -> ir.Counter:
    table = node.get("binding") if node.get("is_direct") else None
    return ir.Counter(node["name"], 0 if table else node["size"], table)


def _entry(
    keys: tuple[ir.MatchKey, ...], node: Json, count: int, action: int, arguments: tuple[int, ...]
) -> ir.ConstEntry:
    values, masks = [], []
    for key, match in zip(keys, node["match_key"], strict=True):
        full = (1 << key.bits) - 1
        kind = match["match_type"]
        if kind == "exact":
            mask = full
        elif kind == "lpm":
            length = limits.number("the length of a prefix", match["prefix_length"], key.bits)
            mask = full ^ (full >> length)
        elif kind in ("ternary", "optional"):
            mask = int(match["mask"], 16) & full
        elif kind == "range":
            values.append(int(match["start"], 16) & full)
            masks.append(int(match["end"], 16) & full)
            continue
        else:
            raise UnsupportedProgram(f"{kind!r} matches are not supported")
        values.append(int(match["key"], 16) & mask)
        masks.append(mask)
    if any(key.match in ("ternary", "optional", "range") for key in keys):
        # In the JSON the first priority is 1 and the smallest number wins. In P4Runtime the largest
        # wins.
        priority = 1 + count - limits.number("an entry's priority", node["priority"], count)
    else:  # the longest prefix wins, whatever the order
        priority = 1 + sum(mask.bit_count() for mask in masks)
    return ir.ConstEntry(tuple(values), tuple(masks), priority, action, arguments)


def _log_parts(text: str) -> list[str]:
    """Return the text around the braces. A brace behind a backslash is an ordinary character."""
    parts = re.split(r"(?<!\\)\{.*?(?<!\\)\}", text)
    return [re.sub(r"\\([{}])", r"\1", part) for part in parts]


def _source(node: Json) -> ir.Source:
    info = node.get("source_info")
    if not info:
        return ir.Source()
    return ir.Source(info["filename"], info["line"], info["source_fragment"])
