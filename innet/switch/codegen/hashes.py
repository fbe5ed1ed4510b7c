"""Hashes: one C function for each calculation over fields, constants and the payload."""

from collections.abc import Iterator
from itertools import groupby

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.codegen import fields
from innet.switch.codegen.scope import Scope
from innet.switch.codegen.text import c_number
from innet.switch.expressions.number import bytes_literal

SIGNATURE = "struct sw *sw, const struct phv *p, const uint8_t *rest, uint32_t rest_bytes"
"""The parameters of a hash's C function. `rest` is the payload, which only some hashes need."""


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
