"""What a worker's link and a switch's port both ask of the kernel for a socket."""

import contextlib
import socket

UDP_SEGMENT, UDP_GRO = 103, 104
"""Linux's names for cutting one buffer into datagrams of equal size, and for handing many over as one."""

SOCKET_BUFFER_BYTES = 8 << 20
"""Room for bursts that a socket asks for, each way."""

_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33


def enlarge_buffers(sock: socket.socket) -> None:
    """Room for bursts, beyond the system's limit where privileges allow."""
    for option, forced in (
        (socket.SO_SNDBUF, _SO_SNDBUFFORCE),
        (socket.SO_RCVBUF, _SO_RCVBUFFORCE),
    ):
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, SOCKET_BUFFER_BYTES)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)


def join_datagrams(sock: socket.socket) -> None:
    """Take many datagrams with one call; where the kernel cannot, they come one by one."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
