"""Straight-line code: what actions and parser states do, primitive by primitive."""

from collections.abc import Callable
from functools import partial

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.codegen import fields, tracing
from innet.switch.codegen.data import Bank
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.text import c_name, c_type
from innet.switch.expressions import is_bytes


class Steps:
    """Renders bodies; looks a bank's row up once where an action allows it."""

    def __init__(self, scope: Scope, all_banks: list[Bank]) -> None:
        self._scope = scope
        self._emit = scope.emit
        self._counters = {each.name: i for i, each in enumerate(scope.program.counters)}
        self._bank_of = {each.name: bank for bank in all_banks for each in bank.registers}
        self._in_action = False
        self._rows: dict[tuple[int, ir.Expr], str] = {}
        self._primitives: dict[str, Callable[..., None]] = {
            "assign": self.assign,
            "register_read": self._register_read,
            "register_write": self._register_write,
            "count": self._count,
            "drop": self._drop,
            "mark_to_drop": self._drop,
            "exit": self._leave,
            "clone_ingress_pkt_to_egress": self._clone,
            "clone_egress_pkt_to_egress": self._clone,
            "resubmit": partial(self._ask, "resubmit"),
            "recirculate": partial(self._ask, "recirculate"),
            "generate_digest": lambda _, digest: self._ask("digest", digest),
            "truncate": self._truncate,
            "no_op": self._nothing,
            "log_msg": self._nothing,
            "_jump": self._jump,
            "_jump_if_zero": self._jump_if_zero,
        }

    def define(self, **primitives: Callable[..., None]) -> None:
        """Add primitives that another part of the generator renders."""
        self._primitives.update(primitives)

    def actions(self) -> None:
        """One C function for every action."""
        for action in self._scope.program.actions:
            self._scope.expressions.params = action.params
            self._emit(f"/* {action.name.replace('*/', '')} */")
            with self._scope.block(
                f"static void action_{action.id}(struct sw *sw, struct state *s, "
                "struct phv *restrict p, const u64 *a, u32 length)"
            ):
                self._emit("(void)sw; (void)s; (void)p; (void)a; (void)length;")
                self._hoist_rows(action.body)
                self._scope.trace(f"Action {action.name}".replace("%", "%%"), level="T")
                self._in_action = True
                self.body(action.body)
                self._in_action = False
            self._emit("")
            self._rows = {}

    def body(self, body: tuple[ir.Primitive, ...]) -> None:
        """Straight-line code; p4c's jumps go to the number of a step."""
        targets = {
            step.args[-1].value
            for step in body
            if step.op.startswith("_jump") and isinstance(step.args[-1], ir.Const)
        }
        for number, step in enumerate(body):
            if number in targets:
                self._emit(f"at_{number}:;")
            if self._in_action and step.op not in ("_jump", "_jump_if_zero"):
                tracing.step(self._scope, step)
            try:
                self._primitives[step.op](*step.args)
            except UnsupportedProgram as problem:
                raise UnsupportedProgram(f"{step.source}: {problem}") from None
        if len(body) in targets:
            self._emit(f"at_{len(body)}:;")

    def assign(self, target: ir.FieldRef, value: ir.Expr) -> None:
        """Set a field to an expression, wrapped to the field's width."""
        expressions = self._scope.expressions
        bits = expressions.field_type(target).bits
        if is_bytes(expressions.field_type(target)):
            fields.assign(self._scope, target, value)
            return
        if isinstance(value, ir.ParamRef):
            wide = bits > 64
            text = f"rt_wide_arg(a, {value.index})" if wide else f"a[{2 * value.index}]"
            text = f"({c_type(bits)}){text}"
        else:
            text = f"({c_type(bits)})({expressions.stored(value, bits)})"
        self._emit(f"{self._scope.place(target)} = {text};")

    def _register_read(self, target: ir.FieldRef, array: ir.Name, index: ir.Expr) -> None:
        bits = self._scope.expressions.field_type(target).bits
        cell = self._cell(array.name, index)
        self._emit(f"{self._scope.place(target)} = ({c_type(bits)}){cell};")

    def _register_write(self, array: ir.Name, index: ir.Expr, value: ir.Expr) -> None:
        registers = self._bank_of[array.name].registers
        bits = next(each.bits for each in registers if each.name == array.name)
        text = self._scope.expressions.stored(value, bits)
        self._emit(f"{self._cell(array.name, index)} = ({c_type(bits)})({text});")

    def _count(self, counter: ir.Name, index: ir.Expr) -> None:
        at = self._scope.expressions.number(index).text
        self._emit(f"rt_count(sw, {self._counters[counter.name]}, (u64){at}, length);")

    def _drop(self, *_: object) -> None:
        self._emit(f"{self._scope.standard('egress_spec')} = (u16)*rt_drop_port(sw);")
        self._emit(f"{self._scope.standard('mcast_grp')} = 0;")

    def _clone(self, session: ir.Expr, kept: ir.Expr) -> None:
        number = self._scope.expressions.number(session).text
        self._emit(f"p->m.path.clone = (u16)({number}) | RT_ASKED;")
        self._ask("clone_list", kept)

    def _ask(self, what: str, fields: ir.Expr) -> None:
        self._emit(f"p->m.path.{what} = (u16)({self._scope.expressions.number(fields).text});")

    def _truncate(self, size: ir.Expr) -> None:
        self._emit(f"rt_truncate(&p->m.path, (u64)({self._scope.expressions.number(size).text}));")

    def _leave(self) -> None:
        self._emit("p->m.valid.none_ = true; /* exit */", "return;")

    def _nothing(self, *_: object) -> None:
        self._emit(";")

    def _jump(self, target: ir.Const) -> None:
        self._emit(f"goto at_{target.value};")

    def _jump_if_zero(self, condition: ir.Expr, target: ir.Const) -> None:
        truth = self._scope.expressions.truth(condition)
        self._emit(f"if (!{truth}) goto at_{target.value};")

    def _hoist_rows(self, body: tuple[ir.Primitive, ...]) -> None:
        """Look a bank's row up once if the action uses no other, and its index does not change.

        Two rows could be the same one, which `restrict` would deny.
        """
        written = {_written(step) for step in body}
        indices: dict[Bank, dict[ir.Expr, None]] = {}
        for name, index in filter(None, map(_register_access, body)):
            indices.setdefault(self._bank_of[name], {})[index] = None
        for bank, (index, *others) in indices.items():
            if others or _reads(index) & written:
                continue
            row = f"r{len(self._rows)}"
            self._rows[bank.number, index] = row
            call = self._row_call(bank, index)
            self._emit(f"struct row_{bank.number} *restrict {row} = {call};")

    def _row_call(self, bank: Bank, index: ir.Expr) -> str:
        return f"row_{bank.number}(s, (u64){self._scope.expressions.number(index).text})"

    def _cell(self, name: str, index: ir.Expr) -> str:
        bank = self._bank_of[name]
        row = self._rows.get((bank.number, index)) or self._row_call(bank, index)
        return f"{row}->{c_name(name)}"


def _register_access(step: ir.Primitive) -> tuple[str, ir.Expr] | None:
    match step:
        case ir.Primitive("register_read", (_, ir.Name(_, name), index)):
            return name, index  # type: ignore[return-value]
        case ir.Primitive("register_write", (ir.Name(_, name), index, _)):
            return name, index  # type: ignore[return-value]
    return None


def _written(step: ir.Primitive) -> ir.FieldRef | None:
    first = step.args[0] if step.args else None
    return first if isinstance(first, ir.FieldRef) and step.op != "_jump_if_zero" else None


def _reads(expr: ir.Expr) -> set[ir.FieldRef | None]:
    if isinstance(expr, ir.FieldRef):
        return {expr}
    if isinstance(expr, ir.Op):
        return set().union(*(_reads(operand) for operand in expr.operands))
    return set()
