"""A rack of network namespaces: one for a switch, one for each worker, joined by veth pairs.

::

    worker 1                  switch                  worker 2
    eth0 10.0.0.1/8 ─────── eth1  eth2 ─────── eth0 10.0.0.2/8
"""

import contextlib
import ctypes
import fcntl
import secrets
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass

_SIOCETHTOOL, _ETHTOOL_STXCSUM = 0x8946, 0x17


@dataclass(frozen=True)
class Rack:
    """The namespaces' names. The switch's eth1 leads to the first worker, and so on."""

    switch: str
    workers: list[str]


def unavailable() -> str | None:
    """Return why racks cannot be made here, or None if they can."""
    if not shutil.which("ip"):
        return "network namespaces need `ip` (iproute2) on the PATH"
    attempt = ["unshare", "--net", "ip", "link", "add", "type", "veth"]
    if subprocess.run(attempt, capture_output=True, check=False).returncode:
        return "network namespaces need root, or CAP_SYS_ADMIN and CAP_NET_ADMIN"
    return None


@contextlib.contextmanager
def rack(workers: int, *, offloads: bool = False) -> Iterator[Rack]:
    """Make a rack, and remove it at the end. The caller has to stop the processes in it before that.

    With `offloads`, workers send super-frames and partial checksums, as to a network card.
    """
    name = f"innet-{secrets.token_hex(4)}"
    made = Rack(name, [f"{name}-{number}" for number in range(1, workers + 1)])
    with contextlib.ExitStack() as stack:
        for namespace in (made.switch, *made.workers):
            _ip("netns", "add", namespace)
            stack.callback(_ip, "netns", "delete", namespace)
        for number, worker in enumerate(made.workers, start=1):
            _connect(made.switch, worker, number, offloads=offloads)
        yield made


def inside(namespace: str) -> list[str]:
    """Return the command prefix that runs a command in a namespace."""
    return ["ip", "netns", "exec", namespace]


def _connect(switch: str, worker: str, number: int, *, offloads: bool) -> None:
    port = f"eth{number}"
    peer = ("peer", "name", "eth0", "netns", worker)
    _ip("-n", switch, "link", "add", port, "type", "veth", *peer)
    _ip("-n", worker, "address", "add", f"10.0.0.{number}/8", "dev", "eth0")
    # On a veth, the kernel leaves checksums empty and segments uncut, because the kernel at the other
    # end accepts such packets. Most switches that see raw frames do not accept them.
    for namespace, interface in () if offloads else ((switch, port), (worker, "eth0")):
        this_file = [sys.executable, __file__, interface]
        subprocess.run([*inside(namespace), *this_file], check=True)
    for namespace, interface in ((switch, port), (worker, "eth0")):
        # Without an IPv6 address no unrequested packets are sent.
        _ip("-n", namespace, "link", "set", interface, "addrgenmode", "none", "up")


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def turn_off_checksum_offload(interface: str) -> None:
    """Do the same as ``ethtool -K INTERFACE tx off``, which turns off segmentation offloads as well."""
    command = ctypes.create_string_buffer(struct.pack("=II", _ETHTOOL_STXCSUM, 0))
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(command))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, request)


if __name__ == "__main__":
    turn_off_checksum_offload(sys.argv[1])
