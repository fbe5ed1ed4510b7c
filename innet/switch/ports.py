"""A switch's ports: how ``-i`` is read, and the sockets behind it.

``1@eth0`` is a network interface, as BMv2 takes it. ``1@udp:127.0.0.1:9001/127.0.0.1:8001`` is a cable
made of UDP: frames of port 1 arrive in datagrams at the first address and leave to the second.
"""

import enum
import ipaddress
import socket
import struct
from dataclasses import dataclass
from typing import BinaryIO

from innet.errors import UsageError
from innet.sockets import enlarge_buffers, join_datagrams

_ETH_P_ALL = 3
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_MR_PROMISC = 1
_PACKET_AUXDATA = 8
_PACKET_IGNORE_OUTGOING = 23
_SOL_PACKET = 263
MOST_PORTS = 512  # v1model has 9 bits for a port


class PortKind(enum.Enum):
    """How frames cross the socket; the values are the C runtime's."""

    FRAMES = 1
    SEGMENTS = 2


@dataclass
class Port:
    """An open port. Close it when no engine uses it any more."""

    number: int
    spec: str
    socket: socket.socket
    kind: PortKind
    captures: tuple[BinaryIO, ...] = ()
    """Files to which frames are captured as they come in and go out, or none."""

    def fileno(self) -> int:
        """The socket's file descriptor."""
        return self.socket.fileno()

    def close(self) -> None:
        """Give the socket back, and close the captures."""
        self.socket.close()
        for file in self.captures:
            file.close()


def open_port(text: str) -> Port:
    """Open the port that a ``-i`` option names. Raises UsageError, saying what is wrong."""
    number, _, spec = text.partition("@")
    if not number.isdecimal() or int(number) >= MOST_PORTS or not spec:
        raise UsageError(
            f"port {text!r} is not NUMBER@INTERFACE or NUMBER@udp:IP:PORT/IP:PORT, "
            f"with a number below {MOST_PORTS}"
        )
    try:
        if spec.startswith("udp:"):
            return Port(int(number), spec, _open_udp(text, spec), PortKind.SEGMENTS)
        return Port(int(number), spec, _open_interface(spec), PortKind.FRAMES)
    except OSError as problem:
        raise UsageError(f"cannot open port {text!r}: {problem.strerror or problem}") from problem


def cpu_port(number: int) -> tuple[Port, socket.socket]:
    """A port whose other end is in this process. Returns the port and that end."""
    inner, outer = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    for end in (inner, outer):
        enlarge_buffers(end)
    return Port(number, "cpu", inner, PortKind.FRAMES), outer


def _open_udp(text: str, spec: str) -> socket.socket:
    try:
        local, remote = (_endpoint(end) for end in spec.removeprefix("udp:").split("/"))
    except ValueError:
        raise UsageError(f"port {text!r} is not NUMBER@udp:IP:PORT/IP:PORT") from None
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        sock.bind(local)
        sock.connect(remote)
    except OSError:
        sock.close()
        raise
    enlarge_buffers(sock)
    join_datagrams(sock)
    return sock


def _open_interface(name: str) -> socket.socket:
    index = socket.if_nametoindex(name)
    # Only once it is bound has it a protocol: before, it would take the frames of all interfaces.
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    try:
        sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        sock.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)  # VLAN tags come in it
        sock.bind((name, _ETH_P_ALL))
        membership = struct.pack("iHH8s", index, _PACKET_MR_PROMISC, 0, b"")
        sock.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)
    except OSError:
        sock.close()
        raise
    enlarge_buffers(sock)
    return sock


def _endpoint(text: str) -> tuple[str, int]:
    """An address as ``IP:PORT``. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not 0 < int(port) < 1 << 16:
        raise ValueError(port)
    return str(ipaddress.IPv4Address(host)), int(port)
