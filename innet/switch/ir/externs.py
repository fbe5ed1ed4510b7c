"""The objects of v1model that a program declares: arrays of state, hashes, and lists of fields."""

from dataclasses import dataclass

from innet.switch.ir.actions import Name
from innet.switch.ir.expressions import Expr, FieldRef


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
class Checksum:
    """A checksum in `target`, by the calculation of this name."""

    target: FieldRef
    calculation: str
    condition: Expr
    verify: bool
    update: bool


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
