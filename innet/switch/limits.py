"""Limits on all sizes that a program can make large.

Numbers in a program become array sizes, widths and labels in C. The reader therefore checks each
program with :func:`check` before anything is made from it.
"""

import reprlib
from collections.abc import Iterable
from typing import Any

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.constants import COUNTER_BYTES, MAX_FRAME, METER_BYTES

MOST_ELEMENTS = 1 << 26
"""The most cells of a register, a counter or a meter, and the most entries of a table."""

MOST_STATE = 1 << 30
"""The most bytes of all registers, counters and meters together."""

MOST_BITS = 8 * MAX_FRAME
"""The most bits of a field, a cell, an argument or a select key: the bits of the longest frame."""

MOST_PACKET = 1 << 18
"""The most bytes of all headers and metadata, which lie on a thread's stack."""

MOST_JOINED = 1 << 17
"""The most bytes of several joined fields: a key, an action's arguments, the input of a hash."""

MOST_DIGEST = 1 << 15
"""The most bytes of a digest's fields."""

TOO_DEEP = "malformed BMv2 JSON: it is nested too deeply"

_MOST_ID, _MOST_LIST = (1 << 32) - 2, (1 << 16) - 1


def number(what: str, value: Any, most: int, least: int = 0) -> int:
    """Return a number of the program. Raises UnsupportedProgram unless it is from `least` to `most`."""
    if type(value) is not int or not least <= value <= most:
        shown = reprlib.repr(value)
        raise UnsupportedProgram(f"{what} is {shown}: it has to be a number from {least} to {most}")
    return value


def width(what: str, bits: Any) -> int:
    """Return the width of a field. Raises UnsupportedProgram unless it is allowed."""
    return number(f"{what}: the width in bits", bits, MOST_BITS)


def check(program: ir.Program) -> None:
    """Raise UnsupportedProgram if a program is larger than this switch allows."""
    _check_ids("action", (each.id for each in program.actions), _MOST_ID)
    _check_ids("field list", (each.id for each in program.field_lists), _MOST_LIST)
    _check_ids("digest", (each.id for each in program.learn_lists), _MOST_LIST)
    for name, code in program.errors.items():
        number(f"error {name}: its code", code, _MOST_ID)
    _check_packet(program)
    _check_state(program)
    _check_joined(program)
    known = {each.id for each in program.actions}
    for table in program.tables:
        number(f"table {table.name}: its size", table.size, MOST_ELEMENTS)
        called = {*table.actions, *(entry.action for entry in table.entries)}
        if not called | ({table.default_action} - {None}) <= known:
            raise UnsupportedProgram(f"table {table.name} has an action that is not there")
    bodies = [each.body for each in program.actions] + [each.body for each in program.states]
    for body in bodies:
        for step in body:
            _check_step(step, len(body))


def _check_ids(what: str, ids: Iterable[int], most: int) -> None:
    seen: set[int] = set()
    for each in ids:
        if number(f"the id of a {what}", each, most) in seen:
            raise UnsupportedProgram(f"two of the program's {what}s have the id {each}")
        seen.add(each)


def _check_packet(program: ir.Program) -> None:
    extracted = [
        arg.name
        for state in program.states
        for step in state.body
        for arg in step.args
        if step.op == "extract" and isinstance(arg, ir.Name) and arg.kind == "header"
    ]
    for name in (*extracted, *program.deparser):
        if program.header(name).metadata:
            raise UnsupportedProgram(f"{name} is metadata, which is in no packet")
    size = 0
    for header in program.headers:
        bits = sum(each.bits for each in header.fields if not each.varbit)
        if bits % 8 and not header.metadata:
            raise UnsupportedProgram(
                f"header {header.name} has {bits} bits, which are no whole bytes"
            )
        size += sum(_stored(each.bits) for each in header.fields)
    number("the bytes of all headers and metadata: their sum", size, MOST_PACKET)


def _check_state(program: ir.Program) -> None:
    size = 0
    for register in program.registers:
        size += _elements("register", register) * _stored(register.bits)
    for counter in program.counters:
        size += _elements("counter", counter) * COUNTER_BYTES
    for meter in program.meters:
        size += _elements("meter", meter) * METER_BYTES
    number("the bytes of all registers, counters and meters: their sum", size, MOST_STATE)


def _elements(what: str, array: ir.Register | ir.Counter | ir.Meter) -> int:
    return number(f"{what} {array.name}: its size", array.size, MOST_ELEMENTS)


def _check_joined(program: ir.Program) -> None:
    for table in program.tables:
        _check_sum(f"table {table.name}: its key", (key.bits for key in table.keys))
    for action in program.actions:
        _check_sum(f"action {action.name}: its arguments", (bits for _, bits in action.params))
    for state in program.states:
        _check_sum(f"parser state {state.name}: its keys", (bits for _, bits in state.keys))
    for name, calculation in program.calculations.items():
        _check_sum(f"calculation {name}: its input", _inputs(program, calculation))
    for profile in program.profiles:
        if profile.selector:
            _check_sum(f"selector {profile.name}: its input", _inputs(program, profile.selector))
    for each in program.learn_lists:
        bits = (
            program.header_of(ref).field(ref.field).bits
            for ref in each.fields
            if ref.field != ir.VALID
        )
        _check_sum(f"digest {each.name}", bits, MOST_DIGEST)


def _inputs(program: ir.Program, calculation: ir.Calculation) -> Iterable[int]:
    for each in calculation.inputs:
        if isinstance(each, ir.Name):
            yield from (field.bits for field in program.header(each.name).fields)
        else:
            yield each[1]


def _check_sum(what: str, widths: Iterable[int], most: int = MOST_JOINED) -> None:
    number(f"{what}: the sum of its bytes", sum(map(_stored, widths)), most)


def _check_step(step: ir.Primitive, steps: int) -> None:
    match step:
        case ir.Primitive("_jump" | "_jump_if_zero", (*_, ir.Const(target))):
            number(f"{step.source}: where to go on", target, steps)
        case ir.Primitive("push" | "pop", (_, ir.Const(count))):
            number(f"{step.source}: how far to move", count, _MOST_ID)


def _stored(bits: int) -> int:
    """Return the bytes that a field takes in C."""
    return next((size for size in (1, 2, 4, 8, 16) if 8 * size >= bits), (bits + 7) // 8)
