"""A switch's ports: the reader of ``-i`` options, and the sockets behind the ports.

``1@eth0`` is a network interface, as in BMv2. Its frames pass through AF_XDP where possible, and else
through a packet socket. ``1@xdp:eth0`` and ``1@packet:eth0`` choose one of the two.
``1@udp:127.0.0.1:9001/127.0.0.1:8001`` is a cable made of UDP: frames for port 1 arrive in datagrams
at the first address, and leave to the second. ``1@shm:/run/innet/1`` is a cable in shared memory, for
a worker on the same machine: the worker connects to the Unix socket with this path.
"""

import contextlib
import errno
import ipaddress
import platform
import re
import socket
import stat
import struct
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

import structlog

from innet.errors import UsageError
from innet.machine import interfaces
from innet.machine.numbers import is_number
from innet.machine.sockets import enlarge_buffers, join_datagrams
from innet.switch.constants import MAX_PORTS, PortKind
from innet.switch.xdp import Xdp, open_xdp, other_use

_ETH_P_ALL = 3
_PACKET_ADD_MEMBERSHIP = 1
_PACKET_MR_PROMISC = 1
_PACKET_AUXDATA = 8
_PACKET_VNET_HDR = 15
_PACKET_IGNORE_OUTGOING = 23
_SOL_PACKET = 263

_WAYS = ("xdp:", "packet:")
_SUPER_FRAMES_SINCE = (6, 2)
"""The version of Linux from which on packet sockets carry super-frames of UDP."""
_log = structlog.get_logger("innet.switch")

Socket = socket.socket  # for a class in which `socket` is a field


@dataclass
class Port:
    """An open port. Close it when no engine uses it any more."""

    number: int
    spec: str
    socket: Socket
    kind: PortKind
    captures: tuple[BinaryIO, ...] = ()
    """The files that arriving and leaving frames are captured to, if any."""
    interface: str = ""
    claim: Socket | None = None
    """While open, it keeps other switches of this network namespace from the interface."""
    path: Path | None = None
    """The socket's path, if workers connect to the port through shared memory."""
    xdp: Xdp | None = None
    """The AF_XDP sockets of an interface. The packet socket gets only those frames that XDP passes on."""

    def fileno(self) -> int:
        """Return the socket's file descriptor."""
        return self.socket.fileno()

    def close(self) -> None:
        """Close the socket and the captures."""
        if self.path:
            self.path.unlink(missing_ok=True)
        if self.xdp:
            self.xdp.close()
        self.socket.close()
        if self.claim:
            self.claim.close()
        for file in self.captures:
            file.close()


def open_port(text: str) -> Port:
    """Open the port that an ``-i`` option names. Raises UsageError, which says what is wrong."""
    number, _, spec = text.partition("@")
    if not is_number(number) or int(number) >= MAX_PORTS or not spec:
        raise UsageError(
            f"port {text!r} is not NUMBER@INTERFACE, NUMBER@udp:IP:PORT/IP:PORT or "
            f"NUMBER@shm:PATH, with a number below {MAX_PORTS}"
        )
    try:
        if spec.startswith("udp:"):
            return Port(int(number), spec, _open_udp(text, spec), PortKind.SEGMENTS)
        if spec.startswith("shm:"):
            path = Path(spec.removeprefix("shm:"))
            return Port(int(number), spec, _listen(path), PortKind.SHARED_MEMORY, path=path)
        return _interface_port(int(number), text, spec)
    except OSError as problem:
        raise UsageError(f"cannot open port {text!r}: {problem.strerror or problem}") from problem


def cpu_port(number: int) -> tuple[Port, socket.socket]:
    """Return a port whose other end is in this process, and that end."""
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


def _listen(path: Path) -> socket.socket:
    """Return a listening Unix socket. A socket that another switch has left behind is replaced.

    Raises OSError.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        if _is_abandoned(path):
            path.unlink()
        sock.bind(str(path))
        sock.listen()
        sock.setblocking(False)
    except OSError:
        sock.close()
        raise
    return sock


def _is_abandoned(path: Path) -> bool:
    """Return whether there is a socket at this path to which nobody listens."""
    with (
        contextlib.suppress(FileNotFoundError),
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as trial,
    ):
        if stat.S_ISSOCK(path.stat().st_mode):
            return trial.connect_ex(str(path)) == errno.ECONNREFUSED
    return False


def attach(sock: socket.socket, name: str, index: int) -> None:
    """Take all frames of an interface from now on, also those for other addresses. Raises OSError."""
    sock.bind((name, _ETH_P_ALL))
    membership = struct.pack("iHH8s", index, _PACKET_MR_PROMISC, 0, b"")
    sock.setsockopt(_SOL_PACKET, _PACKET_ADD_MEMBERSHIP, membership)


def _claimed(text: str, name: str) -> socket.socket:
    """Return a socket that only one port of this network namespace can have for the interface.

    Its name is in Linux's abstract namespace, which each network namespace has for itself. The name
    is released when the process ends. Raises OSError, and UsageError if another switch holds it.
    """
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0innet-switch-interface-{socket.if_nametoindex(name)}")
    except OSError as problem:
        claim.close()
        if problem.errno == errno.EADDRINUSE:
            raise UsageError(
                f"port {text!r}: {name} is a port of an innet-switch already; end that one first"
            ) from None
        raise
    return claim


def _interface_port(number: int, text: str, spec: str) -> Port:
    """Open a port on a network interface. Raises OSError and UsageError."""
    way, name = spec.split(":", 1) if spec.startswith(_WAYS) else ("", spec)
    claim = _claimed(text, name)
    with contextlib.ExitStack() as stack:
        stack.callback(claim.close)
        sock = _open_interface(name)
        stack.callback(sock.close)
        xdp = _xdp(text, way, number, name)
        stack.pop_all()
    kind = PortKind.SUPER_FRAMES if carries_super_frames() else PortKind.FRAMES
    return Port(number, spec, sock, kind, interface=name, claim=claim, xdp=xdp)


def _xdp(text: str, way: str, number: int, name: str) -> Xdp | None:
    """Return the AF_XDP sockets that an option asks for. Without ``xdp:`` they are optional."""
    if way == "packet":
        return None
    found = (not way and (other_use(name) or _better_way(name))) or open_xdp(name)
    if isinstance(found, Xdp):
        return found
    if way:
        raise UsageError(f"port {text!r}: {name} cannot use XDP: {found}")
    _log.info("packet socket instead of XDP", port=number, interface=name, why=found)
    return None


def carries_super_frames() -> bool:
    """Return whether packet sockets of this kernel carry super-frames of UDP.

    An older kernel loses them if a socket asks for its description of frames.
    """
    numbers = re.match(r"(\d+)\.(\d+)", platform.release())
    return numbers is not None and tuple(map(int, numbers.groups())) >= _SUPER_FRAMES_SINCE


def _better_way(name: str) -> str:
    """Return why a packet socket is faster than AF_XDP on an interface, or "" if it is not.

    The kernel cuts all super-frames for a veth with an XDP program.
    """
    if carries_super_frames() and interfaces.is_veth(name) and interfaces.leaves_checksums(name):
        return "a veth with offloads carries super-frames"
    return ""


def _open_interface(name: str) -> socket.socket:
    index = socket.if_nametoindex(name)
    # The socket has no protocol until it is bound. Otherwise it would receive from all interfaces.
    sock = socket.socket(socket.AF_PACKET, socket.SOCK_RAW)
    try:
        sock.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
        sock.setsockopt(_SOL_PACKET, _PACKET_AUXDATA, 1)  # it carries VLAN tags
        if carries_super_frames():
            sock.setsockopt(_SOL_PACKET, _PACKET_VNET_HDR, 1)
        attach(sock, name, index)
    except OSError:
        sock.close()
        raise
    enlarge_buffers(sock)
    return sock


def _endpoint(text: str) -> tuple[str, int]:
    """Return the address and port in ``IP:PORT``. Raises ValueError."""
    host, _, port = text.rpartition(":")
    if not 0 < int(port) < 1 << 16:
        raise ValueError(port)
    return str(ipaddress.IPv4Address(host)), int(port)
