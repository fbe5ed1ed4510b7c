"""What a worker's link and a switch's port both ask of the kernel for a socket."""

import contextlib
import socket

UDP_GRO = 104
"""Linux's name for handing over many datagrams of equal size as one."""

_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33
_SOCKET_BUFFER = 8 << 20


def enlarge_buffers(sock: socket.socket) -> None:
    """Room for bursts, beyond the system's limit where privileges allow."""
    for option, forced in (
        (socket.SO_SNDBUF, _SO_SNDBUFFORCE),
        (socket.SO_RCVBUF, _SO_RCVBUFFORCE),
    ):
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, _SOCKET_BUFFER)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, option, _SOCKET_BUFFER)


def join_datagrams(sock: socket.socket) -> None:
    """Take many datagrams with one call; where the kernel cannot, they come one by one."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
