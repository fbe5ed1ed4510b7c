"""Match fields: P4Runtime's messages on one side, values and masks on the other."""

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.p4runtime.entities import Field, Table, ValueSet, encode
from innet.switch.p4runtime.refusals import invalid

Key = tuple[tuple[int, ...], tuple[int, ...], int]
"""The identity of an entry: its values, its masks and its P4Runtime priority."""


def entry_key(table: Table, message: p4rt.TableEntry) -> Key:
    """Return the identity of a table entry. Raises Refusal."""
    values, masks = match_key(table, message)
    if message.priority < 0 or table.needs_priority != (message.priority > 0):
        need = "needs a priority above 0" if table.needs_priority else "takes no priority"
        raise invalid(f"{table.name}: an entry of this table {need}")
    return values, masks, message.priority


def match_key(
    table: Table | ValueSet, message: p4rt.TableEntry | p4rt.ValueSetMember
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the value and mask of each field in an entry or a member. Raises Refusal."""
    matches = {match.field_id: match for match in message.match}
    if len(matches) != len(message.match):
        raise invalid(f"{table.name}: a field is matched twice")
    values, masks = [], []
    for field in table.fields:
        value, mask = _match(table, field, matches.pop(field.id, None))
        if field.match != "range" and value & ~mask:
            raise invalid(f"{table.name}.{field.name}: the value has bits outside of the mask")
        values.append(value)
        masks.append(mask)
    if matches:
        raise invalid(f"{table.name}: no match field has id {min(matches)}")
    return tuple(values), tuple(masks)


def _match(table: Table | ValueSet, field: Field, match: p4rt.FieldMatch | None) -> tuple[int, int]:
    """Return a field's value and mask, or the bounds of its range."""
    where = f"{table.name}.{field.name}"
    if match is None:
        if field.match == "exact":
            raise invalid(f"{where}: the match is missing, and an exact match cannot be left out")
        return 0, field.full if field.match == "range" else 0
    kind = match.WhichOneof("field_match_type")
    if kind != field.match:
        raise invalid(f"{where}: the match is {kind}, but the field needs {field.match}")
    if kind == "exact":
        return field.parse(match.exact.value), field.full
    if kind == "range":
        return _range(where, field, match.range)
    if kind == "optional":
        return field.parse(match.optional.value), field.full
    if kind == "ternary":
        value, mask = field.parse(match.ternary.value), field.parse(match.ternary.mask)
        if mask == 0:
            raise invalid(f"{where}: the mask is 0: leave the match out to match everything")
        return value, mask
    length = match.lpm.prefix_len
    if not 0 < length <= field.bits:
        raise invalid(f"{where}: the prefix length {length} is not from 1 to {field.bits}")
    return field.parse(match.lpm.value), field.full ^ (field.full >> length)


def _range(where: str, field: Field, match: p4rt.FieldMatch.Range) -> tuple[int, int]:
    """Return the bounds of a range."""
    low, high = field.parse(match.low), field.parse(match.high)
    if low > high:
        raise invalid(f"{where}: the range begins at {low:#x} and ends before that, at {high:#x}")
    if (low, high) == (0, field.full):
        raise invalid(f"{where}: the range covers everything: leave the match out")
    return low, high


def add_match(message: p4rt.TableEntry, field: Field, value: int, mask: int) -> None:
    """Add a match of one of the program's own entries, unless it matches everything."""
    if (value, mask) == (0, field.full if field.match == "range" else 0) and field.match != "exact":
        return
    match = message.match.add(field_id=field.id)
    if field.match == "lpm":
        match.lpm.value, match.lpm.prefix_len = encode(value), mask.bit_count()
    elif field.match == "range":
        match.range.low, match.range.high = encode(value), encode(mask)
    elif field.match == "ternary":
        match.ternary.value, match.ternary.mask = encode(value), encode(mask)
    else:
        getattr(match, field.match).value = encode(value)
