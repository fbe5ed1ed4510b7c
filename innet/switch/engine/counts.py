"""Counts and meter rates, as the engine takes and returns them."""

from dataclasses import dataclass


@dataclass(frozen=True)
class MeterRates:
    """A meter's rates per second and bursts, in packets or bytes. Peak is never below committed."""

    committed_rate: int
    committed_burst: int
    peak_rate: int
    peak_burst: int


@dataclass(frozen=True)
class Count:
    """A number of packets and a number of bytes."""

    packets: int
    bytes: int


@dataclass(frozen=True)
class PortCounts:
    """The frames that passed a port."""

    received: Count
    sent: Count
    send_failures: int


@dataclass(frozen=True)
class TableCounts:
    """The number of hits and misses of a table."""

    hits: int
    misses: int
