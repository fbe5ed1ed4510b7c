"""Expressions over fields, arguments of actions and bits of the packet."""

from dataclasses import dataclass

VALID = "$valid$"
"""The name under which a header's validity is read like a field."""


@dataclass(frozen=True)
class Const:
    """A literal number."""

    value: int


@dataclass(frozen=True)
class LoopConstants:
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


Expr = (
    Const | LoopConstants | Bool | FieldRef | LastIndex | UnionValidity | ParamRef | Lookahead | Op
)
