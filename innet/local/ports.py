"""Free ports of the loopback interface, and cables made of UDP between them."""

import contextlib
import random
import socket
from collections.abc import Iterable
from pathlib import Path
from typing import NamedTuple

_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT = 10_000


def free_udp_ports(count: int) -> list[int]:
    """Return UDP ports of the loopback interface that are free at the moment."""
    return _free_ports(socket.SOCK_DGRAM, count)


def free_tcp_port() -> int:
    """Return a TCP port of the loopback interface that is free at the moment."""
    return _free_ports(socket.SOCK_STREAM, 1)[0]


class Cable(NamedTuple):
    """A cable made of UDP. Both ends are addresses, IP:PORT."""

    switch: str
    host: str

    @property
    def interface(self) -> str:
        """Return the switch's end, as innet-switch takes it after ``-i NUMBER@``."""
        return f"udp:{self.switch}/{self.host}"

    @property
    def link(self) -> str:
        """Return the worker's end, as INNET_LINK takes it."""
        return f"udp:{self.host}/{self.switch}"


def free_cables(count: int) -> list[Cable]:
    """Return cables between free ports of the loopback interface."""
    ends = [f"127.0.0.1:{port}" for port in free_udp_ports(2 * count)]
    return [Cable(*pair) for pair in zip(ends[:count], ends[count:], strict=True)]


def port_options(interfaces: Iterable[str]) -> list[str]:
    """Return innet-switch's options that attach these interfaces to its ports, from 1 on."""
    return [f"-i{number}@{interface}" for number, interface in enumerate(interfaces, start=1)]


def _free_ports(kind: socket.SocketKind, count: int) -> list[int]:
    # Avoid the range from which the kernel assigns ports to sockets that name none. Otherwise
    # another socket could get the port before our caller binds it.
    low, high = (int(end) for end in _EPHEMERAL.read_text().split())
    candidates = [*range(_LOWEST_PORT, low), *range(high + 1, 1 << 16)]
    free: list[int] = []
    for port in random.SystemRandom().sample(candidates, len(candidates)):
        if len(free) == count:
            break
        with socket.socket(socket.AF_INET, kind) as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            free.append(port)
    return free
