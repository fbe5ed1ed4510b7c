"""The place of each field of v1model's standard metadata in a program.

p4c has not always declared all of these fields, and programs from P4_14 have some of them in headers of
their own. The reader gives every program all fields under v1model's names.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace

from innet.switch import ir, limits
from innet.switch.bmv2json.document import JsonObject, malformed

_INTRINSIC = frozenset(
    """ingress_global_timestamp egress_global_timestamp mcast_grp egress_rid priority""".split()
)
_QUEUEING = frozenset("enq_timestamp enq_qdepth deq_timedelta deq_qdepth".split())

Place = tuple[str, str]
"""The names of a header and of a field in it."""


def elsewhere(document: JsonObject, headers: Mapping[str, ir.Header]) -> dict[Place, str]:
    """Return the fields outside of standard metadata that serve as one of its fields.

    As in BMv2, an alias in the JSON says which field serves. Without an alias, it is the field of that
    name in standard metadata, or else in the header that P4_14 has for it.
    """
    aliases = dict(_aliases(document, headers))
    own = {each.name for each in headers[ir.STANDARD_METADATA].fields}
    found = {}
    for field in ir.STANDARD_FIELDS:
        owner = _owner(field)
        place = aliases.get(f"{owner}.{field}")
        if not place and field not in own:
            place = (owner, field)
        if place and place != (ir.STANDARD_METADATA, field) and _has(headers, *place):
            found[place] = field
    return found


def complete(header: ir.Header, served: Mapping[str, ir.FieldType]) -> ir.Header:
    """Return standard metadata, or a copy, with all fields. `served` are those declared elsewhere."""
    rest = [each for each in header.fields if each.name not in served]
    moved = [replace(kind, name=name) for name, kind in served.items()]
    known = {each.name for each in rest} | served.keys()
    added = [
        ir.FieldType(name, bits) for name, bits in ir.STANDARD_FIELDS.items() if name not in known
    ]
    return replace(header, fields=(*rest, *moved, *added))


def _owner(field: str) -> str:
    """Return the header that has a field in P4_14, and in the names that BMv2 looks for."""
    if field in _INTRINSIC:
        return "intrinsic_metadata"
    return "queueing_metadata" if field in _QUEUEING else ir.STANDARD_METADATA


def _aliases(document: JsonObject, headers: Mapping[str, ir.Header]) -> Iterable[tuple[str, Place]]:
    for row in document.items("field_aliases"):
        match row:
            case [str() as name, [str() as header, str() as field]]:
                if _has(headers, header, field):
                    yield name, (header, field)
            case _:
                raise malformed(f"field_aliases: {limits.shown(row)} is not a name and a field")


def _has(headers: Mapping[str, ir.Header], header: str, field: str) -> bool:
    if header not in headers or not headers[header].metadata:
        return False
    return any(each.name == field for each in headers[header].fields)
