"""The addresses that servers listen at: ``HOST:PORT``, or ``unix:PATH`` for gRPC."""

import ipaddress

from innet.errors import UsageError
from innet.machine.numbers import PORTS, is_port

_LOOPBACK = {"0.0.0.0": "127.0.0.1", "": "127.0.0.1", "[::]": "[::1]"}  # noqa: S104 - not a server's


def check_address(address: str, setting: str) -> None:
    """Raise UsageError unless an address is ``HOST:PORT`` or ``unix:PATH``.

    `setting` is the option or variable that the user gave it in.
    """
    host, colon, port = address.rpartition(":")
    of_host = bool(colon) and is_port(port) and not host.startswith(("http://", "https://"))
    if not (address.startswith("unix:") or of_host):
        raise UsageError(f"{setting} {address!r} is not HOST:PORT, with a port below {PORTS}")


def check_plain_text(address: str, advice: str) -> None:
    """Raise UsageError if other machines can reach a server at this address.

    `advice` tells the user how to turn TLS on.
    """
    if not on_this_machine(address):
        raise UsageError(
            f"{address} can be reached from other machines: {advice}, "
            "or say --insecure to serve everybody in plain text"
        )


def served_address(address: str, port: int) -> str:
    """Return the address of a running server: `address` with the port that it really has."""
    return address if address.startswith("unix:") else f"{address.rpartition(':')[0]}:{port}"


def local_address(address: str) -> str:
    """Return the address at which this machine reaches a server that listens at `address`."""
    host, _, port = address.rpartition(":")
    return f"{_LOOPBACK[host]}:{port}" if host in _LOOPBACK else address


def on_this_machine(address: str) -> bool:
    """Return whether only this machine can reach a server at this address."""
    if address.startswith("unix:"):
        return True
    host = address.rpartition(":")[0].strip("[]")
    try:
        return host == "localhost" or ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
