"""Pipelines of tables and conditions."""

from dataclasses import dataclass, field
from typing import Literal

from innet.switch.ir.actions import SourceLocation
from innet.switch.ir.expressions import Expr, FieldRef


@dataclass(frozen=True)
class MatchKey:
    """One component of a table's key.

    If there is a `mask`, the packet's value and the entries' values are masked with it.
    """

    name: str
    match: Literal["exact", "lpm", "ternary", "optional", "range"]
    expr: FieldRef
    bits: int
    mask: int | None = None


@dataclass(frozen=True)
class ConstEntry:
    """An entry that is part of the program, with one value and one mask per key.

    For a range, value and mask are its bounds, both inclusive. `action` is the action's id. If several
    entries match, the highest priority wins.
    """

    values: tuple[int, ...]
    masks: tuple[int, ...]
    priority: int
    action: int
    args: tuple[int, ...]


@dataclass(frozen=True)
class Table:
    """A match-action table. `size` is the number of entries that the source asks for.

    Actions are given by their ids, and counters, meters and profiles by their names. With a `profile`,
    the entries have no actions of their own.

    The table or condition that follows depends on hit and miss if the table is `by_hit`. Otherwise it
    depends on the action that runs, and is `next_on_miss` if none does. None ends the pipeline.
    """

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
    """A condition, with the tables or conditions that follow it. None ends the pipeline."""

    name: str
    condition: Expr
    if_true: str | None
    if_false: str | None
    source: SourceLocation


@dataclass(frozen=True)
class Pipeline:
    """A control: tables and conditionals as nodes, from `start` on."""

    name: str
    start: str | None
    tables: tuple[Table, ...]
    conditionals: tuple[Conditional, ...]
