"""The bytes and frames on a link of an emulated network, for programs that run on one of its hosts.

They are counted where they enter the link, at both of its ends (:mod:`innet.emulation.traffic`). An
emulation's processes see each other's /proc, and through it each other's networks. Interfaces have
unique names.
"""

import contextlib
import os
from functools import cache
from pathlib import Path

from innet.emulation.launch import SWITCH_INTERFACE
from innet.emulation.traffic import LinkCounters, sent_by
from innet.errors import InnetError


def own_counters() -> LinkCounters:
    """Return the traffic of this host's link since it was made."""
    return link(os.environ["GLOO_SOCKET_IFNAME"], os.environ[SWITCH_INTERFACE])


def own_link() -> tuple[int, int]:
    """Return the bytes that this host has sent up its link and received."""
    counts = own_counters()
    return counts.up_bytes, counts.down_bytes


def link(lower: str, upper: str) -> LinkCounters:
    """Return the traffic of the link between these interfaces. Raises InnetError."""
    return LinkCounters(*(count for name in (lower, upper) for count in sent_by(_user(name))[name]))


def switch_processor_time() -> float:
    """Return the processor time, in seconds, of the processes in the network of this host's switch."""
    network = _network_of(_user(os.environ[SWITCH_INTERFACE]))
    total = 0
    for each in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            if _network_of(each.name) == network:
                total += sum(
                    int(path.read_text().split()[0]) for path in each.glob("task/*/schedstat")
                )
    return total / 1e9


@cache
def _user(interface: str) -> int:
    """Return the oldest process whose network has an interface. Raises InnetError."""
    for process in sorted(int(each.name) for each in Path("/proc").glob("[0-9]*")):
        with contextlib.suppress(OSError):
            lines = Path(f"/proc/{process}/net/dev").read_text().splitlines()
            if any(line.partition(":")[0].strip() == interface for line in lines):
                return process
    raise InnetError(f"no network of this emulation has the interface {interface}")


def _network_of(process: int | str) -> int:
    """Return the number of a process's network. Raises OSError."""
    return Path(f"/proc/{process}/ns/net").stat().st_ino
