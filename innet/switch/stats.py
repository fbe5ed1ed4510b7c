"""A switch's counts and the state of its ports, collected on request."""

import socket
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.engine import Engine
from innet.switch.engine.counts import PortCounts, TableCounts
from innet.switch.link_monitor import LinkMonitor
from innet.switch.ports import Port

_SO_MEMINFO, _WORDS, _DROPS = 55, 9, 8  # include/uapi/linux/sock_diag.h


@dataclass(frozen=True)
class PortStats:
    """A port with its counts, and the number of frames for which the kernel had no room."""

    number: int
    spec: str
    counts: PortCounts
    overruns: int
    is_up: bool


@dataclass(frozen=True)
class Stats:
    """A switch's numbers at one moment. Without a program all of them are empty."""

    ports: tuple[PortStats, ...]
    drops: Mapping[str, int]
    tables: Mapping[str, TableCounts]
    digest: str
    cookie: int

    @classmethod
    def of(
        cls,
        engine: Engine | None,
        ports: Sequence[Port],
        config: p4rt.ForwardingPipelineConfig | None,
        links: LinkMonitor,
    ) -> "Stats":
        """Return the counts of an engine and its ports. The digest is that of the program's JSON."""
        if not engine:
            return cls((), {}, {}, "", 0)
        return cls(
            tuple(
                PortStats(
                    port.number,
                    port.spec,
                    engine.port_counts(port.number),
                    _overruns(engine, port),
                    links.is_up(port),
                )
                for port in ports
            ),
            engine.drops(),
            {
                table.name: engine.entries.table_counts(table.name)
                for table in engine.program.tables
            },
            engine.digest,
            config.cookie.cookie if config else 0,
        )


def _overruns(engine: Engine, port: Port) -> int:
    """Return the number of frames for which a port's sockets had no room."""
    info = port.socket.getsockopt(socket.SOL_SOCKET, _SO_MEMINFO, 4 * _WORDS)
    dropped = int(struct.unpack(f"{_WORDS}I", info)[_DROPS])
    if not port.xdp:
        return dropped
    with engine.held():  # the packet loop may replace the sockets
        return dropped + port.xdp.lost()
