"""Limits on all sizes that a program can make large.

Numbers in a program become array sizes, widths and labels in C. The reader of programs checks each number
with :func:`number`, and their sums with :func:`check`.
"""

import reprlib
from collections.abc import Iterable
from typing import Any

from innet.errors import UnsupportedProgram
from innet.switch import ir
from innet.switch.constants import COUNTER_BYTES, MAX_FRAME, METER_BYTES
from innet.switch.layout import storage_bytes

MAX_ELEMENTS = 1 << 26
"""The most cells of a register, a counter or a meter, and the most entries of a table."""

MAX_STATE = 1 << 30
"""The most bytes of all registers, counters and meters together."""

MAX_BITS = 8 * MAX_FRAME
"""The most bits of a field, a cell, an argument or a select key: the bits of the longest frame."""

MAX_PACKET = 1 << 18
"""The most bytes of all headers and metadata, which lie on a thread's stack."""

MAX_JOINED = 1 << 17
"""The most bytes of several joined fields: a key, an action's arguments, the input of a hash."""

MAX_DIGEST = 1 << 15
"""The most bytes of a digest's fields."""

MAX_ID = (1 << 32) - 2
"""The largest number that tells actions apart. The next one stands for no action."""

_MAX_SHOWN = 40


def number(what: str, value: Any, maximum: int, minimum: int = 0) -> int:
    """Return a number of the program. Raises UnsupportedProgram if it is not in this range."""
    if type(value) is not int or not minimum <= value <= maximum:
        raise UnsupportedProgram(
            f"{what} is {shown(value)}: it has to be a number from {minimum} to {maximum}"
        )
    return value


def width(what: str, bits: Any, minimum: int = 0) -> int:
    """Return the width of a field. Raises UnsupportedProgram unless it is allowed."""
    return number(f"{what}: the width in bits", bits, MAX_BITS, minimum)


def shown(value: Any) -> str:
    """Return a value for a message, cut if it is long."""
    large = type(value) is int and abs(value) >> 128
    text = f"{value:#x}" if large else reprlib.repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


def check(program: ir.Program) -> None:
    """Raise UnsupportedProgram if a program is larger than this switch allows."""
    fields = [each.bits for header in program.headers for each in header.fields]
    _check_sum("all headers and metadata", fields, MAX_PACKET)
    _check_state(program)
    _check_joined(program)


def _check_state(program: ir.Program) -> None:
    size = sum(each.size * storage_bytes(each.bits) for each in program.registers)
    size += sum(each.size for each in program.counters) * COUNTER_BYTES
    size += sum(each.size for each in program.meters) * METER_BYTES
    number("the bytes of all registers, counters and meters: their sum", size, MAX_STATE)


def _check_joined(program: ir.Program) -> None:
    for table in program.tables:
        _check_sum(f"the key of table {table.name}", (key.bits for key in table.keys))
    for action in program.actions:
        _check_sum(f"the arguments of action {action.name}", (bits for _, bits in action.params))
    for state in program.states:
        _check_sum(
            f"the select keys of parser state {state.name}", (bits for _, bits in state.keys)
        )
    for name, calculation in program.calculations.items():
        _check_sum(f"the input of calculation {name}", _inputs(program, calculation))
    for profile in program.profiles:
        if profile.selector:
            _check_sum(f"the input of selector {profile.name}", _inputs(program, profile.selector))
    for each in program.learn_lists:
        bits = (
            program.header_of(ref).field(ref.field).bits
            for ref in each.fields
            if ref.field != ir.VALID
        )
        _check_sum(f"the fields of digest {each.name}", bits, MAX_DIGEST)


def _inputs(program: ir.Program, calculation: ir.Calculation) -> Iterable[int]:
    for each in calculation.inputs:
        if isinstance(each, ir.Name):
            yield from (field.bits for field in program.header(each.name).fields)
        else:
            yield each[1]


def _check_sum(what: str, widths: Iterable[int], maximum: int = MAX_JOINED) -> None:
    number(f"the bytes of {what}: their sum", sum(map(storage_bytes, widths)), maximum)
