"""The device configuration of a pipeline: p4c's BMv2 JSON, which clients may wrap.

Before P4Runtime 1.0, BMv2 expected the JSON in the message ``p4.tmp.P4DeviceConfig``. The controllers
of p4lang's tutorials still send it.
"""

from collections.abc import Iterator

_DEVICE_DATA = 3
_VARINT, _BYTES = 0, 2


def unwrapped(config: bytes) -> bytes:
    """Return the JSON in a device configuration, or `config` itself if it is no such message."""
    if config.lstrip()[:1] in (b"{", b""):
        return config
    try:
        return dict(_fields(config))[_DEVICE_DATA]
    except (IndexError, KeyError, ValueError):
        return config


def _fields(message: bytes) -> Iterator[tuple[int, bytes]]:
    """Yield the number and the content of each field that has bytes. Raises IndexError and ValueError."""
    at = 0
    while at < len(message):
        tag, at = _varint(message, at)
        size, at = _varint(message, at)
        if tag & 7 == _BYTES:
            if at + size > len(message):
                raise ValueError("the message is cut")
            yield tag >> 3, message[at : at + size]
            at += size
        elif tag & 7 != _VARINT:
            raise ValueError("the message has a field of another type")


def _varint(message: bytes, at: int) -> tuple[int, int]:
    """Return the number at a position, and the position behind it."""
    value = shift = 0
    while True:
        byte = message[at]
        value |= (byte & 0x7F) << shift
        at, shift = at + 1, shift + 7
        if byte < 0x80:
            return value, at
