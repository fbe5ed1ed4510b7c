"""The machine's network interfaces, as the kernel reports them. Nothing here needs privileges."""

import contextlib
import ctypes
import fcntl
import socket
import struct
from ipaddress import IPv4Address
from pathlib import Path

from innet.machine import netlink

_SIOCETHTOOL = 0x8946
_GET_DRIVER, _GET_TX_CHECKSUMS, _GET_FLAGS, _GET_CHANNELS = 0x3, 0x16, 0x25, 0x3C  # linux/ethtool.h
_TAKES_TAGS = 1 << 8
_CHANNELS = struct.Struct("=20xI8xI")  # the counts of receive-only and of combined channels
_DRIVER = slice(4, 36)
_INTERFACES = Path("/sys/class/net")
_ROUTES = Path("/proc/net/route")
_UP, _VIA_GATEWAY = 1, 2


def interface_to(ip: str) -> str:
    """Return the interface by which packets to an IPv4 address leave, or "" if none is known."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock, contextlib.suppress(OSError):
        sock.connect((ip, 9))
        return interface_at(sock.getsockname()[0])
    return ""


def interface_at(ip: str) -> str:
    """Return the interface that has an IPv4 address of this machine, or "" if none has it."""
    own = socket.inet_aton(ip)
    with contextlib.suppress(OSError):  # it is removed at this moment
        for index, address in netlink.ipv4_addresses():
            if address == own:
                return socket.if_indextoname(index)
    return ""


def bits_per_second(interface: str) -> int:
    """Return the rate of an interface's link, or 0 without one, as for a veth or a bridge."""
    try:
        megabits = int((_INTERFACES / interface / "speed").read_text())
    except (OSError, ValueError):
        return 0
    return max(megabits, 0) * 1_000_000 if is_physical(interface) else 0


def is_physical(interface: str) -> bool:
    """Return whether an interface is a device of the machine, and not made of software."""
    return (_INTERFACES / interface / "device").exists()


def gateway_to(ip: str) -> str:
    """Return the gateway of the route to an IPv4 address, or "" if it is in a subnet of this machine."""
    wanted = int(IPv4Address(ip))
    best, gateway = (-1, 0), ""
    for line in _ROUTES.read_text().splitlines()[1:]:
        _, where, via, flags, _, _, metric, mask, *_ = line.split()
        destination, prefix = _number(where), _number(mask)
        rank = prefix, -int(metric)  # the longest prefix, and among equal ones the cheapest
        if int(flags, 16) & _UP and wanted & prefix == destination and rank > best:
            best = rank
            gateway = str(IPv4Address(_number(via))) if int(flags, 16) & _VIA_GATEWAY else ""
    return gateway


def is_veth(interface: str) -> bool:
    """Return whether an interface is one end of a veth pair."""
    reply = _ethtool(interface, struct.pack("=I192x", _GET_DRIVER))
    return reply[_DRIVER].rstrip(b"\0") == b"veth"


def leaves_checksums(interface: str) -> bool:
    """Return whether the kernel leaves the checksums of outgoing packets to an interface."""
    reply = _ethtool(interface, struct.pack("=II", _GET_TX_CHECKSUMS, 0))
    return bool(struct.unpack("=II", reply)[1]) if reply else False


def takes_vlan_tags(interface: str) -> bool:
    """Return whether an interface takes VLAN tags out of the frames that it receives."""
    reply = _ethtool(interface, struct.pack("=II", _GET_FLAGS, 0))
    return not reply or bool(struct.unpack("=II", reply)[1] & _TAKES_TAGS)


def receive_queues(interface: str) -> int:
    """Return the number of an interface's receive queues."""
    reply = _ethtool(interface, struct.pack("=I32x", _GET_CHANNELS))
    return max(1, sum(_CHANNELS.unpack(reply))) if reply else 1


def _ethtool(interface: str, request: bytes) -> bytes:
    """Return the kernel's answer to an ethtool request, or nothing if it refuses."""
    buffer = ctypes.create_string_buffer(request, len(request))
    asked = struct.pack("16sP16x", interface.encode(), ctypes.addressof(buffer))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            fcntl.ioctl(sock, _SIOCETHTOOL, asked)
        except OSError:
            return b""
    return buffer.raw


def _number(text: str) -> int:
    """Return an address or mask of the kernel's table, which is in this machine's byte order."""
    return int.from_bytes(bytes.fromhex(text)[::-1]) if _LITTLE else int(text, 16)


_LITTLE = struct.pack("=H", 1) == b"\1\0"
