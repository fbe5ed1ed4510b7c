"""Checks of a P4Info before it is used: the number of its entities, and their widths."""

from collections import Counter
from collections.abc import Iterator
from typing import Any

from p4.config.v1 import p4info_pb2

from innet.errors import UnsupportedProgram
from innet.switch import limits

MOST_THINGS = 1 << 12
"""The most tables, actions, counters and so on, of each kind, and the most parts of each of them."""

_KINDS = (
    "tables", "actions", "action_profiles", "counters", "direct_counters", "meters", "direct_meters",
    "controller_packet_metadata", "value_sets", "registers", "digests",
)  # fmt: skip
_PARTS = ("match_fields", "action_refs", "params", "metadata", "match")


def check(info: p4info_pb2.P4Info) -> None:
    """Raise UnsupportedProgram if a P4Info exceeds the limits, or has a name or an id twice."""
    for kind in _KINDS:
        things = getattr(info, kind)
        _check_count(f"the P4Info's {kind.replace('_', ' ')}", len(things))
        for what, values in (
            ("name", [each.preamble.name for each in things]),
            ("id", [each.preamble.id for each in things]),
        ):
            ((most_common, count),) = Counter(values).most_common(1) or [(None, 0)]
            if count > 1:
                raise UnsupportedProgram(
                    f"the P4Info has {kind} with the same {what}: {most_common}"
                )
        for thing in things:
            _check_thing(thing)


def _check_thing(thing: Any) -> None:
    name = thing.preamble.name
    if hasattr(thing, "size"):
        limits.number(f"the P4Info's {name}: its size", thing.size, limits.MAX_ELEMENTS)
    bits = 0
    for parts in _parts(thing):
        _check_count(f"the P4Info's {name}: its parts", len(parts))
        for part in parts:
            if hasattr(part, "bitwidth"):
                bits += limits.width(f"the P4Info's {name}", part.bitwidth)
    limits.number(f"the P4Info's {name}: its width", bits, 8 * limits.MAX_JOINED)


def _parts(thing: Any) -> Iterator[Any]:
    for each in _PARTS:
        if hasattr(thing, each):
            yield getattr(thing, each)


def _check_count(what: str, count: int) -> None:
    limits.number(f"{what}: their number", count, MOST_THINGS)
