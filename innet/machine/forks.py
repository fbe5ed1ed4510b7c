"""Objects that belong to one process, and not to the children that it forks.

A child has copies of its parent's objects, sockets and memory, but none of its threads. If it used a
connection, it would speak in its parent's name. A destructor that joins a thread, as those of gRPC and
Gloo do, would wait forever. And as long as a child lives, its copies of sockets keep connections open,
so that no peer sees that the parent has died.
"""

import contextlib
import ctypes
import ipaddress
import os
import socket
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Protocol

from innet.errors import InnetError


class Owner:
    """The process that made the object `owned`. Forked children never destroy their copy of it."""

    def __init__(self, owned: object) -> None:
        self._pid = os.getpid()
        _owned.add(owned)

    @property
    def here(self) -> bool:
        """Return whether this process is the owner, and not a forked child of it."""
        return os.getpid() == self._pid

    def check(self, what: str, error: type[InnetError]) -> None:
        """Raise an error of this class in a forked child. `what` names the object in the message."""
        if os.getpid() != self._pid:
            raise error(
                f"{what} belongs to process {self._pid}, which has forked this one: "
                "use it there, or join from here"
            )


class Closeable(Protocol):
    """An object with sockets."""

    def close(self) -> None:
        """Close the sockets."""


def close_in_children(owned: Closeable) -> None:
    """Close the copies of sockets in forked children, which would hide their end from their peers."""
    _closed_in_children.add(owned)


def cut_in_children(address: str) -> None:
    """Cut forked children off a server that a library of this process connects to, at any time.

    `address` is HOST:PORT or unix:PATH. A host's name is resolved now.
    """
    if address.startswith("unix:"):
        _peers.add(address.removeprefix("unix:"))
        return
    host, _, port = address.rpartition(":")
    with contextlib.suppress(OSError):  # an address that only gRPC understands
        for found in socket.getaddrinfo(host.strip("[]"), port, type=socket.SOCK_STREAM):
            _peers.add((str(ipaddress.ip_address(found[4][0])), int(found[4][1])))


@contextlib.contextmanager
def opened_sockets_cut_in_children() -> Iterator[None]:
    """Cut forked children off the connections that a library opens while the block runs."""
    before = dict(_sockets())
    try:
        yield
    finally:
        _cut.update(set(_sockets()) - set(before.items()))


_owned: "weakref.WeakSet[object]" = weakref.WeakSet()
_closed_in_children: "weakref.WeakSet[Closeable]" = weakref.WeakSet()
_peers: set[str | tuple[str, int]] = set()
_cut: set[tuple[int, int]] = set()
"""Descriptors and inodes of sockets. The inode tells whether the descriptor is still that socket."""


def _keep() -> None:
    """Take a reference to each of the parent's objects and never release it."""
    for each in list(_owned):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(each))


def _close() -> None:
    """Close the child's copies of the parent's sockets."""
    for each in list(_closed_in_children):
        each.close()
    for descriptor, inode in _sockets():
        if (descriptor, inode) in _cut or _peer(descriptor) in _peers:
            _replace(descriptor)


def _sockets() -> Iterator[tuple[int, int]]:
    """Yield the descriptor and the inode of each socket of this process."""
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError, ValueError):
            kind, inode = str(link.readlink()).split(":")
            if kind == "socket":
                yield int(link.name), int(inode.strip("[]"))


def _peer(descriptor: int) -> str | tuple[str, int] | None:
    """Return the other end of a connection, as :func:`cut_in_children` notes it."""
    try:
        sock = socket.socket(fileno=descriptor)
    except OSError:
        return None
    try:
        peer = sock.getpeername()
        if sock.family not in (socket.AF_INET, socket.AF_INET6):
            return peer if isinstance(peer, str) else None
        address = ipaddress.ip_address(peer[0])
        return str(getattr(address, "ipv4_mapped", None) or address), int(peer[1])
    except (OSError, ValueError):  # no connection
        return None
    finally:
        sock.detach()


def _replace(descriptor: int) -> None:
    """Put something harmless in a descriptor's place, which its owner in this process may still close."""
    harmless = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
    os.dup2(harmless, descriptor, inheritable=False)
    os.close(harmless)


os.register_at_fork(after_in_child=_keep)
os.register_at_fork(after_in_child=_close)
