"""A search for the fields that a part of the program mentions."""

import dataclasses
from collections.abc import Iterator

from innet.switch import ir


def fields_in(node: object) -> frozenset[ir.FieldRef]:
    """Return all fields that a part of the program mentions."""
    return frozenset(_mentioned(node))


def outside_actions(program: ir.Program) -> frozenset[ir.FieldRef]:
    """Return all fields that parts of a program other than its actions mention."""
    parts = (
        program.states, program.ingress, program.egress, program.checksums, program.calculations,
        program.profiles, program.meters, program.field_lists, program.learn_lists,
    )  # fmt: skip
    return fields_in(parts)


def _mentioned(node: object) -> Iterator[ir.FieldRef]:
    """Yield all fields that a part of the program mentions."""
    if isinstance(node, ir.FieldRef):
        yield node
        if isinstance(node.header, ir.Element):
            yield from _mentioned(node.header)
    elif dataclasses.is_dataclass(node):
        yield from _mentioned([getattr(node, each.name) for each in dataclasses.fields(node)])
    elif isinstance(node, dict):
        yield from _mentioned(list(node.values()))
    elif isinstance(node, (tuple, list)):
        for each in node:
            yield from _mentioned(each)
