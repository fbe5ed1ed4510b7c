"""Straight-line code: the primitives of actions and parser states."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.codegen import fields, tracing
from innet.switch.codegen.loops import Loop, LoopFinder
from innet.switch.codegen.references import fields_in
from innet.switch.codegen.registers import Registers
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.text import c_number, c_type
from innet.switch.codegen.weighted_sums import WeightedSum, weighted_sum
from innet.switch.expressions.byte_arrays import is_bytes


class Steps:
    """A renderer of the bodies of actions and parser states."""

    def __init__(self, scope: Scope, registers: Registers) -> None:
        self._scope = scope
        self._emit = scope.emit
        self._counters = {each.name: i for i, each in enumerate(scope.program.counters)}
        self._registers = registers
        self._in_action = False
        self._finder = LoopFinder(scope.program, registers.banks, scope.temporaries)
        self._primitives: dict[str, Callable[..., None]] = {
            "assign": self.assign,
            "register_read": registers.read,
            "register_write": registers.write,
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
        """Write one C function for every action."""
        for action in self._scope.program.actions:
            self._scope.expressions.params = action.params
            self._emit(f"/* {action.name} */")
            rows = self._registers.rows(action.body)
            self._registers.write_substitutes(action.id, rows)
            with self._scope.block(
                f"static void action_{action.id}(struct sw *sw, struct state *s, "
                "struct phv *restrict p, const uint64_t *a, uint32_t length)"
            ):
                self._emit("(void)sw; (void)s; (void)p; (void)a; (void)length;")
                with self._registers.looked_up(action.id, rows):
                    self._scope.trace("Action %s", self._scope.shown(action.name), level="T")
                    self._in_action = True
                    self.body(action.body)
                    self._in_action = False
            self._emit("")
        self._scope.expressions.params = ()  # only actions have parameters

    def body(self, body: tuple[ir.Primitive, ...]) -> None:
        """Write straight-line code. The targets of p4c's jumps are step numbers."""
        targets = {
            step.args[-1].value
            for step in body
            if step.op.startswith("_jump") and isinstance(step.args[-1], ir.Const)
        }
        in_c = self._in_action and not self._scope.tracing  # a trace goes step by step
        loops = {loop.first: loop for loop in self._finder.loops(body)} if in_c else {}
        if self._in_action:
            self._declare_temporaries(body, loops)
        number = 0
        while number < len(body):
            if number in targets:
                self._emit(f"at_{number}:;")
            if loop := loops.get(number):
                self._loop(loop, targets)
                number = loop.end
            else:
                self._step(body[number])
                number += 1
        if len(body) in targets:
            self._emit(f"at_{len(body)}:;")

    def _declare_temporaries(self, body: tuple[ir.Primitive, ...], loops: dict[int, Loop]) -> None:
        looped = {number for loop in loops.values() for number in range(loop.first, loop.end)}
        steps = [step for number, step in enumerate(body) if number not in looped]
        steps += [step for loop in loops.values() for step in loop.steps]
        for field in self._scope.in_order(fields_in([step.args for step in steps])):
            if field in self._scope.temporaries:
                kind = self._scope.expressions.field_type(field)
                self._emit(f"{c_type(kind.bits)} {self._scope.lvalue(field)};")

    def _step(self, step: ir.Primitive) -> None:
        if self._in_action and step.op not in ("_jump", "_jump_if_zero"):
            tracing.step(self._scope, step)
        try:
            self._primitives[step.op](*step.args)
        except UnsupportedProgram as problem:
            raise UnsupportedProgram(f"{step.source.prefix}{problem}") from None

    def _loop(self, loop: Loop, targets: set[int]) -> None:
        scope = self._scope
        if (summed := weighted_sum(loop)) and self._has_widths(summed):
            self._weighted_sum(summed)
            return
        with scope.block(""):
            for number, constants in enumerate(loop.constants):
                kind = c_type(max(constants.values).bit_length())
                self._constants(f"list_{number}", kind, constants.values)
                scope.expressions.loop_constants[constants] = f"list_{number}"
            with self._variables(loop):
                lanes = {field: f"(&{scope.lvalue(field)})[i]" for field in loop.lanes}
                scope.overrides |= lanes
                self._registers.lanes = loop.cells
                with scope.block(f"for (uint32_t i = 0; i < {loop.rounds}; i++)"):
                    for number, step in enumerate(loop.steps, start=loop.first):
                        if number in targets and number > loop.first:
                            self._emit(f"at_{number}:;")
                        self._step(step)
                    if loop.first + len(loop.steps) in targets:
                        self._emit(f"at_{loop.first + len(loop.steps)}:;")
                self._registers.lanes = frozenset()
            scope.expressions.loop_constants.clear()

    def _has_widths(self, summed: WeightedSum) -> bool:
        """Return whether the runtime can compute a sum: of words of 32 bits, modulo 2⁶⁴."""
        total, word = map(self._scope.expressions.field_type, (summed.total, summed.first))
        return (total.bits, word.bits) == (64, 32) and not word.signed

    def _weighted_sum(self, summed: WeightedSum) -> None:
        total, first = map(self._scope.lvalue, (summed.total, summed.first))
        with self._scope.block(""):
            self._constants("weights", "uint64_t", summed.weights)
            self._emit(f"{total} += rt_weighted_sum(&{first}, {len(summed.weights)}, weights);")

    def _constants(self, name: str, kind: str, values: Sequence[int]) -> None:
        self._emit(f"static const {kind} {name}[] = {{{', '.join(map(c_number, values))}}};")

    @contextmanager
    def _variables(self, loop: Loop) -> Iterator[None]:
        """Keep the fields that all rounds share in local variables, which C knows not to be aliased."""
        scope = self._scope
        seen = fields_in([self._registers.in_text(step) for step in loop.steps])
        homes = {field: scope.lvalue(field) for field in scope.in_order(loop.variables & seen)}
        names = {field: f"v{number}" for number, field in enumerate(homes)}
        for field, home in homes.items():
            kind = scope.expressions.field_type(field)
            self._emit(f"{c_type(kind.bits)} {names[field]} = {home};")
        scope.overrides = dict(names)
        yield
        scope.overrides = {}
        written = {step.args[0] for step in loop.steps if step.op in ("assign", "register_read")}
        self._emit(*(f"{home} = {names[each]};" for each, home in homes.items() if each in written))

    def assign(self, target: ir.FieldRef, value: ir.Expr) -> None:
        """Set a field to an expression, wrapped to the field's width."""
        kind = self._scope.expressions.field_type(target)
        part = fields.assign_slice(self._scope, target, value) if is_bytes(kind) else None
        self._emit(part or fields.assign(self._scope, self._scope.lvalue(target), kind, value))

    def _count(self, counter: ir.Name, index: ir.Expr) -> None:
        at = self._scope.expressions.number(index).text
        self._emit(f"rt_count(sw, {self._counters[counter.name]}, (uint64_t){at}, length);")

    def _drop(self, *copies: ir.Name) -> None:
        """Mark a copy of standard metadata, or without one the packet's own."""
        copy = copies[0].name if copies else None
        self._emit(self._scope.set_standard("egress_spec", "(uint16_t)rt_drop_port(sw)", copy))
        self._emit(f"{self._scope.standard('mcast_grp', copy)} = 0;")

    def _clone(self, session: ir.Expr, kept: ir.Expr) -> None:
        number = self._scope.expressions.number(session).text
        self._emit(f"p->m.path.clone = (uint16_t)({number}) | RT_ASKED;")
        self._ask("clone_list", kept)

    def _ask(self, what: str, field_list: ir.Expr) -> None:
        """Ask for a copy, a further pass or a digest. It takes place at the end of the pipeline."""
        number = self._scope.expressions.number(field_list).text
        self._emit(f"p->m.path.{what} = (uint16_t)({number});")

    def _truncate(self, size: ir.Expr) -> None:
        self._emit(
            f"rt_truncate(&p->m.path, (uint64_t)({self._scope.expressions.number(size).text}));"
        )

    def _leave(self) -> None:
        self._emit("p->m.exited_ = true;", "return;")

    def _nothing(self, *_: object) -> None:
        self._emit(";")

    def _jump(self, target: ir.Const) -> None:
        self._emit(f"goto at_{target.value};")

    def _jump_if_zero(self, condition: ir.Expr, target: ir.Const) -> None:
        truth = self._scope.expressions.truth(condition)
        self._emit(f"if (!{truth}) goto at_{target.value};")
