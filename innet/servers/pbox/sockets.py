"""Sockets of servers and workers: their addresses, and their beginning and end."""

import contextlib
import socket

from innet.errors import UsageError
from innet.machine.forks import close_in_children
from innet.machine.numbers import is_port


def listen(host: str, port: int, setting: str) -> socket.socket:
    """Return a listening TCP socket. Raises UsageError that names `setting`, the caller's option."""
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        listener = socket.create_server((host, port), family=family, backlog=512)
    except OSError as why:
        raise UsageError(f"{setting}: cannot listen at {host}:{port}: {why.strerror}") from None
    close_in_children(listener)
    return listener


def parse_address(address: str, setting: str) -> tuple[str, int]:
    """Return the host and the port of ``HOST:PORT``. Raises UsageError."""
    host, _, port = address.rpartition(":")
    try:
        host.encode("idna")  # as a look-up of the name does
    except UnicodeError:
        host = ""
    if not (host and is_port(port)):
        raise UsageError(f"{setting} {address!r} is not HOST:PORT")
    return host.strip("[]"), int(port)


def shut(sock: socket.socket, how: int = socket.SHUT_RDWR) -> None:
    """Shut down a socket, if it is open. Another thread may be reading from it.

    An SSLSocket's own method would also forget its keys.
    """
    with contextlib.suppress(OSError):
        socket.socket.shutdown(sock, how)
