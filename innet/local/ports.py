"""Free ports of the loopback interface, and cables between a switch and workers of this machine."""

import contextlib
import os
import random
import socket
import threading
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

from innet.errors import InnetError

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT = 10_000
_SHARE = 256
_CHOOSING = threading.Lock()


def free_udp_ports(count: int) -> list[int]:
    """Return UDP ports of the loopback interface that are free at the moment."""
    return _free_ports(socket.SOCK_DGRAM, count)


def free_tcp_port() -> int:
    """Return a TCP port of the loopback interface that is free at the moment."""
    return _free_ports(socket.SOCK_STREAM, 1)[0]


class Cable(NamedTuple):
    """A cable between a port of innet-switch and a worker on the same machine.

    `interface` is the switch's end, as innet-switch takes it after ``-i NUMBER@``. `link` is the
    worker's end, as INNET_LINK takes it.
    """

    interface: str
    link: str


def free_cables(count: int) -> list[Cable]:
    """Return cables made of UDP, between free ports of the loopback interface."""
    ends = [f"127.0.0.1:{port}" for port in free_udp_ports(2 * count)]
    return [udp_cable(*pair) for pair in zip(ends[:count], ends[count:], strict=True)]


def udp_cable(switch: str, host: str) -> Cable:
    """Return the cable between two addresses, IP:PORT."""
    return Cable(f"udp:{switch}/{host}", f"udp:{host}/{switch}")


def shared_cables(count: int, folder: Path) -> list[Cable]:
    """Return cables in shared memory, with their sockets in a folder."""
    return [Cable(*[f"shm:{folder / str(number)}"] * 2) for number in range(1, count + 1)]


def port_options(interfaces: Iterable[str]) -> list[str]:
    """Return innet-switch's options that attach these interfaces to its ports, from 1 on."""
    return [f"-i{number}@{interface}" for number, interface in enumerate(interfaces, start=1)]


def _free_ports(kind: socket.SocketKind, count: int) -> list[int]:
    free: list[int] = []
    with _CHOOSING:
        while len(free) < count:
            port = next(_own_ports(os.getpid()))
            with socket.socket(socket.AF_INET, kind) as probe, contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                free.append(port)
    return free


@cache
def _own_ports(_: int) -> Iterator[int]:
    """Yield ports of this process, each of them once before any comes again.

    As long as the process runs, no other process gets its ports from here. So nobody takes a port
    between our choice and the moment when our caller binds it. Raises InnetError.
    """
    # The kernel assigns ports of this range to sockets that name none. It may be the range of all ports.
    low, high = (int(end) for end in _EPHEMERAL.read_text().split())
    ports = [*range(_LOWEST_PORT, low), *range(max(high + 1, _LOWEST_PORT), 1 << 16)]
    ports = ports or [*range(_LOWEST_PORT, 1 << 16)]
    shares = [ports[start : start + _SHARE] for start in range(0, len(ports), _SHARE)]
    owned: dict[int, int] = {}
    while True:
        for share in random.SystemRandom().sample(shares, len(shares)):
            if share[0] in owned or _claim(share[0], owned):
                yield from share
        if not owned:
            raise InnetError(
                "other processes of innet have taken all ports of this machine: end some of them"
            )


def _claim(share: int, owned: dict[int, int]) -> bool:
    """Claim a share of the ports, unless it is another process's. The claim ends with the process."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0innet-ports-{share}")  # a name without a file, which one socket can have
    except OSError:
        claim.close()
        return False
    owned[share] = claim.detach()  # the descriptor stays open until the process ends
    return True
