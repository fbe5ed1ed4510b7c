"""Protobuf messages as plain values, for commands that print JSON."""

from typing import Any

from google.protobuf.message import Message


def as_plain(message: Message) -> dict[str, Any]:
    """Return a message as a dictionary of plain values, with a key for every field.

    A field that holds no message is None, and an enum's value is its name in the proto file. Unlike
    protobuf's own conversion to JSON, 64-bit integers stay numbers.
    """
    return {field.name: _plain(message, field) for field in message.DESCRIPTOR.fields}


def _plain(message: Message, field: Any) -> Any:
    value = getattr(message, field.name)
    if isinstance(value, Message):
        return as_plain(value) if message.HasField(field.name) else None
    if isinstance(value, str | bytes | int | float):
        return _scalar(field, value)
    return [as_plain(each) if isinstance(each, Message) else _scalar(field, each) for each in value]


def _scalar(field: Any, value: Any) -> Any:
    return field.enum_type.values_by_number[value].name if field.enum_type else value
