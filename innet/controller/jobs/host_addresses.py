"""The check of workers' addresses: each belongs to a single host, and to one port only.

The switch sends ordinary frames for a worker's MAC address to the worker's port. A worker that
could choose any address would get the frames of others.
"""

import ipaddress
from collections.abc import Iterable, Mapping

from innet.controller.jobs.records import Attachment
from innet.errors import AlreadyExists, UsageError
from innet.wire.frames import Address

_OWN = "a worker sends from the address of its own network interface"


class HostAddresses:
    """The attachments from which workers have last sent a hello, by nonce."""

    def __init__(self) -> None:
        self._latest: dict[int, Attachment] = {}

    def check(
        self,
        nonce: int,
        where: Attachment,
        others: Mapping[int, Attachment],
        reserved: Iterable[Address],
    ) -> None:
        """Raise UsageError if a worker may not have the address from which it sends its hello.

        `others` are the admitted workers, by nonce, at all switches that its frames can reach.
        `reserved` are the addresses of the switches themselves. A host that moves to another port
        takes all of its workers along. So there is no conflict with another worker that has already
        sent a hello from the new port.
        """
        self._latest[nonce] = where
        check_host_address(where.address, reserved)
        for other, admitted in others.items():
            latest = self._latest.get(other, admitted)
            if other != nonce and _clash(where, admitted) and _clash(where, latest):
                raise AlreadyExists(
                    f"the MAC address {where.address.mac} is that of a worker at {_port(admitted)}, "
                    f"and this hello packet came in at {_port(where)}: every network interface needs an "
                    "address of its own"
                )

    def forget(self, nonce: int) -> None:
        """Forget a worker that has left."""
        self._latest.pop(nonce, None)


def check_host_address(address: Address, reserved: Iterable[Address]) -> None:
    """Raise UsageError unless the address is one of a single host and not one of a switch."""
    if not is_host_mac(address.mac):
        raise UsageError(f"the MAC address {address.mac} is not that of a single host: {_OWN}")
    ip = ipaddress.IPv4Address(address.ip)
    if ip.is_unspecified or ip.is_multicast or ip.is_reserved:
        raise UsageError(f"the IP address {address.ip} is not that of a single host: {_OWN}")
    for each in reserved:
        same_mac = address.mac_bytes == each.mac_bytes  # people write them in capitals, too
        if same_mac or address.ip == each.ip:
            said = address.mac if same_mac else address.ip
            raise UsageError(f"the address {said} is that of a switch itself: {_OWN}")


def is_host_mac(mac: str) -> bool:
    """Return whether a MAC address is that of a single host: neither zero nor a group address."""
    raw = bytes.fromhex(mac.replace(":", ""))
    return any(raw) and not raw[0] & 1


def _clash(one: Attachment, other: Attachment) -> bool:
    """Return whether one MAC address would be at two ports."""
    same = one.address.mac == other.address.mac
    return same and (one.switch, one.port) != (other.switch, other.port)


def _port(where: Attachment) -> str:
    return f"port {where.port} of {where.switch!r}"
