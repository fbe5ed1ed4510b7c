"""Externs: hashes, random numbers, meters, the program's log, assertions, and action selectors."""

from collections.abc import Iterator
from itertools import groupby

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.codegen import fields
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.steps import Steps
from innet.switch.codegen.text import c_number, c_string
from innet.switch.expressions.number import bytes_literal

SIGNATURE = "struct sw *sw, const struct phv *p, const uint8_t *rest, uint32_t rest_bytes"

LEAVING = frozenset({"exit", "assert", "assume"})
"""Primitives that can end a control."""


class Externs:
    """A renderer of the primitives that use externs."""

    def __init__(self, scope: Scope, steps: Steps) -> None:
        self._scope, self._steps = scope, steps
        self._emit = scope.emit
        self._meters = {each.name: i for i, each in enumerate(scope.program.meters)}
        steps.define(
            modify_field_with_hash_based_offset=self._hash,
            modify_field_rng_uniform=self._random,
            execute_meter=self._meter,
            log_msg=self._log,
            **{"assert": self._assert, "assume": self._assert},
        )

    def _hash(self, target: ir.FieldRef, base: ir.Expr, name: ir.Name, size: ir.Expr) -> None:
        if self._scope.program.calculations[name.name].payload:
            raise UnsupportedProgram("an action's hash over the payload is not supported")
        with self._scope.block(""):
            self._emit(
                f"const uint64_t base = {self._u64(base)}, size = {self._u64(size)};",
                f"const uint64_t hash = {function(name.name)}(sw, p, NULL, 0);",
            )
            self._store(target, "base + hash % (size ? size : 1)")

    def _random(self, target: ir.FieldRef, low: ir.Expr, high: ir.Expr) -> None:
        with self._scope.block(""):
            self._emit(f"const uint64_t low = {self._u64(low)}, high = {self._u64(high)};")
            with self._scope.block("if (low <= high)"):
                self._store(target, "rt_random_between(sw, low, high)")

    def _meter(self, name: ir.Name, index: ir.Expr, target: ir.FieldRef) -> None:
        number = self._meters[name.name]
        meter = self._scope.program.meters[number]
        tokens = "length" if meter.by_bytes else "1"
        with self._scope.block(""):
            call = f"rt_meter(sw, {number}, {self._u64(index)}, {tokens})"
            self._emit(f"const int64_t colour = {call};")
            with self._scope.block("if (colour >= 0)"):
                self._store(target, "(uint64_t)colour")

    def _log(self, form: ir.Format, *values: ir.Expr) -> None:
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

    def _assert(self, condition: ir.Expr, where: ir.Format) -> None:
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


def direct_meter(scope: Scope, name: str) -> None:
    """Write the assignment of the hit entry's meter colour to the packet."""
    meter = next(each for each in scope.program.meters if each.name == name)
    if meter.target is None:
        raise UnsupportedProgram(f"{scope.names.shown(name)} is not a direct meter")
    kind = scope.expressions.field_type(meter.target)
    call = f"rt_direct_meter(sw, e, {'length' if meter.by_bytes else '1'})"
    scope.emit(f"if (hit) {fields.put(scope.lvalue(meter.target), kind, call)}")


def choose(scope: Scope, name: str) -> None:
    """Write code that sets `action` and `args` to an action of the entry's bundle.

    An entry without a bundle, such as the default entry, has an action of its own.
    """
    profile = next(each for each in scope.program.profiles if each.name == name)
    scope.emit("uint32_t action = e->action;", "const uint64_t *args = e->args;")
    with scope.block("if (e->bundle)"):
        scope.emit("action = ~0u; /* an empty group runs no action */")
        with scope.block("if (e->bundle->count)"):
            pick = "0"
            if profile.selector:
                scope.emit(
                    f"const uint32_t chosen = (uint32_t){selector(profile)}(sw, p, NULL, 0);"
                )
                pick = "chosen % e->bundle->count"
            scope.emit(f"const struct call *call = &e->bundle->calls[{pick}];")
            scope.emit("action = call->action;", "args = call->args;")


def same_actions(scope: Scope, table: ir.Table, action: int) -> list[int]:
    """Return all ids of a table's action. Tables that share a profile have their own copies of it."""
    if not table.profile:
        return [action]
    sharing = [each for each in scope.program.tables if each.profile == table.profile]
    name = scope.actions[action].name
    ids = {number for each in sharing for number in each.actions}
    return [action, *(each for each in sorted(ids - {action}) if scope.actions[each].name == name)]


def layout(scope: Scope, all_spans: list[tuple[tuple[int, int], ...]]) -> None:
    """Write the description of meters and of each table's range matches for the runtime."""
    for number, spans in enumerate(all_spans):
        if spans:
            text = ", ".join(f"{{{first}, {size}}}" for first, size in spans)
            scope.emit(f"static const struct span spans_{number}[] = {{{text}}};")
    names = (f"spans_{number}" if spans else "NULL" for number, spans in enumerate(all_spans))
    counts = (f"{len(spans)}" for spans in all_spans)
    sizes = (f"{each.size}" for each in scope.program.meters)
    scope.emit(
        f"static const struct span *const spans[] = {{{', '.join([*names, 'NULL'])}}};",
        f"static const uint32_t span_count[] = {{{', '.join([*counts, '0'])}}};",
        f"static const size_t meter_size[] = {{{', '.join([*sizes, '0'])}}};",
        f"const struct layout layout = {{{len(scope.program.meters)}, meter_size, span_count, spans}};",
    )


def calculations(scope: Scope) -> None:
    """Write one C function for every hash that actions, checksums and selectors use."""
    for name, calculation in scope.program.calculations.items():
        _calculation(scope, function(name), calculation)
    for profile in scope.program.profiles:
        if profile.selector:
            _calculation(scope, selector(profile), profile.selector)


def function(name: str) -> str:
    """Return the name of a calculation's C function."""
    return f"hash_{name}"


def selector(profile: ir.Profile) -> str:
    """Return the name of the C function whose result selects an action of a profile's entry."""
    return f"select_{profile.name}"


def _calculation(scope: Scope, name: str, calculation: ir.Calculation) -> None:
    with scope.block(f"__attribute__((unused)) static uint64_t {name}({SIGNATURE})"):
        scope.emit("(void)sw; (void)p; (void)rest; (void)rest_bytes;")
        if calculation.algorithm == "random":
            scope.emit("return rt_random(sw);")
        elif calculation.algorithm in ("csum16", "cksum16") and _in_words(scope, calculation):
            _word_sum(scope, calculation)
        else:
            _buffer(scope, calculation)
            scope.emit(f"return rt_hash_{calculation.algorithm}(bytes, size);")
    scope.emit("")


def _buffer(scope: Scope, calculation: ir.Calculation) -> None:
    """Write code that joins all inputs bit by bit in `bytes`, and sets `size` to their length."""
    inputs = list(_inputs(scope, calculation))
    room = sum(bits for _, _, bits in inputs) // 8 + 1
    payload = " + RT_MAX_FRAME" if calculation.payload else ""
    scope.emit(f"uint8_t bytes[{room}{payload}];", f"memset(bytes, 0, {room});", "uint32_t at = 0;")
    for header, group in groupby(inputs, key=lambda each: each[0]):
        with scope.block(f"if ({scope.valid(header)})" if header else ""):
            offset = 0
            for _, value, bits in group:
                if isinstance(value, ir.FieldRef) and scope.expressions.field_type(value).varbit:
                    length = f"8 * {scope.length(value.header)}"
                    array = scope.value(value)
                    scope.emit(f"rt_put_bytes(bytes, at + {offset}, {length}, {array});")
                    scope.emit(f"at += {length};")
                    continue
                scope.emit(_put(scope, value, bits, f"at + {offset}"))
                offset += bits
            scope.emit(f"at += {offset};")
    scope.emit(f"{'' if calculation.payload else 'const '}uint32_t size = (at + 7) / 8;")
    if calculation.payload:
        scope.emit("memcpy(bytes + size, rest, rest_bytes);", "size += rest_bytes;")


def _in_words(scope: Scope, calculation: ir.Calculation) -> bool:
    """Return whether all inputs are numbers with fixed positions in 16-bit words.

    A group of inputs is left out if its header is invalid. Each group must therefore fill whole words.
    """
    inputs = list(_inputs(scope, calculation))
    groups = [list(group) for _, group in groupby(inputs, key=lambda each: each[0])]
    fields = [value for _, value, _ in inputs if isinstance(value, ir.FieldRef)]
    return (
        not calculation.payload
        and all(sum(bits for _, _, bits in group) % 16 == 0 for group in groups)
        and all(0 < bits <= 48 for _, _, bits in inputs)
        and not any(scope.expressions.field_type(each).varbit for each in fields)
    )


def _word_sum(scope: Scope, calculation: ir.Calculation) -> None:
    """Write RFC 1071's checksum as a sum of numbers, shifted to their positions in 16-bit words."""
    scope.emit("uint64_t sum = 0;")
    for header, group in groupby(_inputs(scope, calculation), key=lambda each: each[0]):
        with scope.block(f"if ({scope.valid(header)})" if header else ""):
            end = 0
            for _, value, bits in group:
                end += bits
                text = f"(uint64_t){scope.expressions.low_128_bits(value)} & {c_number((1 << bits) - 1)}"
                scope.emit(f"sum += rt_words16(({text}) << {-end % 16});")
    scope.emit("return rt_folded16(sum);")


def _put(scope: Scope, value: ir.Expr, bits: int, offset: str) -> str:
    if isinstance(value, ir.FieldRef):
        return fields.store(
            scope.value(value), scope.expressions.field_type(value), "bytes", offset
        )
    if isinstance(value, ir.Const) and bits > 128:
        literal = bytes_literal(value.value, (bits + 7) // 8)
        return f"rt_put_bytes(bytes, {offset}, {bits}, {literal});"
    return f"rt_put_bits(bytes, {offset}, {bits}, {scope.expressions.low_128_bits(value)});"


def _inputs(scope: Scope, calculation: ir.Calculation) -> Iterator[tuple[str | None, ir.Expr, int]]:
    """Yield each input: the header that must be valid for it, if any, its expression and its width."""
    for each in calculation.inputs:
        if isinstance(each, ir.Name):
            header = scope.headers[each.name]
            for field in header.fields:
                yield _guard(header), ir.FieldRef(header.name, field.name), field.bits
            continue
        value, bits = each
        if not isinstance(value, ir.FieldRef):
            yield None, value, bits
        elif not isinstance(value.header, str):
            raise UnsupportedProgram(
                "a hash of a stack's element at a computed index is not supported"
            )
        else:
            yield _guard(scope.headers[value.header]), value, bits


def _guard(header: ir.Header) -> str | None:
    return None if header.metadata else header.name
