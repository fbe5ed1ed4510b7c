"""Registers: the cells that actions read and write, and what happens outside of the arrays.

As in BMv2, what is read there stays as it was, and what is written is lost.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from innet.switch import ir
from innet.switch.codegen import fields
from innet.switch.codegen.data import Bank
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.text import c_name

_MANY = 4
"""Accesses to a row for which it is not asked each time whether it is there."""


@dataclass(frozen=True)
class Row:
    """The one row of a bank that an action uses.

    If it may be outside of the array, there can be a row of `substitutes`: cells in which is what the
    fields have that are set to them.
    """

    bank: Bank
    index: ir.Expr
    inside: bool
    substitutes: tuple[tuple[str, ir.FieldRef], ...] | None


class Registers:
    """Renders accesses; looks a bank's row up once where an action allows it."""

    def __init__(self, scope: Scope, all_banks: list[Bank]) -> None:
        self._scope, self._emit = scope, scope.emit
        self.banks = all_banks
        self._bank_of = {each.name: bank for bank in all_banks for each in bank.registers}
        self._registers = {each.name: each for each in scope.program.registers}
        self._conditions: dict[int, str] = {}
        """What stands in front of an access to a row that is looked up, by the bank's number."""
        self.lines: frozenset[str] = frozenset()
        """Registers that, in a loop, are the first of neighbours; its rounds count by ``i``."""

    def read(self, target: ir.FieldRef, array: ir.Name, index: ir.Expr) -> None:
        """Set a field to a cell."""
        place, kind = self._scope.place(target), self._scope.expressions.field_type(target)
        cell = fields.of(self._registers[array.name])
        self._access(array.name, index, lambda source: fields.copy(place, kind, source, cell))

    def write(self, array: ir.Name, index: ir.Expr, value: ir.Expr) -> None:
        """Set a cell to an expression."""
        kind = fields.of(self._registers[array.name])
        self._access(array.name, index, lambda cell: fields.assign(self._scope, cell, kind, value))

    def in_text(self, step: ir.Primitive) -> tuple[object, ...]:
        """What of a step's arguments its C has: where a row is at hand, no index."""
        access = _register_access(step)
        if access and self._bank_of[access[0]].number in self._conditions:
            return tuple(arg for arg in step.args if arg is not access[1])
        return step.args

    def rows(self, body: tuple[ir.Primitive, ...]) -> list[Row]:
        """The rows that can be looked up once: their index does not change, and no other is used.

        Two rows could be the same one, which `restrict` would deny.
        """
        used: dict[Bank, list[ir.Expr]] = {}
        for name, index in filter(None, map(_register_access, body)):
            used.setdefault(self._bank_of[name], []).append(index)
        return [
            Row(
                bank,
                indices[0],
                self._is_inside(bank, indices[0]),
                self._substitutes(body, bank) if len(indices) >= _MANY else None,
            )
            for bank, indices in used.items()
            if len(set(indices)) == 1 and _steady(indices[0], body)
        ]

    def outside(self, action: int, rows: list[Row]) -> None:
        """A function for every row for which an action needs a substitute."""
        for row in rows:
            n = row.bank.number
            if row.inside or row.substitutes is None:
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
        """Inside, these rows are at hand."""
        for row in rows:
            n, at = row.bank.number, self._at(row.index)
            found = f"&s->bank_{n}[{at}]" if row.inside else f"row_{n}(s, {at})"
            self._emit(f"struct row_{n} *restrict r{n} = {found};")
            self._conditions[n] = ""
            if not row.inside and row.substitutes is not None:
                self._emit(f"if (!r{n}) r{n} = outside_{n}_{action}(s, p);")
            elif not row.inside:
                self._conditions[n] = f"if (r{n}) "
        yield
        self._conditions = {}

    def _substitutes(
        self, body: tuple[ir.Primitive, ...], bank: Bank
    ) -> tuple[tuple[str, ir.FieldRef], ...] | None:
        """The cells that are read and the fields that are set to them, outside to themselves.

        None if a field has another value by then, or a cell.
        """
        if any(_jumps_back(step, number) for number, step in enumerate(body)):
            return None
        found: dict[str, ir.FieldRef] = {}
        touched: set[str] = set()
        before: list[ir.Primitive] = []  # of the steps that have an effect outside, too
        for step in body:
            match step:
                case ir.Primitive(
                    "register_read", (ir.FieldRef() as target, ir.Name(_, name), _)
                ) if self._bank_of[name] == bank:
                    if name in touched or not _steady(target, before):
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
        return fields.copy(f"r->{c_name(name)}", cell, self._scope.value(target), kind)

    def _access(self, name: str, index: ir.Expr, statement: Callable[[str], str]) -> None:
        bank = self._bank_of[name]
        if bank.number in self._conditions:
            cell = self._cell(f"r{bank.number}->", name)
            self._emit(self._conditions[bank.number] + statement(cell))
        elif self._is_inside(bank, index):
            row = f"s->bank_{bank.number}[{self._at(index)}]."
            self._emit(statement(self._cell(row, name)))
        else:
            with self._scope.block(""):
                row = f"row_{bank.number}(s, {self._at(index)})"
                self._emit(f"struct row_{bank.number} *row = {row};")
                self._emit(f"if (row) {statement(self._cell('row->', name))}")

    def _cell(self, row: str, name: str) -> str:
        place = f"{row}{c_name(name)}"
        return f"(&{place})[i]" if name in self.lines else place

    def _at(self, index: ir.Expr) -> str:
        return f"(u64){self._scope.expressions.number(index).text}"

    def _is_inside(self, bank: Bank, index: ir.Expr) -> bool:
        number = self._scope.expressions.number(index)
        return number.low >= 0 and number.high < bank.size


def _register_access(step: ir.Primitive) -> tuple[str, ir.Expr] | None:
    match step:
        case ir.Primitive("register_read", (_, ir.Name(_, name), index)):
            return name, index  # type: ignore[return-value]
        case ir.Primitive("register_write", (ir.Name(_, name), index, _)):
            return name, index  # type: ignore[return-value]
    return None


def _steady(expr: ir.Expr, body: Sequence[ir.Primitive]) -> bool:
    """Whether an expression of plain fields has one value throughout; in doubt it has not."""
    match expr:
        case ir.Const() | ir.ParamRef():
            return True
        case ir.Op(_, operands):
            return all(_steady(operand, body) for operand in operands)
        case ir.FieldRef(str(), _):
            return not any(_may_write(step, expr) for step in body)
    return False


def _may_write(step: ir.Primitive, field: ir.FieldRef) -> bool:
    target = step.args[2:3] if step.op == "execute_meter" else step.args[:1]
    match target:
        case (ir.FieldRef(str(), _) as written,):
            return written == field and step.op != "_jump_if_zero"
        case (ir.FieldRef() | ir.Element() | ir.Name("header" | "header_stack" | "header_union"),):
            return True
    return False


def _jumps_back(step: ir.Primitive, number: int) -> bool:
    target = step.args[-1] if step.op.startswith("_jump") else None
    return isinstance(target, ir.Const) and target.value <= number
