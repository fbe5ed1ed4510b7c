"""Socket options that a worker's link and a switch's port share."""

import contextlib
import socket

UDP_SEGMENT, UDP_GRO = 103, 104
"""Linux's options to cut one buffer into datagrams of equal size, and to join many into one."""

MOST_SEGMENTS = 64
"""The most datagrams that Linux cuts one buffer into."""

MOST_SENT_BYTES = 65_000
"""The most bytes that are sent in one call: with its headers, a buffer has to fit an IP packet."""

SOCKET_BUFFER_BYTES = 8 << 20
"""Size of a socket's send buffer, and of its receive buffer: room for bursts."""

FRAME_MEMORY = 2304
"""The memory that Linux takes for a full frame of Ethernet while it waits for the link."""

LONG_QUEUE_BYTES = 128 * FRAME_MEMORY
"""The memory of a socket's queue from which on a sender marks its own packets, as switches do."""

SIOCOUTQ = 0x5411
"""Linux's request for the memory of those packets of a socket that still wait for the link."""

_ECN_CAPABLE, _IP_RECVTOS, _IP_MTU = 2, 13, 14
_SO_SNDBUFFORCE, _SO_RCVBUFFORCE = 32, 33


def enlarge_buffers(sock: socket.socket) -> None:
    """Enlarge a socket's buffers, beyond the system's limit if privileges allow."""
    for option, forced in (
        (socket.SO_SNDBUF, _SO_SNDBUFFORCE),
        (socket.SO_RCVBUF, _SO_RCVBUFFORCE),
    ):
        try:
            sock.setsockopt(socket.SOL_SOCKET, forced, SOCKET_BUFFER_BYTES)
        except PermissionError:
            sock.setsockopt(socket.SOL_SOCKET, option, SOCKET_BUFFER_BYTES)


def take_part_in_ecn(sock: socket.socket) -> None:
    """Let hops mark a UDP socket's packets where their queues are long, and report received marks."""
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, _ECN_CAPABLE)
    sock.setsockopt(socket.IPPROTO_IP, _IP_RECVTOS, 1)


def route_mtu(sock: socket.socket) -> int:
    """Return the most bytes of an IP packet on the way of a connected UDP socket, as far as is known."""
    return sock.getsockopt(socket.IPPROTO_IP, _IP_MTU)


def join_datagrams(sock: socket.socket) -> None:
    """Let one call receive many datagrams. If the kernel cannot, they come one by one."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_UDP, UDP_GRO, 1)
