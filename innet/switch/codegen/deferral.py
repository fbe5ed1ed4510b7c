"""The fields that may hold a checksum which is still to be computed.

A frame may come with a partial checksum, which the kernel leaves to a network card. It need not be
computed if the program never looks at it. The program then carries it unseen, in a field or in the
payload.
"""

from innet.switch import ir
from innet.switch.codegen.effects import CLONES
from innet.switch.codegen.references import fields_in, outside_actions

Field = tuple[str, str]
"""The names of a header and of its field."""

_BITS = 16
_WAITING = CLONES | {"resubmit", "recirculate"}
_WITHOUT_READING = frozenset({"extract", "add_header", "remove_header"})
"""The primitives that name a header and read nothing of it."""


def defers(program: ir.Program) -> bool:
    """Return whether frames with partial checksums may enter the program.

    Packets that wait for another pass keep no other frame in reach, and some hashes read the payload.
    """
    waiting = any(step.op in _WAITING for step in _steps(program))
    hashes = [*program.calculations.values(), *(each.selector for each in program.profiles)]
    return not waiting and not any(each.payload for each in hashes if each)


def _steps(program: ir.Program) -> list[ir.Primitive]:
    bodies = [each.body for each in program.actions] + [each.body for each in program.states]
    return [step for body in bodies for step in body]


def unread_checksums(program: ir.Program) -> dict[Field, int]:
    """Return the fields that a checksum may be carried in, each with its position in bytes.

    The program does not read them, and it writes nothing to them but 0.
    """
    read = {(str(each.header), each.field) for each in _read(program)}
    whole = _whole_headers(program)
    inside = {name for stack in program.stacks for name in stack.headers}
    inside |= {name for union in program.unions for name in union.headers}
    found: dict[Field, int] = {}
    for header in program.headers:
        if header.metadata or header.varbit or header.name in inside | whole:
            continue
        offset = 0
        for field in header.fields:
            name = header.name, field.name
            if field.bits == _BITS and offset % 8 == 0 and name not in read:
                found[name] = offset // 8
            offset += field.bits
    return found


def _read(program: ir.Program) -> frozenset[ir.FieldRef]:
    steps = [step for each in program.actions for step in each.body]
    args = [step.args[1:] if _clears(step) else step.args for step in steps]
    return fields_in(args) | outside_actions(program)


def _clears(step: ir.Primitive) -> bool:
    return step.op == "assign" and step.args[1] == ir.Const(0)


def _whole_headers(program: ir.Program) -> set[str]:
    """Return the headers that are read or written as a whole."""
    steps = [step for step in _steps(program) if step.op not in _WITHOUT_READING]
    inputs = [each.inputs for each in program.calculations.values()]
    inputs += [each.selector.inputs for each in program.profiles if each.selector]
    names = [arg for step in steps for arg in step.args] + [
        each for some in inputs for each in some
    ]
    return {each.name for each in names if isinstance(each, ir.Name)}
