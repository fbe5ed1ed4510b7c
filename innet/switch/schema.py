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
from innet.switch.refusal import Refusal, invalid, not_found

_ANY_PRIORITY = ("ternary", "optional")

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
            raise invalid(f"{self.name}: the value is empty")
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


@dataclass(frozen=True)
class Table:
    """A table; `actions` by P4Runtime id, `layout` is the program's side of it."""

    id: int
    name: str
    fields: tuple[Field, ...]
    actions: Mapping[int, Action]
    size: int
    layout: ir.Table

    @property
    def needs_priority(self) -> bool:
        """Whether entries can overlap, so that clients have to rank them."""
        return any(field.match in _ANY_PRIORITY for field in self.fields)

    def action(self, number: int) -> Action:
        """The action that the program knows by this id."""
        return next(each for each in self.actions.values() if each.number == number)


@dataclass(frozen=True)
class Counter:
    """An indirect counter."""

    id: int
    name: str
    size: int


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
                    )
                    for ref in each.action_refs
                },
                each.size,
                layout,
            )
        known = {counter.name for counter in program.counters}
        self.counters = {
            each.preamble.id: Counter(each.preamble.id, each.preamble.name, each.size)
            for each in info.counters
            if each.preamble.name in known
        }
        headers = {each.preamble.name: each for each in info.controller_packet_metadata}
        self.packet_in = _fields(headers["packet_in"].metadata) if "packet_in" in headers else ()
        self.packet_out = _fields(headers["packet_out"].metadata) if "packet_out" in headers else ()

    def table(self, number: int) -> Table:
        """The table with this P4Runtime id. Raises Refusal."""
        return _find(self.tables, number, "table")

    def counter(self, number: int) -> Counter:
        """The indirect counter with this P4Runtime id. Raises Refusal."""
        return _find(self.counters, number, "counter")


def _check_sizes(info: p4info_pb2.P4Info, program: ir.Program) -> None:
    """One program compiled with other dimensions has the same names."""
    sizes = {register.name: register.size for register in program.registers}
    sizes |= {counter.name: counter.size for counter in program.counters}
    for each in (*info.registers, *info.counters):
        size = sizes.get(each.preamble.name, each.size)
        if size != each.size:
            raise UnsupportedProgram(
                f"the P4Info is not of this program: {each.preamble.name} has {each.size} cells "
                f"there, {size} in the program"
            )


def _match_kind(field: Any) -> str:
    # Of P4Info, not of the program, where p4c has made ternary keys of optional ones.
    return str(p4info_pb2.MatchField.MatchType.Name(field.match_type)).lower()


def _fields(nodes: Iterable[Any]) -> tuple[Field, ...]:
    return tuple(Field(node.id, node.name, node.bitwidth) for node in nodes)


def _find(things: Mapping[int, Thing], number: int, what: str) -> Thing:
    if number not in things:
        raise not_found(f"the program has no {what} with id {number:#x}")
    return things[number]
