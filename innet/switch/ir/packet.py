"""Headers, and the stacks and unions of headers: what a packet and its metadata consist of."""

from dataclasses import dataclass

STANDARD_METADATA = "standard_metadata"
"""The name of v1model's own metadata."""


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
