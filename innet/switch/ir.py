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
    """One field of a header type."""

    name: str
    bits: int
    signed: bool = False


@dataclass(frozen=True)
class Header:
    """A header or a metadata instance."""

    name: str
    fields: tuple[FieldType, ...]
    metadata: bool

    def field(self, name: str) -> FieldType:
        """The field called `name`."""
        return next(each for each in self.fields if each.name == name)


@dataclass(frozen=True)
class Const:
    """A literal number."""

    value: int


@dataclass(frozen=True)
class Bool:
    """A literal truth value."""

    value: bool


@dataclass(frozen=True)
class FieldRef:
    """A field of a header instance, or its validity."""

    header: str
    field: str


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


Expr = Const | Bool | FieldRef | ParamRef | Lookahead | Op


@dataclass(frozen=True)
class Name:
    """A reference to a header, a register array or a counter array."""

    kind: Literal["header", "register_array", "counter_array"]
    name: str


@dataclass(frozen=True)
class Primitive:
    """One step of an action or a parser state."""

    op: str
    args: tuple[Expr | Name, ...]
    source: Source


@dataclass(frozen=True)
class Action:
    """An action: parameters by name and width, then its steps."""

    id: int
    name: str
    params: tuple[tuple[str, int], ...]
    body: tuple[Primitive, ...]


@dataclass(frozen=True)
class Transition:
    """Where a parser state goes if the select key, masked, has this value; always if it is None."""

    value: int | None
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
    match: Literal["exact", "lpm", "ternary", "optional"]
    expr: FieldRef
    bits: int
    mask: int | None = None


@dataclass(frozen=True)
class ConstEntry:
    """An entry that is part of the program. Values and masks are one per key."""

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
    entries_are_const: bool
    direct_counter: str | None
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
class Checksum:
    """A checksum of `inputs` (expression, bits) that lives in `target`."""

    target: FieldRef
    inputs: tuple[tuple[Expr, int], ...]
    condition: Expr
    verify: bool
    update: bool


@dataclass(frozen=True)
class Program:
    """Everything."""

    headers: tuple[Header, ...]
    errors: dict[str, int] = field(hash=False)
    parser_start: str | None
    states: tuple[ParserState, ...]
    deparser: tuple[str, ...]
    actions: tuple[Action, ...]
    ingress: Pipeline
    egress: Pipeline
    registers: tuple[Register, ...]
    counters: tuple[Counter, ...]
    checksums: tuple[Checksum, ...]

    def header(self, name: str) -> Header:
        """The instance called `name`."""
        return next(each for each in self.headers if each.name == name)

    @property
    def tables(self) -> tuple[Table, ...]:
        """All tables, of both pipelines; a table's index here is its number in the engine."""
        return self.ingress.tables + self.egress.tables
