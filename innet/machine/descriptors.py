"""File descriptors, of which a process can have a limited number.

Some are kept for files that a process needs while it serves, such as its state, its log and the list of
revoked certificates. Connections of clients do not get these.
"""

import contextlib
import resource
import socket

RESERVED = 256


def raise_descriptor_limit() -> None:
    """Raise this process's limit on file descriptors as far as the system allows."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def unreserved_descriptors() -> int:
    """Return the number of file descriptors that connections of clients may take, at least 1."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return max(1, soft - min(RESERVED, soft // 2))


def is_reserved(connection: socket.socket) -> bool:
    """Return whether a connection has one of the last file descriptors. The caller should close it.

    The system gives every file the lowest free number.
    """
    return connection.fileno() >= unreserved_descriptors()
