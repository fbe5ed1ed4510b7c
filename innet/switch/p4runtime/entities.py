"""The entities of P4Info, as far as they are bound to the running program."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from innet.switch import ir
from innet.switch.p4runtime.refusals import invalid, out_of_range

_OVERLAPPING = ("ternary", "optional", "range")


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
        """Return the number in a P4Runtime byte string. Raises Refusal if it is empty or too wide."""
        if not data:
            raise out_of_range(f"{self.name}: the value is empty")
        value = int.from_bytes(data, "big")
        if value > self.full:
            message = f"{self.name}: {value:#x} does not fit {self.bits} bits"
            raise out_of_range(message)
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
    profile: int  # the P4Runtime id of the action profile that its entries use, or 0

    @property
    def needs_priority(self) -> bool:
        """Return whether entries can overlap, so that clients have to give them priorities."""
        return any(field.match in _OVERLAPPING for field in self.fields)

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
    """An action profile. With a selector, an entry can choose from several actions.

    In a profile without a selector, `size` is the most members. With a selector, `size` is the most that
    all groups contain together, and `largest_group` the most in one group. These count members if
    `by_members`, and otherwise the sum of their weights. A limit of 0 is none.
    """

    id: int
    name: str
    actions: Mapping[int, Action]
    selects: bool
    size: int
    largest_group: int
    by_members: bool = False
    max_weight: int = 0

    def size_of(self, weights: Iterable[int]) -> int:
        """Return what a group with members of these weights counts for the limits."""
        return len([*weights]) if self.by_members else sum(weights)


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
        """Return the bits in a P4Runtime byte string. Raises Refusal if it is empty or too wide."""
        signed = self.kind == "int"
        value = int.from_bytes(data, "big", signed=signed)
        low, high = (-(1 << self.bits - 1), 1 << self.bits - 1) if signed else (0, 1 << self.bits)
        if not data or not low <= value < high:
            message = f"{self.name}: {data.hex() or 'nothing'} does not fit {self.bits} bits"
            raise out_of_range(message)
        return value & (1 << self.bits) - 1


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
        problem = f"{cells.name} has {cells.size} cells: the index {index} is too large"
        raise out_of_range(problem)
    return range(index, index + 1)
