"""The kernel's view of TCP connections: how long the other end has been silent.

A kernel answers even if its process is stopped or its interpreter is busy. A machine that is dead
or cut off does not answer. The kernel's acknowledgements tell the two apart; heartbeats from Python
cannot.
"""

import contextlib
import ipaddress
import os
import socket
import stat
import struct
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from urllib.parse import unquote

PROBE_EVERY = 1
"""Seconds between two keepalive probes of an idle connection."""

_MOST_PROBES = 127  # the most that Linux takes: other code decides when to give a connection up
_INFO = struct.Struct("8B24I")  # the beginning of struct tcp_info
_LAST_DATA_RECEIVED, _LAST_ACK_RECEIVED = 8 + 11, 8 + 12
_ESTABLISHED = 1
_OWN_SOCKETS = Path("/proc/self/fd")
Endpoint = tuple[str, int]
_NONE: Mapping[int, Endpoint] = MappingProxyType({})


class TcpConnection:
    """One TCP connection of this process. Without a socket, nothing is known about it."""

    def __init__(self, sock: socket.socket | None = None) -> None:
        self._sock = sock
        self.remote = _leaves_machine(sock) if sock else False
        if sock:
            _probe(sock)

    @classmethod
    def of_peer(cls, peer: str) -> "TcpConnection":
        """Return the connection from a peer as gRPC names it, such as ``ipv4:10.0.0.1:4711``."""
        endpoint = _endpoint(peer)
        return cls(_sockets.to(endpoint) if endpoint else None)

    def silence(self) -> float:
        """Return the seconds since the other end's kernel was last heard, or 0 if unknown."""
        if not (info := self._info()):
            return 0.0
        return min(info[_LAST_DATA_RECEIVED], info[_LAST_ACK_RECEIVED]) / 1000

    @property
    def broken(self) -> bool:
        """Return whether the other end is known to have closed the connection."""
        info = self._info()
        return bool(info) and info[0] != _ESTABLISHED

    def close(self) -> None:
        """Stop watching. The connection itself stays open."""
        sock, self._sock = self._sock, None
        if sock:
            sock.close()

    def _info(self) -> tuple[int, ...]:
        sock = self._sock
        if not sock or not hasattr(socket, "TCP_INFO"):
            return ()
        with contextlib.suppress(OSError, struct.error):
            return _INFO.unpack(sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _INFO.size))
        return ()


def break_when_silent(address: str, seconds: float) -> None:
    """Let the kernel break this process's connections to ``host:port`` after `seconds` of silence."""
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError, ValueError):
        found = socket.getaddrinfo(host.strip("[]"), int(port), type=socket.SOCK_STREAM)
        ends = {_normal(each[-1]) for each in found}
        for sock in filter(None, map(_duplicate, dict(_sockets_among(_open_files())))):
            with sock:
                if _peer(sock) in ends:
                    _probe(sock)
                    milliseconds = round(seconds * 1000)
                    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)


def notice_death(sock: socket.socket) -> None:
    """Let the kernel break an idle connection two minutes after the other machine has died."""
    _probe(sock, idle=60, interval=10, count=6)


def _probe(
    sock: socket.socket,
    idle: int = PROBE_EVERY,
    interval: int = PROBE_EVERY,
    count: int = _MOST_PROBES,
) -> None:
    """Let the kernel probe the other end of an idle connection, `count` times in vain at most.

    `idle` and `interval` are the seconds before the first probe, and between two.
    """
    with contextlib.suppress(OSError, AttributeError):  # it is not TCP
        for option, value in (
            (socket.TCP_KEEPIDLE, idle),
            (socket.TCP_KEEPINTVL, interval),
            (socket.TCP_KEEPCNT, count),
        ):
            sock.setsockopt(socket.IPPROTO_TCP, option, value)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)


class _Sockets:
    """An index of this process's connected TCP sockets, by their other ends.

    A look at all open files takes milliseconds if there are thousands. So it is repeated only when an
    endpoint is not in the index, nor among the file descriptors that have come since the last look. The
    index asks a socket for its other end only once, and knows the socket by its inode from then on. A
    file descriptor may have been closed and used again since the last look. So a socket is checked
    before it is returned.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._looked: set[int] = set()  # the file descriptors of the looks so far
        self._ends: dict[int, Endpoint] = {}  # by inode
        self._descriptors: dict[Endpoint, int] = {}

    def to(self, endpoint: Endpoint) -> socket.socket | None:
        """Return a duplicate of the socket whose other end is `endpoint`, or None."""
        with self._lock:
            if found := self._known(endpoint):
                return found
            numbers = _open_files()
            self._look_at(numbers - self._looked)
            if found := self._known(endpoint):
                self._looked |= numbers
                return found
            self._look(numbers)
            return self._known(endpoint)

    def _known(self, endpoint: Endpoint) -> socket.socket | None:
        number = self._descriptors.get(endpoint)
        sock = None if number is None else _duplicate(number)
        if sock and _peer(sock) != endpoint:
            sock.close()
            return None
        return sock

    def _look(self, numbers: set[int]) -> None:
        before, self._ends, self._descriptors = self._ends, {}, {}
        self._looked = numbers
        self._look_at(numbers, before)

    def _look_at(self, numbers: Iterable[int], before: Mapping[int, Endpoint] = _NONE) -> None:
        """Take these file descriptors into the index. `before` has the ends of sockets that are known."""
        for number, inode in _sockets_among(numbers):
            if end := before.get(inode) or _end_of(number):
                self._ends[inode], self._descriptors[end] = end, number


_sockets = _Sockets()


def _open_files() -> set[int]:
    """Return this process's file descriptors."""
    with contextlib.suppress(FileNotFoundError):  # a platform without /proc
        return {*map(int, os.listdir(_OWN_SOCKETS))}  # noqa: PTH208 - thousands of paths are slow
    return set()


def _sockets_among(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Return the file descriptors and inodes of the sockets among these, of any kind."""
    found = []
    for number in numbers:
        with contextlib.suppress(OSError):  # closed at this moment
            status = os.fstat(number)
            if stat.S_ISSOCK(status.st_mode):
                found.append((number, status.st_ino))
    return found


def _end_of(number: int) -> Endpoint | None:
    sock = _duplicate(number)
    if not sock:
        return None
    with sock:
        return _peer(sock)


def _duplicate(number: int) -> socket.socket | None:
    """Duplicate a file descriptor if it is a socket's. It may be closed at any moment."""
    with contextlib.suppress(OSError):
        copy = os.dup(number)
        try:
            return socket.socket(fileno=copy)
        except OSError:
            os.close(copy)
    return None


def _peer(sock: socket.socket) -> Endpoint | None:
    if sock.family not in (socket.AF_INET, socket.AF_INET6) or sock.type != socket.SOCK_STREAM:
        return None
    with contextlib.suppress(OSError):
        return _normal(sock.getpeername())
    return None


def _endpoint(peer: str) -> Endpoint | None:
    """Return the endpoint that gRPC's name of a peer stands for, or None if it is not TCP."""
    kind, _, rest = unquote(peer).partition(":")
    if kind not in ("ipv4", "ipv6"):
        return None
    host, _, port = rest.rpartition(":")
    return _normal((host.strip("[]"), int(port)))


def _normal(address: tuple[object, ...]) -> Endpoint:
    """Return address and port, with IPv4 addresses always in the same form."""
    ip = ipaddress.ip_address(str(address[0]).partition("%")[0])
    mapped = getattr(ip, "ipv4_mapped", None)
    return str(mapped or ip), int(str(address[1]))


def _leaves_machine(sock: socket.socket) -> bool:
    """Return whether the two ends are on different machines, as far as addresses tell."""
    with contextlib.suppress(OSError):
        here, there = _normal(sock.getsockname())[0], _normal(sock.getpeername())[0]
        return here != there and not ipaddress.ip_address(there).is_loopback
    return False
