"""A whole program, with lookups by name."""

from dataclasses import dataclass, field

from innet.switch.ir.actions import Action
from innet.switch.ir.controls import Pipeline, Table
from innet.switch.ir.expressions import FieldRef
from innet.switch.ir.externs import (
    Calculation,
    Checksum,
    Counter,
    FieldList,
    Meter,
    Profile,
    Register,
)
from innet.switch.ir.packet import Header, Stack, Union, UnionStack
from innet.switch.ir.parser import ParserState, ValueSet


@dataclass(frozen=True)
class Program:
    """A whole program.

    `headers` are all instances of headers and metadata, also those in stacks and unions. `errors` are
    codes by name, and `calculations` hashes by name. `parser_start` is the name of a state, or None for
    a parser that accepts everything at once. `deparser` has the headers to write, in order.
    `field_lists` are for copies of packets, and `learn_lists` for digests.
    """

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

    def header_of(self, ref: FieldRef) -> Header:
        """Return the header that a field belongs to. For a stack's element, this is the first header."""
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
