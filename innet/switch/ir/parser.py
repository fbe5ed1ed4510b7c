"""The states of the parser, and the transitions between them."""

from dataclasses import dataclass

from innet.switch.ir.actions import Primitive
from innet.switch.ir.expressions import Expr


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
    """Steps, followed by a select over `keys`: expressions, each with its width in bits.

    The first transition whose value matches is taken, or else one without a value. If there is none, the
    parser accepts the packet. A transition's value and mask hold those of all keys side by side, each
    padded to whole bytes.
    """

    name: str
    body: tuple[Primitive, ...]
    keys: tuple[tuple[Expr, int], ...]
    transitions: tuple[Transition, ...]


@dataclass(frozen=True)
class ValueSet:
    """Select keys of `bits` bits that are known only when the program runs."""

    name: str
    bits: int
