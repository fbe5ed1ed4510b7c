"""Showing a live exchange: innet packets from an interface or a capture file, through Scapy."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from scapy.all import conf, sniff
from scapy.error import Scapy_Exception
from scapy.layers.inet import UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw

from innet.errors import UsageError
from innet.wire.capture import Innet
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.layout import HEADER_BYTES

_SOL_PACKET = 263
_PACKET_IGNORE_OUTGOING = 23


def show(
    interface: str | None,
    file: Path | None,
    count: int,
    *,
    full: bool,
    write: Callable[[str], object],
) -> None:
    """Give every innet packet, as text, to `write`, until `count` packets or Ctrl-C.

    Raises UsageError if the source cannot be opened.
    """
    shown = 0

    def take(packet: Any) -> None:
        nonlocal shown
        found = innet_frame(packet)
        if found is not None:
            shown += 1
            write(found.show(dump=True) if full else describe(found))

    try:
        source = {"offline": str(file)} if file else {"opened_socket": _listen(str(interface))}
        sniff(**source, prn=take, store=False, stop_filter=lambda _: bool(count) and shown >= count)
    except PermissionError:
        raise UsageError(f"capturing on {interface} needs root") from None
    except (OSError, ValueError, Scapy_Exception) as problem:
        raise UsageError(f"cannot capture from {interface or file}: {problem}") from None


def _listen(interface: str) -> Any:
    source = conf.L2listen(iface=interface)
    if interface == "lo":  # where everything would be seen twice, on its way out and in
        source.ins.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    return source


def innet_frame(packet: Any) -> Any:
    """The frame with an innet header in `packet`: itself, or what a cable made of UDP carries."""
    if Innet in packet:
        return packet
    if UDP in packet and Raw in packet[UDP]:
        inside = bytes(packet[UDP].payload)
        if len(inside) >= ENCAPSULATION_BYTES + HEADER_BYTES:
            frame = Ether(inside)
            return frame if Innet in frame else None
    return None


def describe(frame: Any) -> str:
    """A frame in one line."""
    ip = frame.payload
    return f"{ip.src}:{frame[UDP].sport} > {ip.dst}:{frame[UDP].dport}  {frame[Innet].mysummary()}"
