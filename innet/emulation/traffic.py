"""The links' counters in the kernel, read in the namespace of each interface.

A link is counted where frames enter it, at the queues that cap it. Only these know how many frames a
super-frame is on the link.
"""

import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from innet.emulation.namespaces import network_of
from innet.emulation.plan import PlannedLink
from innet.machine import netlink

_SAMPLE_INTERVAL_S = 0.1


@dataclass(frozen=True)
class LinkCounters:
    """The traffic of a link since it was made: whole Ethernet frames, without their checksums."""

    up_bytes: int
    up_frames: int
    down_bytes: int
    down_frames: int


@dataclass(frozen=True)
class TrafficSeries:
    """Traffic over time: seconds since the beginning, and the bytes of every link at each of them.

    Links are known by the interface of their child.
    """

    times: list[float] = field(default_factory=list)
    up_bytes: dict[str, list[int]] = field(default_factory=dict)
    down_bytes: dict[str, list[int]] = field(default_factory=dict)


class TrafficReader:
    """A reader of links' counters. `pids` maps each node to the id of a process in its namespace."""

    def __init__(self, links: Sequence[PlannedLink], pids: Mapping[str, int]) -> None:
        self._links = links
        self._pids = pids

    def read(self) -> dict[str, LinkCounters]:
        """Return every link's traffic, sent (up) and received (down), by the interface of its child."""
        # Each namespace is read only once, because that of a switch has an interface for every port.
        nodes = {end.node for link in self._links for end in (link.child, link.parent)}
        sent = {node: sent_by(self._pids[node]) for node in nodes}
        return {
            link.child.interface: LinkCounters(
                *(
                    count
                    for end in (link.child, link.parent)
                    for count in sent[end.node][end.interface]
                )
            )
            for link in self._links
        }


class TrafficSampler:
    """A context in which a thread reads the links' counters many times a second."""

    def __init__(self, read: Callable[[], Mapping[str, LinkCounters]]) -> None:
        self.samples = TrafficSeries()
        self._read = read
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._done.set()
        self._thread.join()

    def _sample(self) -> None:
        began = time.monotonic()
        finished = False
        while not finished:
            finished = self._done.wait(_SAMPLE_INTERVAL_S)  # sample once more at the end
            now, read = time.monotonic() - began, self._read()
            self.samples.times.append(now)
            for interface, traffic in read.items():
                self.samples.up_bytes.setdefault(interface, []).append(traffic.up_bytes)
                self.samples.down_bytes.setdefault(interface, []).append(traffic.down_bytes)


def sent_by(process: int) -> dict[str, tuple[int, int]]:
    """Return the bytes and frames that each interface in a process's network namespace has sent.

    They are those of whole Ethernet frames on the link. Where a link has no cap, a super-frame counts
    as one frame, with one header. Of a super-frame that comes from a switch, the kernel knows the bytes
    on the link, but not the frames: it counts as one frame. Raises OSError.
    """
    found = {}
    for line in Path(f"/proc/{process}/net/dev").read_text().splitlines()[2:]:
        name, _, numbers = line.partition(":")
        columns = numbers.split()
        found[name.strip()] = int(columns[8]), int(columns[9])
    with network_of(process):
        names = dict(socket.if_nameindex())
        for index, sent, frames in netlink.passed_by_queues():
            found[names[index]] = sent, max(frames, found[names[index]][1])
    return found
