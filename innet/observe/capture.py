"""The capture of innet packets from an interface or a file, through Scapy, for `innet capture`."""

from collections.abc import Callable, Iterator
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import numpy as np
from scapy.all import conf, sniff
from scapy.error import Scapy_Exception
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from innet.errors import UsageError
from innet.wire.capture import Innet
from innet.wire.check import intact
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.layout import HEADER_BYTES, LANE_BYTES, Kind
from innet.wire.records import packet_dtype

_SOL_PACKET = 263
_ETHERNET_BYTES, _UDP_BYTES = 14, 8
_PACKET_IGNORE_OUTGOING = 23
_FROM_SWITCHES = (Kind.RESULT, Kind.PENDING, Kind.STALE)


def show(
    interface: str | None,
    file: Path | None,
    count: int,
    *,
    full: bool,
    write: Callable[[str], object],
) -> None:
    """Write every innet packet as text, until `count` packets (0: without limit) or Ctrl-C.

    Raises UsageError if the source cannot be opened.
    """
    shown = 0

    def take(packet: Any) -> None:
        nonlocal shown
        for frame in innet_frames(packet):
            if not count or shown < count:
                shown += 1
                write(frame.show(dump=True) if full else describe(frame))

    try:
        source = {"offline": str(file)} if file else {"opened_socket": _listen(str(interface))}
        sniff(**source, prn=take, store=False, stop_filter=lambda _: bool(count) and shown >= count)
    except PermissionError:
        raise UsageError(f"capturing on {interface} needs root: run it with sudo") from None
    except (OSError, ValueError, Scapy_Exception) as problem:
        raise UsageError(f"cannot capture from {interface or file}: {problem}") from None


def _listen(interface: str) -> Any:
    source = conf.L2listen(iface=interface)
    if interface == "lo":  # where each packet would be seen twice, on its way out and in
        source.ins.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    return source


def innet_frames(packet: Any) -> Iterator[Any]:
    """Yield the frames with an innet header: `packet` itself, or the frames in a UDP cable's datagram.

    The kernel shows a batch of datagrams as one: frames of equal size, one after the other.
    """
    if Innet in packet:
        yield packet
    elif UDP in packet and Raw in packet[UDP]:
        rest = bytes(packet[UDP].payload)
        while len(rest) >= ENCAPSULATION_BYTES + HEADER_BYTES:
            frame = Ether(rest)
            if Innet not in frame:
                return
            size = _ETHERNET_BYTES + frame[IP].len
            yield Ether(rest[:size])
            rest = rest[max(size, ENCAPSULATION_BYTES) :]


def describe(frame: Any) -> str:
    """Return a frame as one line of text."""
    ip, udp = frame[IP], frame[UDP]
    verdict = _verdict(frame)
    return f"{ip.src}:{udp.sport} > {ip.dst}:{udp.dport}  {frame[Innet].mysummary()}{verdict}"


def _verdict(frame: Any) -> str:
    if _intact(frame):
        return ""
    # A Tofino sends 0 as check, and the frame does not tell its kind of switch.
    unsealed = not frame[Innet].check and frame[Innet].kind in _FROM_SWITCHES
    return "  CORRUPTED, if the switch seals" if unsealed else "  CORRUPTED"


def _intact(frame: Any) -> bool:
    """Return whether the packet is complete and its check is right."""
    payload = bytes(frame[Innet])[: frame[UDP].len - _UDP_BYTES]
    lanes, rest = divmod(len(payload) - HEADER_BYTES, LANE_BYTES)
    if lanes < 0 or rest:
        return False
    packet = np.frombuffer(payload, packet_dtype(lanes))
    return bool(intact(packet, int(IPv4Address(frame[IP].src)), frame[UDP].sport).all())
