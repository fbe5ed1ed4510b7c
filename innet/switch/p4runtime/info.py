"""Checks of a P4Info before it is used: the number of its entities, and their widths."""

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Any

from innet.errors import UnsupportedProgram
from innet.p4runtime import p4info_pb2
from innet.switch import limits

MAX_ENTITIES = 1 << 12
"""The most entities of one kind, such as tables, and the most parts of an entity, such as parameters."""

_KINDS = (
    "tables", "actions", "action_profiles", "counters", "direct_counters", "meters", "direct_meters",
    "controller_packet_metadata", "value_sets", "registers", "digests",
)  # fmt: skip
_PARTS = ("match_fields", "action_refs", "params", "metadata", "match")


def check(info: p4info_pb2.P4Info) -> None:
    """Raise UnsupportedProgram if a P4Info exceeds the limits, or has a name or an id twice."""
    for kind in _KINDS:
        nodes = getattr(info, kind)
        _check_count(f"the P4Info's {kind.replace('_', ' ')}", len(nodes))
        _check_unique(f"{kind} with the same name", (each.preamble.name for each in nodes))
        _check_unique(f"{kind} with the same id", (each.preamble.id for each in nodes))
        for node in nodes:
            _check_node(node)


def mismatch(problem: str) -> UnsupportedProgram:
    """Return the error of a P4Info that does not belong to the program."""
    return UnsupportedProgram(
        f"the P4Info is not of this program: {problem}; take both from one run of p4c"
    )


def _check_node(node: Any) -> None:
    name = node.preamble.name
    if hasattr(node, "size"):
        limits.number(f"the P4Info's {name}: its size", node.size, limits.MAX_ELEMENTS)
    bits = 0
    for parts in _parts(node):
        _check_count(f"the P4Info's {name}: its parts", len(parts))
        _check_unique(f"parts of {name} with the same id", (part.id for part in parts))
        for part in parts:
            if hasattr(part, "bitwidth"):
                bits += limits.width(f"the P4Info's {name}", part.bitwidth)
    limits.number(f"the P4Info's {name}: its width", bits, 8 * limits.MAX_JOINED)


def _parts(node: Any) -> Iterator[Any]:
    for each in _PARTS:
        if hasattr(node, each):
            yield getattr(node, each)


def _check_unique(what: str, values: Iterable[str | int]) -> None:
    repeated = [value for value, count in Counter(values).items() if count > 1]
    if repeated:
        raise UnsupportedProgram(f"the P4Info has {what}: {repeated[0]}")


def _check_count(what: str, count: int) -> None:
    limits.number(f"{what}: their number", count, MAX_ENTITIES)
