"""What P4Info calls things, bound to what the compiled program calls them.

P4Info and the BMv2 JSON of one compilation share the names of tables, actions and counters; the ids of
P4Runtime exist in P4Info only.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from p4.config.v1 import p4info_pb2

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.p4runtime import digests
from innet.switch.p4runtime.refusal import Refusal, invalid, not_found

_ANY_PRIORITY = ("ternary", "optional", "range")

Thing = TypeVar("Thing")


@dataclass(frozen=True)
class Field:
    """A match field, an action parameter, or a field of a packet-in or packet-out header."""

    id: int
    name: str
    bits: int
    match: str = "exact"

    @property
    def full(self) -> int:
        """All bits set."""
        return (1 << self.bits) - 1

    def parse(self, data: bytes) -> int:
        """The number in a P4Runtime byte string. Raises Refusal if it is too wide."""
        if not data:
            raise Refusal(grpc.StatusCode.OUT_OF_RANGE, f"{self.name}: the value is empty")
        value = int.from_bytes(data, "big")
        if value > self.full:
            message = f"{self.name}: {value:#x} does not fit {self.bits} bits"
            raise Refusal(grpc.StatusCode.OUT_OF_RANGE, message)
        return value


@dataclass(frozen=True)
class Action:
    """An action as one table uses it; `number` is the program's id of it."""

    id: int
    name: str
    number: int
    params: tuple[Field, ...]
    in_entries: bool = True
    as_default: bool = True


@dataclass(frozen=True)
class Table:
    """A table; `actions` by P4Runtime id, `layout` is the program's side of it."""

    id: int
    name: str
    fields: tuple[Field, ...]
    actions: Mapping[int, Action]
    size: int
    is_const: bool
    ages: bool
    layout: ir.Table
    profile: int = 0  # P4Runtime id of the action profile that its entries use, if any

    @property
    def needs_priority(self) -> bool:
        """Whether entries can overlap, so that clients have to rank them."""
        return any(field.match in _ANY_PRIORITY for field in self.fields)

    def action(self, number: int) -> Action:
        """The action that the program knows by this id."""
        return next(each for each in self.actions.values() if each.number == number)


@dataclass(frozen=True)
class ValueSet:
    """A value set of the parser."""

    id: int
    name: str
    fields: tuple[Field, ...]
    size: int


@dataclass(frozen=True)
class Profile:
    """An action profile; with a selector, entries can have several actions to choose of."""

    id: int
    name: str
    actions: Mapping[int, Action]
    selects: bool
    size: int
    largest_group: int


@dataclass(frozen=True)
class Meter:
    """An indirect meter."""

    id: int
    name: str
    size: int


@dataclass(frozen=True)
class Counter:
    """An indirect counter."""

    id: int
    name: str
    size: int


@dataclass(frozen=True)
class Register:
    """A register of cells that are ``bit<bits>``, ``int<bits>`` or ``bool``."""

    id: int
    name: str
    size: int
    bits: int
    kind: str

    def parse(self, data: bytes) -> int:
        """The bits in a P4Runtime byte string. Raises Refusal if they are too many."""
        signed = self.kind == "int"
        value = int.from_bytes(data, "big", signed=signed)
        low, high = (-(1 << self.bits - 1), 1 << self.bits - 1) if signed else (0, 1 << self.bits)
        if not data or not low <= value < high:
            message = f"{self.name}: {data.hex() or 'nothing'} does not fit {self.bits} bits"
            raise Refusal(grpc.StatusCode.OUT_OF_RANGE, message)
        return value & (1 << self.bits) - 1


class Schema:
    """All of a program's P4Runtime entities. Raises UnsupportedProgram if the two do not match."""

    def __init__(self, info: p4info_pb2.P4Info, program: ir.Program) -> None:
        _check_sizes(info, program)
        try:
            self._bind(info, program)
        except (KeyError, StopIteration) as problem:
            raise UnsupportedProgram(
                f"the P4Info is not of this program: it does not have {problem}"
            ) from None

    def _bind(self, info: p4info_pb2.P4Info, program: ir.Program) -> None:
        layouts = {table.name: table for table in program.tables}
        numbers = {action.id: action.name for action in program.actions}
        actions = {each.preamble.id: each for each in info.actions}
        self.tables: dict[int, Table] = {}
        for each in info.tables:
            layout = layouts[each.preamble.name]
            by_name = {numbers[number]: number for number in layout.actions}
            if [field.bitwidth for field in each.match_fields] != [key.bits for key in layout.keys]:
                raise KeyError(each.preamble.name)
            self.tables[each.preamble.id] = Table(
                each.preamble.id,
                each.preamble.name,
                tuple(
                    Field(field.id, field.name, field.bitwidth, _match_kind(field))
                    for field in each.match_fields
                ),
                {
                    ref.id: Action(
                        ref.id,
                        actions[ref.id].preamble.name,
                        by_name[actions[ref.id].preamble.name],
                        _fields(actions[ref.id].params),
                        ref.scope != p4info_pb2.ActionRef.DEFAULT_ONLY,
                        ref.scope != p4info_pb2.ActionRef.TABLE_ONLY,
                    )
                    for ref in each.action_refs
                },
                each.size,
                each.is_const_table,
                each.idle_timeout_behavior == p4info_pb2.Table.NOTIFY_CONTROL,
                layout,
                each.implementation_id,
            )
        self.profiles = {
            each.preamble.id: Profile(
                each.preamble.id,
                each.preamble.name,
                self.tables[each.table_ids[0]].actions if each.table_ids else {},
                each.with_selector,
                each.size,
                each.max_group_size,
            )
            for each in info.action_profiles
        }
        sets = {each.name: each.bits for each in program.value_sets}
        self.value_sets = {
            each.preamble.id: _value_set(each, sets[each.preamble.name]) for each in info.value_sets
        }
        metered = {meter.name for meter in program.meters}
        self.meters = {
            each.preamble.id: Meter(each.preamble.id, each.preamble.name, each.size)
            for each in info.meters
            if each.preamble.name in metered
        }
        known = {counter.name for counter in program.counters}
        self.counters = {
            each.preamble.id: Counter(each.preamble.id, each.preamble.name, each.size)
            for each in info.counters
            if each.preamble.name in known
        }
        widths = {register.name: register.bits for register in program.registers}
        self.registers = {
            each.preamble.id: _register(each, widths[each.preamble.name])
            for each in info.registers
            if each.preamble.name in widths
        }
        self.digests = digests.layouts(info, program)
        headers = {each.preamble.name: each for each in info.controller_packet_metadata}
        self.packet_in = _fields(headers["packet_in"].metadata) if "packet_in" in headers else ()
        self.packet_out = _fields(headers["packet_out"].metadata) if "packet_out" in headers else ()

    def table(self, number: int) -> Table:
        """The table with this P4Runtime id. Raises Refusal."""
        return _find(self.tables, number, "table")

    def profile(self, number: int) -> Profile:
        """The action profile with this P4Runtime id. Raises Refusal."""
        return _find(self.profiles, number, "action profile")

    def value_set(self, number: int) -> ValueSet:
        """The value set with this P4Runtime id. Raises Refusal."""
        return _find(self.value_sets, number, "value set")

    def meter(self, number: int) -> Meter:
        """The indirect meter with this P4Runtime id. Raises Refusal."""
        return _find(self.meters, number, "meter")

    def counter(self, number: int) -> Counter:
        """The indirect counter with this P4Runtime id. Raises Refusal."""
        return _find(self.counters, number, "counter")

    def register(self, number: int) -> Register:
        """The register with this P4Runtime id. Raises Refusal."""
        return _find(self.registers, number, "register")


def encode(value: int) -> bytes:
    """A number as P4Runtime's canonical byte string: the shortest that holds it."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def indices(cells: Counter | Meter | Register, message: Any) -> range:
    """The cells that a message about an array means: one, or without an index all. Raises Refusal."""
    if not message.HasField("index"):
        return range(cells.size)
    index = message.index.index
    if index < 0:
        raise invalid(f"{cells.name}: the index {index} is negative")
    if index >= cells.size:
        problem = f"{cells.name} has {cells.size} cells, no index {index}"
        raise Refusal(grpc.StatusCode.OUT_OF_RANGE, problem)
    return range(index, index + 1)


def _value_set(node: Any, bits: int) -> ValueSet:
    fields = tuple(
        Field(match.id, match.name or node.preamble.name, match.bitwidth, _match_kind(match))
        for match in node.match
    )
    if sum(field.bits for field in fields) != bits:
        raise KeyError(node.preamble.name)
    if any(field.match == "range" for field in fields):
        raise UnsupportedProgram(f"value set {node.preamble.name}: a range in a value set")
    return ValueSet(node.preamble.id, node.preamble.name, fields, node.size)


def _register(node: Any, bits: int) -> Register:
    spec = node.type_spec
    kind = spec.WhichOneof("type_spec")
    if kind == "bitstring":
        kind = spec.bitstring.WhichOneof("type_spec")
    return Register(node.preamble.id, node.preamble.name, node.size, bits, kind)


def _check_sizes(info: p4info_pb2.P4Info, program: ir.Program) -> None:
    """One program compiled with other dimensions has the same names."""
    sizes = {register.name: register.size for register in program.registers}
    sizes |= {counter.name: counter.size for counter in program.counters}
    sizes |= {meter.name: meter.size for meter in program.meters}
    for each in (*info.registers, *info.counters, *info.meters):
        size = sizes.get(each.preamble.name, each.size)
        if size != each.size:
            raise UnsupportedProgram(
                f"the P4Info is not of this program: {each.preamble.name} has {each.size} cells "
                f"there, {size} in the program"
            )


def _match_kind(field: Any) -> str:
    # Of P4Info, not of the program, where p4c has made ternary keys of optional ones.
    kinds = p4info_pb2.MatchField.MatchType
    if field.match_type not in kinds.values():
        raise UnsupportedProgram(f"{field.name}: a match of kind {field.match_type} is unknown")
    return str(kinds.Name(field.match_type)).lower()


def _fields(nodes: Iterable[Any]) -> tuple[Field, ...]:
    return tuple(Field(node.id, node.name, node.bitwidth) for node in nodes)


def _find(things: Mapping[int, Thing], number: int, what: str) -> Thing:
    if number not in things:
        raise not_found(f"the program has no {what} with id {number:#x}")
    return things[number]
