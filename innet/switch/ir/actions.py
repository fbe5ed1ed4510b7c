"""Actions and their steps, which parser states have too."""

from dataclasses import dataclass
from typing import Literal

from innet.switch.ir.expressions import Element, Expr


@dataclass(frozen=True)
class SourceLocation:
    """A place in the P4 source."""

    file: str = ""
    line: int = 0
    fragment: str = ""

    @property
    def prefix(self) -> str:
        """Return the beginning of a message about this place."""
        return f"{self}: " if self.file else ""

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.fragment}" if self.file else "(no source)"


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
    """The text of a log_msg, or of a failed assertion, in parts.

    An argument stands between two parts, so there is one more part than there are arguments.
    """

    parts: tuple[str, ...]


@dataclass(frozen=True)
class Primitive:
    """One step of an action or a parser state. `op` is p4c's name of the primitive."""

    op: str
    args: tuple[Expr | Name | Element | Format, ...]
    source: SourceLocation


@dataclass(frozen=True)
class Action:
    """An action. `params` has the name of each parameter, and its width in bits."""

    id: int
    name: str
    params: tuple[tuple[str, int], ...]
    body: tuple[Primitive, ...]
