"""A search for metadata that need not travel with the packet, because actions set it before use.

p4c puts its own variables and those of actions into the metadata. In C they are local variables of
the action's function, so no packet has to clear or copy them.
"""

from innet.switch import ir
from innet.switch.codegen.effects import following
from innet.switch.codegen.references import fields_in, outside_actions


def temporaries(program: ir.Program, kept: str) -> frozenset[ir.FieldRef]:
    """Return the fields that only actions mention, and that are set before use on every path.

    The fields of the header `kept` never count, because others read them.
    """
    candidates = {
        ir.FieldRef(header.name, field.name)
        for header in program.headers
        if header.metadata and header.name != kept
        for field in header.fields
        if field.bits <= 128 and not field.varbit
    }
    candidates -= outside_actions(program)
    bodies = [action.body for action in program.actions]
    arguments = [arg for body in bodies for step in body for arg in step.args]
    whole = {arg.name for arg in arguments if isinstance(arg, ir.Name)}
    candidates = {each for each in candidates if each.header not in whole}
    for body in bodies:
        candidates -= _looked_at_too_early(body, candidates)
    return frozenset(candidates)


def _looked_at_too_early(
    body: tuple[ir.Primitive, ...], candidates: set[ir.FieldRef]
) -> set[ir.FieldRef]:
    """Return the candidates that may be read before they are set."""
    early: set[ir.FieldRef] = set()
    at_step: list[frozenset[ir.FieldRef] | None] = [frozenset(), *(None for _ in body)]
    for number, step in enumerate(body):
        known = at_step[number]
        if known is None:  # never reached
            continue
        target, looked_at = _effect(step)
        early |= (looked_at & candidates) - known
        if target in candidates and target is not None:
            known |= {target}
        for next_step in following(step, number):
            if next_step <= number:
                return candidates & fields_in(body)
            before = at_step[next_step]
            at_step[next_step] = known if before is None else known & before
    return early


def _effect(step: ir.Primitive) -> tuple[ir.FieldRef | None, frozenset[ir.FieldRef]]:
    """Return the field that a step always sets, and the fields that it may read."""
    match step:
        case ir.Primitive("assign", (ir.FieldRef(str()) as target, value)):
            return target, fields_in(value)
    return None, fields_in(step.args)
