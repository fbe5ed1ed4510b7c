"""The network of the fallback, which should not fail together with the switch."""

import fcntl
import logging
import socket
import struct
from collections.abc import Mapping

_SIOCGIFADDR = 0x8915
_ANY_PORT = 9

_log = logging.getLogger("innet")


def warn_of_shared_network(own_ip: str, environment: Mapping[str, str]) -> None:
    """Log a warning if PyTorch's process group goes through the switch.

    `own_ip` is the worker's address in the network of the switch.
    """
    if shared := through_switch(own_ip, environment):
        _log.warning(
            "the fallback goes through the switch (%s): while the switch is down, the workers cannot "
            "sum without it; let MASTER_ADDR and GLOO_SOCKET_IFNAME name another network",
            ", ".join(shared),
        )


def through_switch(own_ip: str, environment: Mapping[str, str]) -> list[str]:
    """Return the settings, as ``NAME=VALUE``, that lead PyTorch's process group through the switch."""
    found = []
    interfaces = environment.get("GLOO_SOCKET_IFNAME", "")
    if own_ip in map(_address_at, interfaces.split(",")):
        found.append(f"GLOO_SOCKET_IFNAME={interfaces}")
    master = environment.get("MASTER_ADDR", "")
    if master and _address_towards(master) == own_ip:
        found.append(f"MASTER_ADDR={master}")
    return found


def _address_at(interface: str) -> str | None:
    """Return the IPv4 address of a network interface, or None if it has none."""
    request = struct.pack("16s24x", interface.encode()[:15])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            return socket.inet_ntoa(fcntl.ioctl(sock, _SIOCGIFADDR, request)[20:24])
        except OSError:
            return None


def _address_towards(host: str) -> str | None:
    """Return the IPv4 address that packets to a host leave from, or None if there is no route."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        try:
            sock.connect((host, _ANY_PORT))  # sends nothing: the kernel only looks up a route
        except OSError:
            return None
        address: str = sock.getsockname()[0]
        return address
