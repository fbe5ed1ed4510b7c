"""The names and ids of P4Info, bound to those of the compiled program.

The P4Info and the BMv2 JSON of one compilation share the names of tables, actions and counters.
Only P4Info has P4Runtime's ids.
"""

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

import grpc
from p4.config.v1 import p4info_pb2

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.p4runtime import digests
from innet.switch.p4runtime.info import check
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
        """Return a number with all bits of the field set."""
        return (1 << self.bits) - 1

    def parse(self, data: bytes) -> int:
        """Return the number in a P4Runtime byte string. Raises Refusal if it is too wide."""
        if not data:
            raise Refusal(grpc.StatusCode.OUT_OF_RANGE, f"{self.name}: the value is empty")
        value = int.from_bytes(data, "big")
        if value > self.full:
            message = f"{self.name}: {value:#x} does not fit {self.bits} bits"
            raise Refusal(grpc.StatusCode.OUT_OF_RANGE, message)
        return value


@dataclass(frozen=True)
class Action:
    """An action as one table uses it. `number` is the action's id in the program."""

    id: int
    name: str
    number: int
    params: tuple[Field, ...]
    in_entries: bool = True
    as_default: bool = True


@dataclass(frozen=True)
class Table:
    """A table. `actions` are by P4Runtime id, and `layout` is the table in the program."""

    id: int
    name: str
    fields: tuple[Field, ...]
    actions: Mapping[int, Action]
    size: int
    is_const: bool
    ages: bool
    layout: ir.Table
    profile: int = 0  # the P4Runtime id of the action profile that its entries use, if any

    @property
    def needs_priority(self) -> bool:
        """Return whether entries can overlap, so that clients have to give them priorities."""
        return any(field.match in _ANY_PRIORITY for field in self.fields)

    def action(self, number: int) -> Action:
        """Return the action with this number in the program."""
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
    """An action profile. With a selector, an entry can choose from several actions."""

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
        """Return the bits in a P4Runtime byte string. Raises Refusal if they are too many."""
        signed = self.kind == "int"
        value = int.from_bytes(data, "big", signed=signed)
        low, high = (-(1 << self.bits - 1), 1 << self.bits - 1) if signed else (0, 1 << self.bits)
        if not data or not low <= value < high:
            message = f"{self.name}: {data.hex() or 'nothing'} does not fit {self.bits} bits"
            raise Refusal(grpc.StatusCode.OUT_OF_RANGE, message)
        return value & (1 << self.bits) - 1


class Schema:
    """All of a program's P4Runtime entities. Raises UnsupportedProgram if P4Info and program differ.

    p4c removes unreachable parts from the program, but not from its P4Info. Such a part is known by
    name, but cannot be written or read.
    """

    def __init__(self, info: p4info_pb2.P4Info, program: ir.Program) -> None:
        check(info)
        _check_related(info, program)
        _check_sizes(info, program)
        self._removed: dict[int, str] = {}
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
        params = {action.id: [bits for _, bits in action.params] for action in program.actions}
        self.tables: dict[int, Table] = {}
        for each in self._present(info.tables, layouts):
            layout = layouts[each.preamble.name]
            by_name = {numbers[number]: number for number in layout.actions}
            if [field.bitwidth for field in each.match_fields] != [key.bits for key in layout.keys]:
                raise KeyError(each.preamble.name)
            for call in (actions[ref.id] for ref in each.action_refs):
                widths = [param.bitwidth for param in call.params]
                if widths != params[by_name[call.preamble.name]]:
                    raise KeyError(call.preamble.name)
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
        names = {profile.name for profile in program.profiles}
        self.profiles = {
            each.preamble.id: Profile(
                each.preamble.id,
                each.preamble.name,
                next((self.tables[at].actions for at in each.table_ids if at in self.tables), {}),
                each.with_selector,
                each.size,
                each.max_group_size,
            )
            for each in self._present(info.action_profiles, names)
        }
        sets = {each.name: each.bits for each in program.value_sets}
        self.value_sets = {
            each.preamble.id: _value_set(each, sets[each.preamble.name])
            for each in self._present(info.value_sets, sets)
        }
        metered = {meter.name for meter in program.meters}
        self.meters = {
            each.preamble.id: Meter(each.preamble.id, each.preamble.name, each.size)
            for each in self._present(info.meters, metered)
        }
        known = {counter.name for counter in program.counters}
        self.counters = {
            each.preamble.id: Counter(each.preamble.id, each.preamble.name, each.size)
            for each in self._present(info.counters, known)
        }
        cells = {register.name: register.bits for register in program.registers}
        self.registers = {
            each.preamble.id: _register(each, cells[each.preamble.name])
            for each in self._present(info.registers, cells)
        }
        self.digests = digests.layouts(info, program)
        headers = {each.preamble.name: each for each in info.controller_packet_metadata}
        self.packet_in = _fields(headers["packet_in"].metadata) if "packet_in" in headers else ()
        self.packet_out = _fields(headers["packet_out"].metadata) if "packet_out" in headers else ()

    def _present(self, things: Iterable[Any], names: Container[str]) -> list[Any]:
        """Return the entities that the program has, and remember the names of the others."""
        missing = (each.preamble for each in things if each.preamble.name not in names)
        self._removed |= {preamble.id: preamble.name for preamble in missing}
        return [each for each in things if each.preamble.name in names]

    def table(self, number: int) -> Table:
        """Return the table with this P4Runtime id. Raises Refusal."""
        return self._find(self.tables, number, "table")

    def profile(self, number: int) -> Profile:
        """Return the action profile with this P4Runtime id. Raises Refusal."""
        return self._find(self.profiles, number, "action profile")

    def value_set(self, number: int) -> ValueSet:
        """Return the value set with this P4Runtime id. Raises Refusal."""
        return self._find(self.value_sets, number, "value set")

    def meter(self, number: int) -> Meter:
        """Return the indirect meter with this P4Runtime id. Raises Refusal."""
        return self._find(self.meters, number, "meter")

    def counter(self, number: int) -> Counter:
        """Return the indirect counter with this P4Runtime id. Raises Refusal."""
        return self._find(self.counters, number, "counter")

    def register(self, number: int) -> Register:
        """Return the register with this P4Runtime id. Raises Refusal."""
        return self._find(self.registers, number, "register")

    def _find(self, things: Mapping[int, Thing], number: int, what: str) -> Thing:
        if number in self._removed:
            raise not_found(
                f"{self._removed[number]} is not in the program: p4c has removed it, because no packet "
                "gets there"
            )
        if number not in things:
            raise not_found(f"the program has no {what} with id {number:#x}")
        return things[number]


def encode(value: int) -> bytes:
    """Return a number as P4Runtime's canonical byte string: the shortest one that holds it."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def indices(cells: Counter | Meter | Register, message: Any) -> range:
    """Return the cells that a message is about: one, or without an index all. Raises Refusal."""
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


def _check_related(info: p4info_pb2.P4Info, program: ir.Program) -> None:
    """Raise UnsupportedProgram if the program has none of the entities in the P4Info."""
    named: list[Any] = [*program.registers, *program.counters, *program.meters]
    named += [*program.tables, *program.value_sets, *program.profiles]
    known = {each.name for each in named}
    there = [*info.registers, *info.counters, *info.meters]
    there += [*info.tables, *info.value_sets, *info.action_profiles]
    if there and not any(each.preamble.name in known for each in there):
        missing = there[0].preamble.name
        raise UnsupportedProgram(f"the P4Info is not of this program: it does not have {missing!r}")


def _check_sizes(info: p4info_pb2.P4Info, program: ir.Program) -> None:
    """Raise UnsupportedProgram if the sizes of arrays differ.

    A program that is compiled with other dimensions has the same names.
    """
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
    # P4Info has the source's kinds. In the program, p4c has turned optional keys into ternary ones.
    kinds = p4info_pb2.MatchField.MatchType
    if field.match_type not in kinds.values():
        raise UnsupportedProgram(f"{field.name}: a match of kind {field.match_type} is unknown")
    return str(kinds.Name(field.match_type)).lower()


def _fields(nodes: Iterable[Any]) -> tuple[Field, ...]:
    return tuple(Field(node.id, node.name, node.bitwidth) for node in nodes)
