"""The reader of the entries that are part of the program, and of the default actions."""

from collections.abc import Mapping, Sequence

from innet.switch import ir, limits
from innet.switch.bmv2json.document import JsonObject

Call = tuple[int, tuple[int, ...]]
"""The id of an action, and its arguments."""

_NEED_PRIORITY = ("ternary", "optional", "range")
_MAX_PRIORITY = (1 << 31) - 2
_NAME = "an entry's priority"


def const_entries(
    table: JsonObject, keys: Sequence[ir.MatchKey], actions: Mapping[str, ir.Action]
) -> tuple[ir.ConstEntry, ...]:
    """Return the entries that the program gives a table."""
    nodes = table.nodes("entries")
    ranked = any(key.match in _NEED_PRIORITY for key in keys)
    numbers = [each.number("priority", _MAX_PRIORITY, name=_NAME) for each in nodes if ranked]
    last = max([len(nodes), *numbers]) if ranked else 0
    return tuple(_entry(each, keys, last, actions) for each in nodes)


def call(node: JsonObject, actions: Mapping[str, ir.Action]) -> Call:
    """Return the call of one of a table's actions, with arguments wrapped to its parameters' widths."""
    by_id = {each.id: each for each in actions.values()}
    action = by_id.get(node.number("action_id", limits.MAX_ID))
    if not action:
        raise node.error("the action is not one of the table's")
    values = node.texts("action_data")
    if len(values) != len(action.params):
        raise node.error(f"{action.name} has {len(action.params)} parameters, not {len(values)}")
    numbers = (node.as_hexadecimal("action_data", each) for each in values)
    widths = (bits for _, bits in action.params)
    return action.id, tuple(
        number % (1 << bits) for number, bits in zip(numbers, widths, strict=True)
    )


def _entry(
    node: JsonObject, keys: Sequence[ir.MatchKey], last: int, actions: Mapping[str, ir.Action]
) -> ir.ConstEntry:
    """Return an entry. `last` is at least the largest number of a priority, or 0 without priorities."""
    matches = node.nodes("match_key")
    if len(matches) != len(keys):
        raise node.error(f"the table has {len(keys)} keys, not {len(matches)}")
    pairs = [_match(key, match) for key, match in zip(keys, matches, strict=True)]
    values, masks = (tuple(each) for each in zip(*pairs, strict=True)) if pairs else ((), ())
    if last:
        # In the JSON the smallest number wins. It is an entry's position, counted from 1, unless the
        # source says @priority. In P4Runtime the largest number wins.
        priority = 1 + last - node.number("priority", last, name=_NAME)
    else:  # the longest prefix wins, whatever the order
        priority = 1 + sum(mask.bit_count() for mask in masks)
    return ir.ConstEntry(values, masks, priority, *call(node.node("action_entry"), actions))


def _match(key: ir.MatchKey, node: JsonObject) -> tuple[int, int]:
    """Return a value and a mask, or the bounds of a range."""
    full = (1 << key.bits) - 1
    kind = node.text("match_type")
    if kind != key.match and not {kind, key.match} <= {"ternary", "optional"}:
        raise node.error(f"a match of type {kind!r} for a key of type {key.match!r}")
    match kind:
        case "exact":
            mask = full
        case "lpm":
            length = node.number("prefix_length", key.bits, name="the length of a prefix")
            mask = full ^ (full >> length)
        case "range":
            low, high = node.hexadecimal("start") & full, node.hexadecimal("end") & full
            if low > high:
                raise node.error(f"the range begins at {low:#x} and ends at {high:#x}")
            return low, high
        case _:
            mask = node.hexadecimal("mask") & full
    return node.hexadecimal("key") & mask, mask
