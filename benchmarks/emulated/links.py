"""The bytes and frames on a link of an emulated network, for programs that run on one of its hosts.

They are counted where they enter the link, at both of its ends (:mod:`innet.emulation.traffic`). An
emulation's processes see each other's /proc, and through it each other's networks.
"""

import contextlib
import os
import socket
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from innet.emulation.namespaces import network_of
from innet.emulation.traffic import LinkCounters, sent_by
from innet.errors import InnetError
from innet.machine import netlink


def own_counters() -> LinkCounters:
    """Return the traffic of this host's link since it was made."""
    return link(os.environ["GLOO_SOCKET_IFNAME"])


def own_link() -> tuple[int, int]:
    """Return the bytes that this host has sent up its link and received."""
    counts = own_counters()
    return counts.up_bytes, counts.down_bytes


def link(lower: str) -> LinkCounters:
    """Return the traffic of the link whose lower end is this interface. Raises InnetError."""
    ends = _ends(lower)
    return LinkCounters(*(count for process, name in ends for count in sent_by(process)[name]))


def processor_time_above(lower: str) -> float:
    """Return the processor time, in seconds, of the processes in the network at a link's upper end."""
    (_, _), (process, _) = _ends(lower)
    network = _network_of(process)
    total = 0
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if _network_of(each.name) == network:
                total += sum(
                    int(path.read_text().split()[0]) for path in each.glob("task/*/schedstat")
                )
    return total / 1e9


@cache
def _ends(lower: str) -> tuple[tuple[int, str], tuple[int, str]]:
    """Return both ends of a link: the interface, and a process that uses its network."""
    networks = [*_networks()]
    for process, interfaces in networks:
        for index, (name, far) in interfaces.items():
            if name != lower:
                continue
            for other, its_interfaces in networks:
                upper, back = its_interfaces.get(far, ("", 0))
                if back == index:
                    return (process, lower), (other, upper)
    raise InnetError(f"no network of this emulation has the interface {lower} and its other end")


def _networks() -> Iterator[tuple[int, dict[int, tuple[str, int]]]]:
    """Yield the oldest process of each network, and its interfaces' names and other ends, by index."""
    seen = set()
    for process in sorted(int(each.name) for each in Path("/proc").glob("[0-9]*")):
        with contextlib.suppress(OSError):
            network = _network_of(process)
            if network in seen:
                continue
            seen.add(network)
            with network_of(process):
                names = dict(socket.if_nameindex())
                found = {each.index: (names[each.index], each.below) for each in netlink.links()}
            yield process, found


def _network_of(process: int | str) -> int:
    """Return the number of a process's network. Raises OSError."""
    return Path(f"/proc/{process}/ns/net").stat().st_ino
