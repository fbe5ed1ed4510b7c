"""The primitives of actions that use externs: hashes, random numbers, meters, the log, assertions."""

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.codegen import fields
from innet.switch.codegen.hashes import function
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.steps import Steps
from innet.switch.codegen.text import c_string


def define(scope: Scope, steps: Steps) -> None:
    """Tell `steps` how to render the primitives that use externs."""
    externs = _Externs(scope, steps)
    steps.define(
        modify_field_with_hash_based_offset=externs.hash,
        modify_field_rng_uniform=externs.random,
        execute_meter=externs.meter,
        log_msg=externs.log,
        **{"assert": externs.check, "assume": externs.check},
    )


class _Externs:
    """The renderers of these primitives. Each takes a primitive's arguments."""

    def __init__(self, scope: Scope, steps: Steps) -> None:
        self._scope, self._steps = scope, steps
        self._emit = scope.emit
        self._meters = {each.name: i for i, each in enumerate(scope.program.meters)}

    def hash(self, target: ir.FieldRef, base: ir.Expr, name: ir.Name, size: ir.Expr) -> None:
        if self._scope.program.calculations[name.name].payload:
            raise UnsupportedProgram("an action's hash over the payload is not supported")
        with self._scope.block(""):
            self._emit(
                f"const uint64_t base = {self._u64(base)}, size = {self._u64(size)};",
                f"const uint64_t hash = {function(name.name)}(sw, p, NULL, 0);",
            )
            self._store(target, "base + hash % (size ? size : 1)")

    def random(self, target: ir.FieldRef, low: ir.Expr, high: ir.Expr) -> None:
        with self._scope.block(""):
            self._emit(f"const uint64_t low = {self._u64(low)}, high = {self._u64(high)};")
            with self._scope.block("if (low <= high)"):
                self._store(target, "rt_random_between(sw, low, high)")

    def meter(self, name: ir.Name, index: ir.Expr, target: ir.FieldRef) -> None:
        number = self._meters[name.name]
        meter = self._scope.program.meters[number]
        tokens = "length" if meter.by_bytes else "1"
        with self._scope.block(""):
            call = f"rt_meter(sw, {number}, {self._u64(index)}, {tokens})"
            self._emit(f"const int64_t colour = {call};")
            with self._scope.block("if (colour >= 0)"):
                self._store(target, "(uint64_t)colour")

    def log(self, form: ir.Format, *values: ir.Expr) -> None:
        parts = ", ".join(map(c_string, form.parts))
        with self._scope.block("if (rt_logging(sw))"):
            self._emit(f"static const char *const parts[] = {{{parts}}};")
            logged = ", ".join([*map(self._logged, values), "{0}"])
            self._emit(f"const struct logged values[] = {{{logged}}};")
            self._emit(f"rt_log(sw, parts, values, {len(values)});")

    def _logged(self, value: ir.Expr) -> str:
        number = self._scope.expressions.number(value)
        if number.unsigned:
            return f"{{(uint128_t){number.text}, false}}"
        if number.exact:
            return f"{{(uint128_t)(int128_t){number.text}, true}}"
        self._scope.expressions.arithmetic.need_limbs(number)
        words = f"((struct limbs[]){{{number.limbs}}})->word"  # lives until the end of the block
        return f"{{.is_signed = true, .count = LIMBS, .words = {words}}}"

    def check(self, condition: ir.Expr, where: ir.Format) -> None:
        """Write a test that drops the packet and counts the failure. BMv2 would stop the whole switch."""
        with self._scope.block(f"if (!({self._scope.expressions.truth(condition)}))"):
            self._emit(f"rt_assertion_failed(sw, {c_string(where.parts[0])});")
            nowhere = ir.SourceLocation()
            self._steps.body(
                (ir.Primitive("mark_to_drop", (), nowhere), ir.Primitive("exit", (), nowhere))
            )

    def _u64(self, value: ir.Expr) -> str:
        return f"(uint64_t){self._scope.expressions.number(value).text}"

    def _store(self, target: ir.FieldRef, text: str) -> None:
        kind = self._scope.expressions.field_type(target)
        self._emit(fields.put(self._scope.lvalue(target), kind, text))
