"""The users and queues of a network interface, as the kernel reports them. It needs no privileges.

The requests go to the network namespace of the process. The files in `/sys` may show another one.
"""

import socket
import struct
from collections.abc import Iterator
from dataclasses import dataclass

_GET_LINK, _GET_ADDRESS, _GET_QDISC = 18, 22, 38
_REQUEST_DUMP = 0x301
_ERROR, _DONE = 2, 3
_HEADER = struct.Struct("=IHHII")
_LINK, _ADDRESS = struct.Struct("=BxHiII"), struct.Struct("=BBBBI")
_QUEUE, _PASSED = struct.Struct("=BxxxiIII"), struct.Struct("=QI")
_ATTRIBUTE = struct.Struct("=HH")
_LINK_BELOW, _QDISC, _MASTER, _LINK_INFO, _INFO_KIND = 5, 6, 10, 18, 1
_OWN = 2
_ROOT = 0xFFFFFFFF
_KIND, _STATISTICS, _BASIC = 1, 7, 1
_SCOPE_LINK = 253
_ROOM = 1 << 17


@dataclass(frozen=True)
class Interface:
    """A network interface. `below` is the index of the interface that it stands on, or 0.

    `master` is the index of the bridge or bond that has it as a port, or 0.
    """

    index: int
    below: int
    master: int
    qdisc: str
    kind: str


def links() -> list[Interface]:
    """Return the interfaces of this network namespace. Raises OSError."""
    found = []
    for message in _dump(_GET_LINK):
        index = _LINK.unpack_from(message)[2]
        about = _attributes(message[_LINK.size :])
        kind = _text(_attributes(about.get(_LINK_INFO, b"")).get(_INFO_KIND, b""))
        below = _number(about.get(_LINK_BELOW, b""))
        master = _number(about.get(_MASTER, b""))
        found.append(Interface(index, below, master, _text(about.get(_QDISC, b"")), kind))
    return found


def has_address(index: int) -> bool:
    """Return whether an interface has an IP address that is not link-local. Raises OSError."""
    addresses = (_ADDRESS.unpack_from(message) for message in _dump(_GET_ADDRESS))
    return any(each == index and scope < _SCOPE_LINK for *_, scope, each in addresses)


def ipv4_addresses() -> Iterator[tuple[int, bytes]]:
    """Yield the index of an interface and 4 bytes for each of its IPv4 addresses. Raises OSError."""
    for message in _dump(_GET_ADDRESS):
        family, *_, index = _ADDRESS.unpack_from(message)
        if family == socket.AF_INET:
            yield index, _attributes(message[_ADDRESS.size :]).get(_OWN, b"")


def passed_by_queues() -> Iterator[tuple[int, int, int]]:
    """Yield the index of each interface that has a queue, and the bytes and frames that it passed on.

    A super-frame counts as the frames that a network card makes of it. Raises OSError.
    """
    for message in _dump(_GET_QDISC):
        _, index, _, parent, _ = _QUEUE.unpack_from(message)
        about = _attributes(message[_QUEUE.size :])
        passed = _attributes(about.get(_STATISTICS, b"")).get(_BASIC, b"")
        if parent == _ROOT and _text(about.get(_KIND, b"")) != "noqueue" and passed:
            yield index, *_PASSED.unpack_from(passed)


def _dump(kind: int) -> Iterator[bytes]:
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) as sock:
        body = bytes(_QUEUE.size)  # at least as long as every request
        sock.send(_HEADER.pack(_HEADER.size + len(body), kind, _REQUEST_DUMP, 1, 0) + body)
        while True:
            data = sock.recv(_ROOM)
            while data:
                size, what, *_ = _HEADER.unpack_from(data)
                if what == _DONE:
                    return
                if what == _ERROR:
                    code = -struct.unpack_from("=i", data, _HEADER.size)[0]
                    raise OSError(code, "the kernel does not list its interfaces")
                yield data[_HEADER.size : size]
                data = data[_aligned(size) :]


def _attributes(data: bytes) -> dict[int, bytes]:
    found = {}
    while len(data) >= _ATTRIBUTE.size:
        size, what = _ATTRIBUTE.unpack_from(data)
        found[what] = data[_ATTRIBUTE.size : size]
        data = data[_aligned(size) :]
    return found


def _aligned(size: int) -> int:
    return size + 3 & ~3


def _number(data: bytes) -> int:
    return struct.unpack("=I", data)[0] if data else 0


def _text(data: bytes) -> str:
    return data.rstrip(b"\0").decode()
