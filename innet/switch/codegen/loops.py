"""Loops for unrolled actions.

P4 has no loops, so programs repeat the same steps for every lane of a packet. If an action does the
same to neighbouring fields, cells and constants, the generated C has a loop again. The loop
compiles faster, and the compiler turns it into vector instructions.
"""

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from innet.switch import ir
from innet.switch.codegen.data import Bank
from innet.switch.codegen.references import fields_in

_MIN_ROUNDS = 8
_MAX_STEPS = 8

_PLAIN = frozenset({"assign", "register_read", "register_write", "_jump", "_jump_if_zero"})

_FIXED_RIGHT = frozenset({"<<", ">>", "two_comp_mod", "sat_cast", "usat_cast"})
"""Operators whose right operand has to be the same in every round."""

Leaf = ir.FieldRef | ir.Const | ir.Name
Column = tuple[Leaf, ...]


@dataclass(frozen=True)
class Loop:
    """A number of rounds of the same steps, from step `first` of the body on.

    `steps` are the steps of the first round. `lanes` and `cells` are the fields and registers of
    the first round, and each later round uses their next neighbours. `variables` are the other
    fields, which are the same in every round. The steps may set some of them.
    """

    first: int
    rounds: int
    steps: tuple[ir.Primitive, ...]
    lanes: frozenset[ir.FieldRef]
    cells: frozenset[str]
    variables: frozenset[ir.FieldRef]

    @property
    def end(self) -> int:
        """Return the number of the step after the last round."""
        return self.first + self.rounds * len(self.steps)

    @property
    def constants(self) -> tuple[ir.LoopConstants, ...]:
        """Return the constants whose value differs from round to round."""
        return tuple(dict.fromkeys(_listed([step.args for step in self.steps])))


class LoopFinder:
    """A finder of the loops in one program's actions."""

    def __init__(
        self, program: ir.Program, all_banks: Sequence[Bank], temporaries: frozenset[ir.FieldRef]
    ) -> None:
        self._temporaries = temporaries
        self._fields = {
            ir.FieldRef(header.name, field.name): (header.name, field.bits, field.signed, number)
            for header in program.headers
            for number, field in enumerate(header.fields)
            if field.bits <= 64 and not field.varbit
        }
        self._cells = {
            each.name: (bank.number, each.bits, number)
            for bank in all_banks
            for number, each in enumerate(bank.registers)
            if each.bits <= 64
        }

    def loops(self, body: tuple[ir.Primitive, ...]) -> Iterator[Loop]:
        """Yield the loops of an action, in order."""
        shapes = [_shape(step, number) for number, step in enumerate(body)]
        at = 0
        while at < len(body):
            for size in range(1, _MAX_STEPS + 1):
                if loop := self._loop(body, shapes, at, size):
                    yield loop
                    at = loop.end
                    break
            else:
                at += 1

    def _loop(
        self,
        body: tuple[ir.Primitive, ...],
        shapes: list[tuple[object, Column]],
        first: int,
        size: int,
    ) -> Loop | None:
        rounds = _alike([form for form, _ in shapes], first, size)
        if rounds < _MIN_ROUNDS:
            return None
        starts = range(first, first + rounds * size, size)
        leaves = [[leaf for _, part in shapes[at : at + size] for leaf in part] for at in starts]
        columns = list(zip(*leaves, strict=True))
        rounds = min(map(self._in_step, columns), default=0)
        if rounds < _MIN_ROUNDS or not _jumps_stay(body, first, size, rounds):
            return None
        columns = [column[:rounds] for column in columns]
        moving = [column for column in columns if len(set(column)) > 1]
        own = [column for column in moving if column[0] in self._temporaries]
        if not _of_one_round_each(body, own, first, size):
            return None
        lanes = [_fields_of(column) for column in moving if column not in own]
        variables = _fields_of([column[0] for column in columns if column not in moving])
        kept = {each for each in variables if each in self._fields} - self._temporaries
        if any(not kept.isdisjoint(lane) for lane in lanes):
            return None
        values = iter(map(_value_of, columns))
        return Loop(
            first,
            rounds,
            tuple(_filled(step, values) for step in body[first : first + size]),
            frozenset(lane[0] for lane in lanes if lane),
            frozenset(column[0].name for column in moving if isinstance(column[0], ir.Name)),
            frozenset(kept),
        )

    def _in_step(self, column: Column) -> int:
        """Return the number of rounds, from the first on, in which a loop can produce this leaf.

        The leaf may stay the same, or go on to the neighbouring field or cell with every round. It
        may also be another constant or another temporary of the same kind in every round.
        """
        head, second = column[:2]
        if isinstance(head, ir.Const):
            plain = all(0 <= each.value < 1 << 64 for each in column if isinstance(each, ir.Const))
            return len(column) if plain or len(set(column)) == 1 else 0
        if head == second:
            return next((i for i, each in enumerate(column) if each != head), len(column))
        if isinstance(head, ir.FieldRef) and head in self._temporaries:
            alike = [
                each in self._temporaries and self._kind(each) == self._kind(head)
                for each in column
            ]
            return alike.index(False) if False in alike else len(alike)
        positions = [self._position(each) for each in column]
        if positions[0] is None:
            return 0
        *kind, at = positions[0]
        return next(
            (i for i, position in enumerate(positions) if position != (*kind, at + i)), len(column)
        )

    def _position(self, leaf: Leaf) -> tuple[Any, ...] | None:
        """Return the position of a field or cell: neighbours differ by one in its last number."""
        if isinstance(leaf, ir.Name):
            return self._cells.get(leaf.name)
        if isinstance(leaf, ir.FieldRef) and leaf not in self._temporaries:
            return self._fields.get(leaf)
        return None

    def _kind(self, leaf: Leaf) -> tuple[Any, ...]:
        """Return the bits of a field, and whether it has a sign."""
        return (
            self._fields[leaf][1:3]
            if isinstance(leaf, ir.FieldRef) and leaf in self._fields
            else ()
        )


def _of_one_round_each(
    body: tuple[ir.Primitive, ...], own: list[Column], first: int, size: int
) -> bool:
    """Return whether each temporary belongs to a single round, so that one variable serves all rounds."""
    round_of = {field: number for column in own for number, field in enumerate(column)}
    if any(round_of[field] != number for column in own for number, field in enumerate(column)):
        return False
    return all(
        round_of.get(field, (number - first) // size) == (number - first) // size
        for number, step in enumerate(body)
        for field in fields_in(step.args)
    )


def _fields_of(leaves: Iterable[Leaf]) -> tuple[ir.FieldRef, ...]:
    return tuple(each for each in leaves if isinstance(each, ir.FieldRef))


def _shape(node: Any, number: int = 0) -> tuple[object, Column]:
    """Return the form that steps of different rounds have in common, and the leaves that may differ."""
    match node:
        case ir.Primitive(("_jump" | "_jump_if_zero") as op, (*args, ir.Const(target))):
            return _joined((op, target - number), args)
        case ir.Primitive(op, args) if op in _PLAIN:
            return _joined(op, args)
        case ir.Primitive():
            return number, ()
        case ir.Op(op, (left, right)) if op in _FIXED_RIGHT:
            return _joined((op, right), (left,))
        case ir.Op(op, operands):
            return _joined(op, operands)
        case ir.FieldRef(str()) | ir.Const() | ir.Name("register_array"):
            return type(node), (node,)
        case ir.FieldRef():  # the program selects the header at runtime
            return object(), ()
    return node, ()


def _joined(head: object, parts: Sequence[Any]) -> tuple[object, Column]:
    shapes = [_shape(part) for part in parts]
    return (head, *(form for form, _ in shapes)), tuple(leaf for _, all_ in shapes for leaf in all_)


def _filled(node: Any, leaves: Iterator[Leaf | ir.LoopConstants]) -> Any:
    """Return a step with other leaves, in the order of its shape."""
    match node:
        case ir.Primitive("_jump" | "_jump_if_zero", (*args, target)):
            return dataclasses.replace(
                node, args=(*(_filled(each, leaves) for each in args), target)
            )
        case ir.Primitive(_, args):
            return dataclasses.replace(node, args=tuple(_filled(each, leaves) for each in args))
        case ir.Op(op, (left, right)) if op in _FIXED_RIGHT:
            return ir.Op(op, (_filled(left, leaves), right))
        case ir.Op(op, operands):
            return ir.Op(op, tuple(_filled(each, leaves) for each in operands))
        case ir.FieldRef(str()) | ir.Const() | ir.Name("register_array"):
            return next(leaves)
    return node


def _value_of(column: Column) -> Leaf | ir.LoopConstants:
    if isinstance(column[0], ir.Const) and len(set(column)) > 1:
        return ir.LoopConstants(tuple(each.value for each in column if isinstance(each, ir.Const)))
    return column[0]


def _alike(forms: list[object], first: int, size: int) -> int:
    """Return the number of rounds whose steps have the same forms."""
    rounds = 1
    while forms[first + rounds * size : first + (rounds + 1) * size] == forms[first : first + size]:
        rounds += 1
    return rounds


def _jumps_stay(body: tuple[ir.Primitive, ...], first: int, size: int, rounds: int) -> bool:
    """Return whether the jumps allow a loop.

    A jump in a round has to lead forward, and not beyond the end of the round. A jump from outside may
    lead only to the first step of the loop.
    """
    inside = range(first, first + rounds * size)
    for number, step in enumerate(body):
        if step.op not in ("_jump", "_jump_if_zero") or not isinstance(step.args[-1], ir.Const):
            continue
        target = step.args[-1].value
        if number in inside:
            end = number - (number - first) % size + size
            if not number < target <= end:
                return False
        elif target in inside and target != first:
            return False
    return True


def _listed(node: object) -> Iterator[ir.LoopConstants]:
    match node:
        case ir.LoopConstants():
            yield node
        case ir.Op(_, parts) | (tuple() as parts) | (list() as parts):
            for each in parts:
                yield from _listed(each)
