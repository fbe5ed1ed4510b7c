"""Registers: reads and writes of cells in actions, also outside of the arrays.

As in BMv2, a read outside of an array leaves its target as it was, and a write there is lost.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from innet.switch import ir
from innet.switch.codegen import fields
from innet.switch.codegen.data import Bank
from innet.switch.codegen.effects import SET_NO_FIELD, TARGETS
from innet.switch.codegen.scope import Scope

_MIN_ACCESSES = 4
"""The fewest accesses to a row for which a substitute row replaces a test at every access."""


@dataclass(frozen=True)
class Row:
    """The only row of a bank that an action uses.

    If its index may be outside of the array, a substitute row can take its place. `substitutes` are
    the cells that are read and the fields that are set to them. The substitute's cells hold the
    present values of these fields, so that a read changes nothing.
    """

    bank: Bank
    index: ir.Expr
    in_bounds: bool
    substitutes: tuple[tuple[str, ir.FieldRef], ...] | None


class Registers:
    """A renderer of accesses. Where an action allows it, the row of a bank is looked up only once."""

    def __init__(self, scope: Scope, all_banks: list[Bank]) -> None:
        self._scope, self._emit = scope, scope.emit
        self.banks = all_banks
        self._bank_of = {each.name: bank for bank in all_banks for each in bank.registers}
        self._registers = {each.name: each for each in scope.program.registers}
        self._conditions: dict[int, str] = {}
        """Text in front of each access to a looked-up row, by the bank's number."""
        self.lanes: frozenset[str] = frozenset()
        """In a loop, the registers that are the first of neighbours. The rounds are counted by ``i``."""

    def read(self, target: ir.FieldRef, array: ir.Name, index: ir.Expr) -> None:
        """Set a field to a cell."""
        lvalue, kind = self._scope.lvalue(target), self._scope.expressions.field_type(target)
        cell = fields.of(self._registers[array.name])
        self._access(array.name, index, lambda source: fields.copy(lvalue, kind, source, cell))

    def write(self, array: ir.Name, index: ir.Expr, value: ir.Expr) -> None:
        """Set a cell to an expression."""
        kind = fields.of(self._registers[array.name])
        self._access(array.name, index, lambda cell: fields.assign(self._scope, cell, kind, value))

    def in_text(self, step: ir.Primitive) -> tuple[object, ...]:
        """Return the arguments of a step that its C mentions. A looked-up row needs no index."""
        access = _register_access(step)
        if access and self._bank_of[access[0]].number in self._conditions:
            return tuple(arg for arg in step.args if arg is not access[1])
        return step.args

    def rows(self, body: tuple[ir.Primitive, ...]) -> list[Row]:
        """Return the rows that can be looked up once.

        Such a row is the only one of its bank that is used, and its index does not change. Two rows
        of one bank might be the same row, which would break the promise of `restrict`.
        """
        used: dict[Bank, list[ir.Expr]] = {}
        for name, index in filter(None, map(_register_access, body)):
            used.setdefault(self._bank_of[name], []).append(index)
        return [
            Row(
                bank,
                indices[0],
                self._is_in_bounds(bank, indices[0]),
                self._substitutes(body, bank) if len(indices) >= _MIN_ACCESSES else None,
            )
            for bank, indices in used.items()
            if len(set(indices)) == 1 and _is_unchanged(indices[0], body)
        ]

    def write_substitutes(self, action: int, rows: list[Row]) -> None:
        """Write one function for each row for which an action needs a substitute."""
        for row in rows:
            n = row.bank.number
            if row.in_bounds or row.substitutes is None:
                continue
            with self._scope.block(
                f"__attribute__((cold, noinline)) static struct row_{n} *outside_{n}_{action}"
                "(struct state *s, const struct phv *p)"
            ):
                self._emit(f"struct row_{n} *r = &s->outside_{n};")
                self._emit("(void)p;")
                self._emit(*(self._substitute(*each) for each in row.substitutes))
                self._emit("return r;")

    @contextmanager
    def looked_up(self, action: int, rows: list[Row]) -> Iterator[None]:
        """Look these rows up for the accesses inside the context."""
        for row in rows:
            n, at = row.bank.number, self._at(row.index)
            found = f"&s->bank_{n}[{at}]" if row.in_bounds else f"row_{n}(s, {at})"
            self._emit(f"struct row_{n} *restrict r{n} = {found};")
            self._conditions[n] = ""
            if not row.in_bounds and row.substitutes is not None:
                self._emit(f"if (!r{n}) r{n} = outside_{n}_{action}(s, p);")
            elif not row.in_bounds:
                self._conditions[n] = f"if (r{n}) "
        yield
        self._conditions = {}

    def _substitutes(
        self, body: tuple[ir.Primitive, ...], bank: Bank
    ) -> tuple[tuple[str, ir.FieldRef], ...] | None:
        """Return the cells that are read and the fields set to them, for a substitute row.

        Return None if a field or a cell may have changed before it is read.
        """
        if any(_jumps_back(step, number) for number, step in enumerate(body)):
            return None
        found: dict[str, ir.FieldRef] = {}
        touched: set[str] = set()
        before: list[ir.Primitive] = []  # the steps that also have an effect outside of the array
        for step in body:
            match step:
                case ir.Primitive(
                    "register_read", (ir.FieldRef() as target, ir.Name(_, name), _)
                ) if self._bank_of[name] == bank:
                    if name in touched or not _is_unchanged(target, before):
                        return None
                    found[name] = target
                    touched.add(name)
                case ir.Primitive("register_write", (ir.Name(_, name), *_)):
                    touched.add(name)
                case _:
                    before.append(step)
        return tuple(found.items())

    def _substitute(self, name: str, target: ir.FieldRef) -> str:
        kind = self._scope.expressions.field_type(target)
        cell = fields.of(self._registers[name])
        return fields.copy(f"r->{name}", cell, self._scope.value(target), kind)

    def _access(self, name: str, index: ir.Expr, statement: Callable[[str], str]) -> None:
        bank = self._bank_of[name]
        if bank.number in self._conditions:
            cell = self._cell(f"r{bank.number}->", name)
            self._emit(self._conditions[bank.number] + statement(cell))
        elif self._is_in_bounds(bank, index):
            row = f"s->bank_{bank.number}[{self._at(index)}]."
            self._emit(statement(self._cell(row, name)))
        else:
            with self._scope.block(""):
                row = f"row_{bank.number}(s, {self._at(index)})"
                self._emit(f"struct row_{bank.number} *row = {row};")
                self._emit(f"if (row) {statement(self._cell('row->', name))}")

    def _cell(self, row: str, name: str) -> str:
        lvalue = f"{row}{name}"
        return f"(&{lvalue})[i]" if name in self.lanes else lvalue

    def _at(self, index: ir.Expr) -> str:
        return f"(uint64_t){self._scope.expressions.number(index).text}"

    def _is_in_bounds(self, bank: Bank, index: ir.Expr) -> bool:
        number = self._scope.expressions.number(index)
        return number.low >= 0 and number.high < bank.size


def _register_access(step: ir.Primitive) -> tuple[str, ir.Expr] | None:
    match step:
        case ir.Primitive("register_read", (_, ir.Name(_, name), index)):
            return name, index  # type: ignore[return-value]
        case ir.Primitive("register_write", (ir.Name(_, name), index, _)):
            return name, index  # type: ignore[return-value]
    return None


def _is_unchanged(expr: ir.Expr, body: Sequence[ir.Primitive]) -> bool:
    """Return whether an expression of plain fields certainly has the same value throughout."""
    match expr:
        case ir.Const() | ir.ParamRef():
            return True
        case ir.Op(_, operands):
            return all(_is_unchanged(operand, body) for operand in operands)
        case ir.FieldRef(str(), _):
            return not any(_may_write(step, expr) for step in body)
    return False


def _may_write(step: ir.Primitive, field: ir.FieldRef) -> bool:
    if step.op in SET_NO_FIELD:
        return False
    if step.op in TARGETS:
        match step.args[TARGETS[step.op]]:
            case ir.FieldRef(str(), _) as written:
                return written == field
    return True


def _jumps_back(step: ir.Primitive, number: int) -> bool:
    target = step.args[-1] if step.op.startswith("_jump") else None
    return isinstance(target, ir.Const) and target.value <= number
