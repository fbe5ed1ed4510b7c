"""Frames, messages and programs that are random, or almost right."""

import json
import random
from collections.abc import Iterator, MutableSequence, Sequence
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

LONGEST_FRAME = 65507
"""Bytes of the longest UDP datagram."""

_DEEPEST = 5


def frame(chance: random.Random, good: Sequence[bytes]) -> bytes:
    """Return a frame of 0 to 65507 bytes: random, or a good one that is cut, extended or changed."""
    kind = chance.random()
    if kind < 0.1:
        return chance.randbytes(chance.choice((0, 1, 13, 14, chance.randrange(1600))))
    if kind < 0.102:
        return (chance.choice(good) + bytes(LONGEST_FRAME))[: chance.randint(1501, LONGEST_FRAME)]
    damaged = bytearray(chance.choice(good))
    if kind < 0.3:
        del damaged[chance.randrange(len(damaged) + 1) :]
    elif kind < 0.4:
        damaged += chance.randbytes(chance.randrange(100))
    elif kind < 0.5:
        del damaged[: chance.randrange(len(damaged))]
    for _ in range(chance.choice((0, 1, 1, 4, 20)) if damaged else 0):
        at = chance.randrange(len(damaged))
        damaged[at] = chance.choice((0, 0xFF, 0x80, damaged[at] ^ 1, chance.getrandbits(8)))
    return bytes(damaged)


_STRANGE = (
    None, -1, 0, 1, 2, 10**9, 1 << 70, 1.5, True, False, "", "x", "\ud800", "0x0", "-0x1",
    "0x" + "f" * 5000, [], ["a"], [[]], {},
    "field", "expression", "hexstr", "header", "stack", "lookahead", "standard_metadata", "$valid$",
)  # fmt: skip
_HARMLESS = frozenset({"source_info", "program", "__meta__", "enums", "field_aliases"})


def document(chance: random.Random, program: Any) -> str:
    """Return a program's JSON with a few parts left out, repeated, moved, or replaced."""
    found = list(places(program))
    for _ in range(chance.choice((1, 1, 1, 2, 3))):
        holder, key = chance.choice(found)
        if key not in holder if isinstance(holder, dict) else key >= len(holder):
            continue  # an earlier change has taken it away
        alike = [place for place in found if place[1] == key]
        match chance.randrange(6):
            case 0:
                del holder[key]
            case 1:
                holder[key] = chance.choice(_STRANGE)
            case 2:
                _copy(chance.choice(found), holder, key)
            case 3:
                _copy(chance.choice(alike), holder, key)
            case 4 if isinstance(holder, list):
                holder.insert(
                    chance.randrange(len(holder) + 1), json.loads(json.dumps(holder[key]))
                )
            case _:
                holder[key] = [holder[key]]
    return json.dumps(program)


def _copy(place: tuple[Any, Any], holder: Any, key: Any) -> None:
    other, source = place
    if source in other if isinstance(other, dict) else source < len(other):
        holder[key] = json.loads(json.dumps(other[source]))


def places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every place in a JSON document that matters: its container and its key."""
    for key in [*node] if isinstance(node, dict) else range(len(node)):
        if key not in _HARMLESS:
            yield node, key
            if isinstance(node[key], dict | list):
                yield from places(node[key])


class Messages:
    """Random protobuf messages, with `numbers` as likely values of numeric fields."""

    def __init__(self, chance: random.Random, numbers: Sequence[int]) -> None:
        self._chance, self._numbers = chance, numbers

    def fill(self, message: Any, depth: int = 0) -> Any:
        """Give random content to random fields. Return the message."""
        for field in message.DESCRIPTOR.fields:
            if self._chance.random() < (0.6 if depth < _DEEPEST else 0.1):
                self._set(message, field, depth)
        return message

    def spoil(self, message: Any) -> Any:
        """Change, add or remove some fields, somewhere inside. Return the message."""
        for _ in range(self._chance.randint(1, 3)):
            inner = self._chance.choice([*_inside(message)])
            if not inner.DESCRIPTOR.fields:
                continue
            field = self._chance.choice(inner.DESCRIPTOR.fields)
            inner.ClearField(field.name)
            if self._chance.random() < 0.8:
                self._set(inner, field, 1)
        return message

    def _set(self, message: Any, field: FieldDescriptor, depth: int) -> None:
        repeated = isinstance(getattr(message, field.name), MutableSequence)
        for _ in range(self._chance.randint(1, 3) if repeated else 1):
            if field.type == FieldDescriptor.TYPE_MESSAGE:
                place = getattr(message, field.name)
                if field.message_type.GetOptions().map_entry:
                    return
                inner = place.add() if repeated else place
                inner.SetInParent()
                if depth < 2 * _DEEPEST:
                    self.fill(inner, depth + 1)
            elif repeated:
                getattr(message, field.name).append(self._value(field))
            else:
                setattr(message, field.name, self._value(field))

    def _value(self, field: FieldDescriptor) -> Any:
        chance = self._chance
        match field.cpp_type:
            case FieldDescriptor.CPPTYPE_ENUM:
                return chance.choice([each.number for each in field.enum_type.values] + [77])
            case FieldDescriptor.CPPTYPE_BOOL:
                return chance.random() < 0.5
            case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
                return chance.choice((0.0, -1.0, float("nan"), float("inf"), 1e30))
            case FieldDescriptor.CPPTYPE_STRING if field.type == FieldDescriptor.TYPE_BYTES:
                return chance.randbytes(chance.choice((0, 1, 1, 1, 2, 4, 6, 16, 300)))
            case FieldDescriptor.CPPTYPE_STRING:
                return chance.choice(
                    ("", "x", "\N{SNOWMAN}" * 100, "type.googleapis.com/p4.v1.Entity")
                )
            case FieldDescriptor.CPPTYPE_INT32:
                low, high = -(1 << 31), (1 << 31) - 1
            case FieldDescriptor.CPPTYPE_INT64:
                low, high = -(1 << 63), (1 << 63) - 1
            case FieldDescriptor.CPPTYPE_UINT32:
                low, high = 0, (1 << 32) - 1
            case _:
                low, high = 0, (1 << 64) - 1
        number = chance.choice((low, high, 0, 1, 2, 511, *self._numbers, *self._numbers))
        return min(max(number, low), high)


def _inside(message: Any) -> list[Any]:
    """Return the message and all messages inside it."""
    found = [message]
    for field, value in message.ListFields():
        if field.message_type and not field.message_type.GetOptions().map_entry:
            for each in value if isinstance(value, MutableSequence) else [value]:
                found += _inside(each)
    return found
