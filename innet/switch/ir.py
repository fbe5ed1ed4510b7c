"""The intermediate form: a P4 program as p4c's BMv2 backend leaves it, in plain frozen records.

Names are the JSON's own. Everything that could not be run was refused when this was built.
"""

from dataclasses import dataclass, field
from typing import Literal

VALID = "$valid$"
"""The name under which a header's validity is read like a field."""


@dataclass(frozen=True)
class Source:
    """Where in the P4 source something stands."""

    file: str = ""
    line: int = 0
    fragment: str = ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.fragment}" if self.file else "(no source)"


@dataclass(frozen=True)
class FieldType:
    """One field of a header type. A varbit has at most `bits` bits, always a multiple of 8."""

    name: str
    bits: int
    signed: bool = False
    varbit: bool = False


@dataclass(frozen=True)
class Header:
    """A header or a metadata instance."""

    name: str
    fields: tuple[FieldType, ...]
    metadata: bool

    def field(self, name: str) -> FieldType:
        """The field called `name`."""
        return next(each for each in self.fields if each.name == name)

    @property
    def varbit(self) -> FieldType | None:
        """The field of variable length, if there is one."""
        return next((each for each in self.fields if each.varbit), None)

    @property
    def fixed_bytes(self) -> int:
        """The header's length in packets, without its varbit."""
        return sum(each.bits for each in self.fields if not each.varbit) // 8


@dataclass(frozen=True)
class Stack:
    """Headers of one type that are reached by index as well.

    The stacks of one `union_stack` have one header each for every union, and are extracted to together.
    """

    name: str
    headers: tuple[str, ...]
    union_stack: str | None = None

    @property
    def counter(self) -> str:
        """What counts how far they are extracted to."""
        return self.union_stack or self.name


@dataclass(frozen=True)
class Union:
    """Headers of which at most one is valid."""

    name: str
    headers: tuple[str, ...]


@dataclass(frozen=True)
class UnionStack:
    """Unions of one type that are reached by index as well; `stacks` are those of their headers."""

    name: str
    unions: tuple[str, ...]
    stacks: tuple[str, ...]


@dataclass(frozen=True)
class ValueSet:
    """Select keys of `bits` bits that are known only when the program runs."""

    name: str
    bits: int

    @property
    def key_bytes(self) -> int:
        """Bytes of a key in the engine: most significant first, padded to 64-bit words."""
        return -(-self.bits // 64) * 8


@dataclass(frozen=True)
class Const:
    """A literal number."""

    value: int


@dataclass(frozen=True)
class Listed:
    """A literal number that is another in every round of a loop, of 0 to 2**64 - 1."""

    values: tuple[int, ...]


@dataclass(frozen=True)
class Bool:
    """A literal truth value."""

    value: bool


@dataclass(frozen=True)
class FieldRef:
    """A field of a header instance, or its validity."""

    header: "str | Element"
    field: str


@dataclass(frozen=True)
class Element:
    """The header of a stack that an expression says."""

    stack: str
    index: "Expr"


@dataclass(frozen=True)
class LastIndex:
    """The index of the header that the parser extracted last to a stack."""

    stack: str


@dataclass(frozen=True)
class UnionValidity:
    """Whether one of a union's headers is valid."""

    union: str


@dataclass(frozen=True)
class ParamRef:
    """An argument of the action at hand."""

    index: int


@dataclass(frozen=True)
class Lookahead:
    """Bits of the packet in front of the parser's cursor."""

    offset: int
    bits: int


@dataclass(frozen=True)
class Op:
    """An operator over one to three operands."""

    op: str
    operands: tuple["Expr", ...]


Expr = Const | Listed | Bool | FieldRef | LastIndex | UnionValidity | ParamRef | Lookahead | Op


@dataclass(frozen=True)
class Name:
    """A reference to a header, an array of state, or a calculation."""

    kind: Literal[
        "header",
        "header_stack",
        "header_union",
        "header_union_stack",
        "register_array",
        "counter_array",
        "meter_array",
        "calculation",
    ]
    name: str


@dataclass(frozen=True)
class Format:
    """What log_msg prints: text around its arguments, which are one fewer than the parts."""

    parts: tuple[str, ...]


@dataclass(frozen=True)
class Primitive:
    """One step of an action or a parser state."""

    op: str
    args: tuple[Expr | Name | Element | Format, ...]
    source: Source


@dataclass(frozen=True)
class Action:
    """An action: parameters by name and width, then its steps."""

    id: int
    name: str
    params: tuple[tuple[str, int], ...]
    body: tuple[Primitive, ...]


def argument_words(bits: int) -> int:
    """64-bit words of an action's argument in C: two, the low one first, or as many as it takes.

    An argument of more than 128 bits stands in them like a field in a packet: most significant byte
    first.
    """
    return 2 if bits <= 128 else -(-bits // 64)


def argument_place(params: tuple[tuple[str, int], ...], index: int) -> int:
    """How many words stand in front of an argument."""
    return sum(argument_words(bits) for _, bits in params[:index])


@dataclass(frozen=True)
class Transition:
    """Where a parser state goes if the select key, masked, has this value; always if it is None.

    It can also be the name of a value set, that has the key or has not.
    """

    value: int | str | None
    mask: int | None
    next_state: str | None


@dataclass(frozen=True)
class ParserState:
    """Steps, then a select over the concatenated keys."""

    name: str
    body: tuple[Primitive, ...]
    keys: tuple[tuple[Expr, int], ...]
    transitions: tuple[Transition, ...]


@dataclass(frozen=True)
class MatchKey:
    """One component of a table's key."""

    name: str
    match: Literal["exact", "lpm", "ternary", "optional", "range"]
    expr: FieldRef
    bits: int
    mask: int | None = None


@dataclass(frozen=True)
class ConstEntry:
    """An entry that is part of the program. Values and masks are one per key.

    For a range they are its bounds, both inclusive.
    """

    values: tuple[int, ...]
    masks: tuple[int, ...]
    priority: int
    action: int
    args: tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """A match-action table and where control goes from it."""

    name: str
    keys: tuple[MatchKey, ...]
    actions: tuple[int, ...]
    size: int
    default_action: int | None
    default_args: tuple[int, ...]
    default_is_const: bool
    entries: tuple[ConstEntry, ...]
    direct_counter: str | None
    direct_meter: str | None
    profile: str | None
    next_by_action: dict[int, str | None] = field(hash=False, compare=False)
    next_on_hit: str | None = None
    next_on_miss: str | None = None
    by_hit: bool = False


@dataclass(frozen=True)
class Conditional:
    """An if."""

    name: str
    condition: Expr
    if_true: str | None
    if_false: str | None
    source: Source


@dataclass(frozen=True)
class Pipeline:
    """A control: nodes that are tables or conditionals, from `start`."""

    name: str
    start: str | None
    tables: tuple[Table, ...]
    conditionals: tuple[Conditional, ...]


@dataclass(frozen=True)
class Register:
    """An array of cells of `bits` each."""

    name: str
    bits: int
    size: int


@dataclass(frozen=True)
class Counter:
    """An array of packet and byte counts, or one pair per entry of `table`."""

    name: str
    size: int
    table: str | None


@dataclass(frozen=True)
class Meter:
    """An array of two-rate three-colour meters, or one per entry of `table`.

    A direct meter's colour goes to `target` when the table is hit.
    """

    name: str
    size: int
    by_bytes: bool
    table: str | None
    target: FieldRef | None


@dataclass(frozen=True)
class Calculation:
    """A hash of `inputs`, and behind them of the packet's payload.

    Fields and constants have their width in bits; a header stands for all of its fields. What is not
    valid is left out, as if it were not in the list.
    """

    algorithm: str
    inputs: tuple[tuple[Expr, int] | Name, ...]
    payload: bool


@dataclass(frozen=True)
class Profile:
    """Actions that table entries share; with a `selector`, an entry may have several to choose of."""

    name: str
    selector: Calculation | None


@dataclass(frozen=True)
class FieldList:
    """Fields that a copy of a packet keeps, or that a digest is made of."""

    id: int
    name: str
    fields: tuple[FieldRef, ...]


@dataclass(frozen=True)
class Checksum:
    """A checksum, by the calculation of this name, that lives in `target`."""

    target: FieldRef
    calculation: str
    condition: Expr
    verify: bool
    update: bool


@dataclass(frozen=True)
class Program:
    """Everything."""

    headers: tuple[Header, ...]
    errors: dict[str, int] = field(hash=False)
    stacks: tuple[Stack, ...]
    unions: tuple[Union, ...]
    union_stacks: tuple[UnionStack, ...]
    value_sets: tuple[ValueSet, ...]
    parser_start: str | None
    states: tuple[ParserState, ...]
    deparser: tuple[str, ...]
    actions: tuple[Action, ...]
    ingress: Pipeline
    egress: Pipeline
    registers: tuple[Register, ...]
    counters: tuple[Counter, ...]
    checksums: tuple[Checksum, ...]
    meters: tuple[Meter, ...]
    profiles: tuple[Profile, ...]
    calculations: dict[str, Calculation] = field(hash=False)

    field_lists: tuple[FieldList, ...]
    learn_lists: tuple[FieldList, ...]

    def header(self, name: str) -> Header:
        """The instance called `name`."""
        return next(each for each in self.headers if each.name == name)

    def header_of(self, ref: "FieldRef") -> Header:
        """The header that a field belongs to; of a stack, any element, for all are alike."""
        if isinstance(ref.header, str):
            return self.header(ref.header)
        return self.header(self.stack(ref.header.stack).headers[0])

    def stack(self, name: str) -> Stack:
        """The header stack called `name`."""
        return next(each for each in self.stacks if each.name == name)

    def union(self, name: str) -> Union:
        """The header union called `name`."""
        return next(each for each in self.unions if each.name == name)

    def union_stack(self, name: str) -> UnionStack:
        """The stack of header unions called `name`."""
        return next(each for each in self.union_stacks if each.name == name)

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables, of both pipelines; a table's index here is its number in the engine."""
        return self.ingress.tables + self.egress.tables
