"""Names of a program as C identifiers.

No text of a program stands unchanged in its C. Before anything is generated, :func:`renamed`
replaces every string of the program with an identifier made here. Two kinds of strings stay. One
kind is words that the reader has compared with its own lists. The other is texts that are printed,
which :func:`~innet.switch.codegen.text.c_string` escapes.
"""

import dataclasses
import re
from typing import Any, TypeVar

from innet.switch import ir

Part = TypeVar("Part")

_MAX_LENGTH = 48
_KEPT = {
    ir.Op: ("op",),
    ir.Primitive: ("op",),
    ir.Name: ("kind",),
    ir.MatchKey: ("match",),
    ir.Calculation: ("algorithm",),
    ir.SourceLocation: ("file", "fragment"),
    ir.Format: ("parts",),
}
"""The parts of a program that are not names."""


class Names:
    """The identifiers of one program.

    Each begins with ``p4_``, unlike all words of C and all names of the runtime. Equal names have
    the same identifier, and different names have different ones.
    """

    def __init__(self) -> None:
        self._made: dict[tuple[str, ...], str] = {(ir.VALID,): ir.VALID}
        self._names: dict[str, str] = {}
        self._next: dict[str, int] = {}

    def of(self, *name: str) -> str:
        """Return the identifier of a name, or of a pair of identifiers."""
        if name not in self._made:
            shown = ".".join(map(self.shown, name))
            made = self._unused("p4_" + re.sub("[^A-Za-z0-9]+", "_", shown)[:_MAX_LENGTH])
            self._made[name], self._names[made] = made, shown
        return self._made[name]

    def shown(self, identifier: str) -> str:
        """Return the name behind an identifier, for people to read."""
        return self._names.get(identifier, identifier)

    def _unused(self, text: str) -> str:
        made = text
        while made in self._names:
            self._next[text] = self._next.get(text, 1) + 1
            made = f"{text}_{self._next[text]}"
        return made


def renamed(part: Part, names: Names) -> Part:
    """Return a program, or a part of one, with an identifier in place of every name."""
    known: dict[ir.FieldRef, ir.FieldRef] = {}

    def of(node: Any) -> Any:
        if isinstance(node, str):
            return names.of(node)
        if isinstance(node, tuple):
            return tuple([of(each) for each in node])
        if isinstance(node, ir.FieldRef):
            if node not in known:
                known[node] = record(node)
            return known[node]
        if isinstance(node, dict):
            return {of(key): of(value) for key, value in node.items()}
        return record(node) if dataclasses.is_dataclass(node) else node

    def record(node: Any) -> Any:
        kept = _KEPT.get(type(node), ())
        parts = ((each.name, getattr(node, each.name)) for each in dataclasses.fields(node))
        return type(node)(**{name: part if name in kept else of(part) for name, part in parts})

    result: Part = of(part)
    return result
