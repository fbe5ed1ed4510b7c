"""The intermediate form: a P4 program as p4c's BMv2 backend leaves it, in plain frozen records.

Names are those of the JSON. The reader that builds this form has refused all programs that cannot
run.
"""

from dataclasses import dataclass, field
from typing import Literal

VALID = "$valid$"
"""The name under which a header's validity is read like a field."""


@dataclass(frozen=True)
class Source:
    """A place in the P4 source."""

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
        """Return the field called `name`."""
        return next(each for each in self.fields if each.name == name)

    @property
    def varbit(self) -> FieldType | None:
        """Return the field of variable length, if there is one."""
        return next((each for each in self.fields if each.varbit), None)

    @property
    def fixed_bytes(self) -> int:
        """Return the header's length in packets, without its varbit."""
        return sum(each.bits for each in self.fields if not each.varbit) // 8


@dataclass(frozen=True)
class Stack:
    """Headers of one type that can also be reached by index.

    Each stack of a `union_stack` has one header per union. All stacks of a union stack share the
    parser's counter of extracted headers.
    """

    name: str
    headers: tuple[str, ...]
    union_stack: str | None = None

    @property
    def counter(self) -> str:
        """Return the name of the counter of extracted headers, which stacks of a union stack share."""
        return self.union_stack or self.name


@dataclass(frozen=True)
class Union:
    """Headers of which at most one is valid."""

    name: str
    headers: tuple[str, ...]


@dataclass(frozen=True)
class UnionStack:
    """Unions of one type that can also be reached by index. `stacks` are the stacks of their headers."""

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
        """Return the bytes of a key in the engine: most significant first, padded to 64-bit words."""
        return -(-self.bits // 64) * 8


@dataclass(frozen=True)
class Const:
    """A literal number."""

    value: int


@dataclass(frozen=True)
class Listed:
    """A literal number from 0 to 2**64 - 1 that differs from round to round of a loop."""

    values: tuple[int, ...]


@dataclass(frozen=True)
class Bool:
    """A literal truth value."""

    value: bool


@dataclass(frozen=True)
class FieldRef:
    """A field of a header instance, or the header's validity."""

    header: "str | Element"
    field: str


@dataclass(frozen=True)
class Element:
    """A header of a stack, selected by an expression."""

    stack: str
    index: "Expr"


@dataclass(frozen=True)
class LastIndex:
    """The index of the header that the parser last extracted to a stack."""

    stack: str


@dataclass(frozen=True)
class UnionValidity:
    """A test whether one of a union's headers is valid."""

    union: str


@dataclass(frozen=True)
class ParamRef:
    """An argument of the current action."""

    index: int


@dataclass(frozen=True)
class Lookahead:
    """Bits of the packet in front of the parser's cursor."""

    offset: int
    bits: int


@dataclass(frozen=True)
class Op:
    """An operator with one to three operands."""

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
    """The text that log_msg prints: the parts around its arguments, one more than there are arguments."""

    parts: tuple[str, ...]


@dataclass(frozen=True)
class Primitive:
    """One step of an action or a parser state."""

    op: str
    args: tuple[Expr | Name | Element | Format, ...]
    source: Source


@dataclass(frozen=True)
class Action:
    """An action: the names and widths of its parameters, and its steps."""

    id: int
    name: str
    params: tuple[tuple[str, int], ...]
    body: tuple[Primitive, ...]


def argument_words(bits: int) -> int:
    """Return the number of 64-bit words that an action's argument takes in C.

    An argument of up to 128 bits takes two words, the low one first. A wider one takes as many as
    it needs, and stands in them like a field in a packet: most significant byte first.
    """
    return 2 if bits <= 128 else -(-bits // 64)


def argument_place(params: tuple[tuple[str, int], ...], index: int) -> int:
    """Return the number of words in front of an argument. Raises IndexError if there is none."""
    if not 0 <= index < len(params):
        raise IndexError(f"argument {index} of {len(params)}")
    return sum(argument_words(bits) for _, bits in params[:index])


@dataclass(frozen=True)
class Transition:
    """A parser state's transition for one value of the masked select key. A value of None always matches.

    The value can also be the name of a value set, which must contain the key.
    """

    value: int | str | None
    mask: int | None
    next_state: str | None


@dataclass(frozen=True)
class ParserState:
    """Steps, followed by a select over the concatenated keys."""

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
    """An entry that is part of the program, with one value and one mask per key.

    For a range, value and mask are its bounds, both inclusive.
    """

    values: tuple[int, ...]
    masks: tuple[int, ...]
    priority: int
    action: int
    args: tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """A match-action table, with the nodes that control goes to from it."""

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
    """A condition with its two branches."""

    name: str
    condition: Expr
    if_true: str | None
    if_false: str | None
    source: Source


@dataclass(frozen=True)
class Pipeline:
    """A control: tables and conditionals as nodes, from `start` on."""

    name: str
    start: str | None
    tables: tuple[Table, ...]
    conditionals: tuple[Conditional, ...]


@dataclass(frozen=True)
class Register:
    """An array of cells of `bits` bits each."""

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

    A hit in the table writes the direct meter's colour to `target`.
    """

    name: str
    size: int
    by_bytes: bool
    table: str | None
    target: FieldRef | None


@dataclass(frozen=True)
class Calculation:
    """A hash of `inputs` and, with `payload`, of the packet's payload behind them.

    Fields and constants come with their width in bits. A header stands for all of its fields.
    Fields of invalid headers are left out, as if they were not in the list.
    """

    algorithm: str
    inputs: tuple[tuple[Expr, int] | Name, ...]
    payload: bool


@dataclass(frozen=True)
class Profile:
    """Actions that table entries share. With a `selector`, an entry may choose from several of them."""

    name: str
    selector: Calculation | None


@dataclass(frozen=True)
class FieldList:
    """The fields that a copy of a packet keeps, or that a digest consists of."""

    id: int
    name: str
    fields: tuple[FieldRef, ...]


@dataclass(frozen=True)
class Checksum:
    """A checksum in `target`, by the calculation of this name."""

    target: FieldRef
    calculation: str
    condition: Expr
    verify: bool
    update: bool


@dataclass(frozen=True)
class Program:
    """A whole program."""

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
        """Return the header instance called `name`."""
        return next(each for each in self.headers if each.name == name)

    def header_of(self, ref: "FieldRef") -> Header:
        """Return the header that a field belongs to. For a stack it is any element."""
        if isinstance(ref.header, str):
            return self.header(ref.header)
        return self.header(self.stack(ref.header.stack).headers[0])

    def stack(self, name: str) -> Stack:
        """Return the header stack called `name`."""
        return next(each for each in self.stacks if each.name == name)

    def union(self, name: str) -> Union:
        """Return the header union called `name`."""
        return next(each for each in self.unions if each.name == name)

    def union_stack(self, name: str) -> UnionStack:
        """Return the stack of header unions called `name`."""
        return next(each for each in self.union_stacks if each.name == name)

    @property
    def tables(self) -> tuple[Table, ...]:
        """Return the tables of both pipelines. A table's index here is its number in the engine."""
        return self.ingress.tables + self.egress.tables
