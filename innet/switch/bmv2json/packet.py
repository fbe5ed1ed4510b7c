"""The reader of headers: their types and instances, and the stacks and unions of them."""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, TypeVar

from innet.errors import UnsupportedProgram
from innet.switch import ir, limits
from innet.switch.bmv2json import standard
from innet.switch.bmv2json.document import JsonObject, malformed, unique

_ARCHITECTURES = ("psa_", "pna_")

Group = TypeVar("Group", ir.Header, ir.Stack, ir.Union)


class Packet:
    """The headers and metadata of a program, by name."""

    def __init__(self, document: JsonObject) -> None:
        types = unique(
            ((each.text("name"), each) for each in document.nodes("header_types")),
            "header types with the name",
        )
        headers = document.nodes("headers")
        extracted = set(_extracted(document))
        self.headers = _named(
            (
                _header(each, each.known("header_type", types, "header type"), extracted)
                for each in headers
            ),
            "headers",
        )
        standard_metadata = self.headers.get(ir.STANDARD_METADATA)
        if not standard_metadata:
            raise UnsupportedProgram(_other_architecture(self.headers))
        self.headers[ir.STANDARD_METADATA] = replace(standard_metadata, metadata=True)
        self._moved = standard.elsewhere(document, self.headers)
        served = {
            field: self.headers[header].field(name) for (header, name), field in self._moved.items()
        }
        kinds = {each.text("name"): each.text("header_type") for each in headers}
        for name, kind in kinds.items():
            if kind == kinds[ir.STANDARD_METADATA]:
                self.headers[name] = standard.complete(self.headers[name], served)
        validity = ir.FieldType(ir.VALID, 1)
        self._fields = {
            name: {ir.VALID: validity, **{each.name: each for each in header.fields}}
            for name, header in self.headers.items()
        }
        names = _by_id(headers, "headers")
        self.stacks = _named(
            (
                ir.Stack(each.text("name"), self._members(each, "header_ids", names))
                for each in document.nodes("header_stacks")
            ),
            "header stacks",
        )
        self.unions = _named(
            (
                ir.Union(each.text("name"), self._members(each, "header_ids", names))
                for each in document.nodes("header_unions")
            ),
            "header unions",
        )
        self.union_stacks: dict[str, ir.UnionStack] = {}
        self._read_union_stacks(document)
        self._check()

    def type_of(self, header: str | ir.Element) -> ir.Header:
        """Return a header. An element of a stack has the type of the stack's first header."""
        if isinstance(header, ir.Element):
            return self.headers[self.stacks[header.stack].headers[0]]
        return self.headers[header]

    def field_type(self, ref: ir.FieldRef) -> ir.FieldType:
        """Return the type of a field, or of a header's validity."""
        return self._fields[self.type_of(ref.header).name][ref.field]

    def field(self, node: JsonObject, header: str | ir.Element, name: object) -> ir.FieldRef:
        """Return a field of a header. Raises UnsupportedProgram if there is no such field."""
        fields = self._fields[self.type_of(header).name]
        found = node.look_up(name, fields, "field").name
        if isinstance(header, str) and (header, found) in self._moved:
            return ir.FieldRef(ir.STANDARD_METADATA, self._moved[header, found])
        return ir.FieldRef(header, found)

    def whole(self, header: str) -> str:
        """Return the name of a header that is used as a whole. Raises UnsupportedProgram."""
        if any(header == each for each, _ in self._moved):
            raise UnsupportedProgram(
                f"{header} has fields of {ir.STANDARD_METADATA}, so only its fields can be used"
            )
        return header

    def form(self, name: str | ir.Element) -> object:
        """Return a value that is equal for headers, stacks or unions of the same type."""
        if isinstance(name, ir.Element) or name in self.headers:
            header = self.type_of(name)
            return header.metadata, header.fields
        groups = [
            *(each.headers for each in (self.stacks.get(name), self.unions.get(name)) if each),
            *(each.unions for each in (self.union_stacks.get(name),) if each),
        ]
        return tuple(self.form(each) for group in groups for each in group)

    def header(self, node: JsonObject, name: object) -> str:
        """Return the name of a header. Raises UnsupportedProgram if there is no such header."""
        return node.look_up(name, self.headers, "header").name

    def stack(self, node: JsonObject, name: object) -> ir.Stack:
        """Return a header stack. Raises UnsupportedProgram if there is no such stack."""
        return node.look_up(name, self.stacks, "header stack")

    def member_stack(self, node: JsonObject, union_stack: object, member: object) -> ir.Stack:
        """Return the stack of one of the headers in a stack of unions."""
        return self.stack(node, _member_stack(union_stack, member))

    def _members(self, node: JsonObject, key: str, names: dict[int, str]) -> tuple[str, ...]:
        numbers = node.numbers(key, limits.MAX_ID)
        if not numbers or not names.keys() >= set(numbers):
            raise node.error(f"the {key} {limits.shown(numbers)} are not ids of the program")
        return tuple(names[number] for number in numbers)

    def _read_union_stacks(self, document: JsonObject) -> None:
        """Read stacks of unions, and make one header stack for each header type of their union."""
        types = unique(
            ((each.text("name"), each) for each in document.nodes("header_union_types")),
            "header union types with the name",
        )
        names = _by_id(document.nodes("header_unions"), "header unions")
        for node in document.nodes("header_union_stacks"):
            name = node.text("name")
            unions = self._members(node, "header_union_ids", names)
            members = _member_names(node.known("union_type", types, "header union type"))
            rows = [self.unions[union].headers for union in unions]
            if any(len(row) != len(members) for row in rows):
                raise node.error("the unions do not have the headers of their type")
            columns = zip(*rows, strict=True)
            stacks = [
                ir.Stack(_member_stack(name, member), headers, name)
                for member, headers in zip(members, columns, strict=True)
            ]
            self.stacks |= {stack.name: stack for stack in stacks}
            stack_names = tuple(stack.name for stack in stacks)
            self.union_stacks[name] = ir.UnionStack(name, unions, stack_names)

    def _check(self) -> None:
        kinds: Sequence[Iterable[str]] = (
            self.headers, self.stacks, self.unions, self.union_stacks,
        )  # fmt: skip
        unique(((name, None) for name in chain(*kinds)), "headers, stacks or unions with the name")
        for stack in self.stacks.values():
            if len({self.headers[each].fields for each in stack.headers}) > 1:
                raise malformed(f"the headers of {stack.name!r} differ in type")
        for group in ([*self.stacks.values()], [*self.unions.values()]):
            members = [(name, None) for each in group for name in each.headers]
            unique(members, "stacks or unions of the header")
            for name, _ in members:
                if self.headers[name].metadata:
                    raise malformed(f"the metadata {name!r} are in a stack or a union")


def _other_architecture(headers: Iterable[str]) -> str:
    found = sorted({each.split("_")[0] for each in headers if each.startswith(_ARCHITECTURES)})
    what = f"is for the architecture {found[0].upper()}" if found else "is for another architecture"
    return f"the program has no {ir.STANDARD_METADATA}, so it {what}: write it for v1model"


def _named(things: Iterable[Group], what: str) -> dict[str, Group]:
    return unique(((each.name, each) for each in things), f"{what} with the name")


def _by_id(nodes: list[JsonObject], what: str) -> dict[int, str]:
    return unique(
        ((each.number("id", limits.MAX_ID), each.text("name")) for each in nodes),
        f"{what} with the id",
    )


def _extracted(document: JsonObject) -> Iterable[str]:
    """Yield the names of the headers that the parser extracts."""
    for parser in document.nodes("parsers"):
        for state in parser.nodes("parse_states"):
            for step in state.nodes("parser_ops"):
                match step.get("op"), step.get("parameters"):
                    case "extract" | "extract_VL", [JsonObject() as target, *_]:
                        if target.get("type") == "regular":
                            yield target.text("value")


def _header(node: JsonObject, header_type: JsonObject, extracted: set[str]) -> ir.Header:
    name = node.text("name")
    fields = [*_fields(header_type)]
    if sum(each.varbit for each in fields) > 1:
        raise UnsupportedProgram(f"header {name}: more than one varbit is not supported")
    unique(((each.name, None) for each in fields), f"fields of {name} with the name")
    # In 2017, p4c called a header metadata if it was a variable of the parser.
    metadata = node.flag("metadata", default=False) and name not in extracted
    header = ir.Header(name, tuple(fields), metadata)
    bits = sum(each.bits for each in fields if not each.varbit)
    if bits % 8 and (header.varbit or not header.metadata):
        raise UnsupportedProgram(f"header {name} has {bits} bits, which are no whole bytes")
    return header


def _fields(header_type: JsonObject) -> Iterable[ir.FieldType]:
    rows = header_type.items("fields")
    fixed = sum(row[1] for row in rows if _is_row(row) and type(row[1]) is int)
    for row in rows:
        match row:
            case [name, _, _, saturates] if saturates:
                raise UnsupportedProgram(
                    f"{header_type.text('name')}.{limits.shown(name)}: saturating fields of P4_14 are "
                    "not supported"
                )
            case [name, bits, *rest] if name != ir.VALID and all(x in (0, 1) for x in rest):
                name = header_type.as_text("fields", name)
                varbit = bits == "*"
                if varbit and header_type.has("length_exp"):
                    raise UnsupportedProgram(
                        f"{header_type.text('name')}: the length expressions of P4_14 are not supported"
                    )
                if varbit:
                    maximum = header_type.number("max_length", limits.MAX_BITS // 8)
                    bits = maximum * 8 - fixed
                signed = rest[:1] == [True]  # or 1, as p4c wrote before 2019
                width = limits.width(name, bits, minimum=1 if signed else 0)
                yield ir.FieldType(name, width, signed, varbit)
            case _:
                raise header_type.error(f"{limits.shown(row)} does not declare a field")


def _is_row(row: Any) -> bool:
    return isinstance(row, list) and len(row) > 1


def _member_names(union_type: JsonObject) -> list[str]:
    names = []
    for member in union_type.items("headers"):
        match member:
            case [name, _]:
                names.append(union_type.as_text("headers", name))
            case _:
                raise union_type.error(f"{limits.shown(member)} does not declare a header")
    unique(((name, None) for name in names), "headers of a union type with the name")
    return names


def _member_stack(union_stack: object, member: object) -> str:
    return f"{union_stack}[].{member}"
