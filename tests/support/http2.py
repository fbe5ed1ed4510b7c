"""HTTP/2 frames (RFC 9113), and headers in HPACK (RFC 7541), for clients that behave badly."""

import contextlib
import socket
import struct
from collections.abc import Iterable

DATA, HEADERS, RESET, SETTINGS, PING, CONTINUATION = 0, 1, 3, 4, 6, 9
END_STREAM, END_HEADERS = 1, 4
EMPTY_MESSAGE = bytes(5)
"""The bytes of a gRPC message without fields."""

_INDEXED_LITERAL, _NEWEST = 0x40, b"\xbe"  # the newest entry of the dynamic table has the index 62
_CANCEL = struct.pack(">I", 8)


def frame(kind: int, flags: int, stream: int, content: bytes = b"") -> bytes:
    """Return a frame."""
    return (
        struct.pack(">I", len(content))[1:]
        + bytes([kind, flags])
        + struct.pack(">I", stream)
        + content
    )


def headers(path: str, extra: bytes = b"") -> bytes:
    """Return the headers of a gRPC call, and more that are encoded already."""
    fields = {
        ":method": "POST", ":scheme": "http", ":path": path, ":authority": "localhost",
        "te": "trailers", "content-type": "application/grpc",
    }  # fmt: skip
    return b"".join(_literal(0, *each) for each in fields.items()) + extra


def remembered(name: str, value: str) -> bytes:
    """Return a header that is put into the table."""
    return _literal(_INDEXED_LITERAL, name, value)


def repeated(times: int) -> bytes:
    """Return the header that was remembered last, so many times, in one byte each."""
    return _NEWEST * times


def given_up_calls(path: str, streams: Iterable[int]) -> bytes:
    """Return calls that are given up as soon as they are made."""
    return b"".join(
        frame(HEADERS, END_HEADERS, each, headers(path))
        + frame(DATA, END_STREAM, each, EMPTY_MESSAGE)
        + frame(RESET, 0, each, _CANCEL)
        for each in streams
    )


def connected(address: str, within: float) -> socket.socket:
    """Return a connection on which HTTP/2 has begun."""
    host, _, port = address.rpartition(":")
    sock = socket.create_connection((host, int(port)), within)
    sock.sendall(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + frame(SETTINGS, 0, 0))
    return sock


def drain(sock: socket.socket) -> None:
    """Read what has come, and drop it."""
    within = sock.gettimeout()
    sock.setblocking(False)
    with contextlib.suppress(BlockingIOError):
        while sock.recv(1 << 16):
            pass
    sock.settimeout(within)


def _literal(kind: int, name: str, value: str) -> bytes:
    return bytes([kind]) + b"".join(_length(len(each)) + each.encode() for each in (name, value))


def _length(number: int) -> bytes:
    if number < 127:
        return bytes([number])
    number -= 127
    encoded = [127]
    while number >= 128:
        encoded.append(number % 128 + 128)
        number //= 128
    return bytes([*encoded, number])
