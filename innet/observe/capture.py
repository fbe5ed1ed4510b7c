"""The capture of innet packets from an interface or a file, through Scapy, for `innet capture`."""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from ipaddress import IPv4Address
from pathlib import Path
from typing import Any

import numpy as np
from scapy.config import conf
from scapy.error import Scapy_Exception
from scapy.layers.inet import IP, UDP
from scapy.layers.l2 import Ether
from scapy.packet import Raw
from scapy.sendrecv import sniff
from scapy.utils import PcapNgWriter

from innet.errors import InnetError, NotFound, UsageError
from innet.rpc import innet_pb2 as pb
from innet.wire.capture import Innet
from innet.wire.check import intact
from innet.wire.frames import ENCAPSULATION_BYTES, ETHERNET_BYTES
from innet.wire.layout import HEADER_BYTES, LANE_BYTES, Kind
from innet.wire.records import packet_dtype

_SOL_PACKET = 263
_UDP_BYTES = 8
_PACKET_IGNORE_OUTGOING = 23
_FROM_SWITCHES = (Kind.RESULT, Kind.PENDING, Kind.STALE)


@dataclass(frozen=True)
class Selection:
    """The frames to show: those of a job, of a worker, or all."""

    job: int | None = None
    """The job's id in the packets."""
    worker: tuple[str, int] | None = None
    """The worker's IP address and UDP port."""

    def matches(self, frame: Any) -> bool:
        """Return whether a frame with an innet header is selected."""
        if self.job is not None and frame[Innet].job != self.job:
            return False
        ends = ((frame[IP].src, frame[UDP].sport), (frame[IP].dst, frame[UDP].dport))
        return self.worker is None or self.worker in ends


def select(job: pb.Job, rank: int | None) -> Selection:
    """Return the selection of a job's packets, or of the packets of one of its workers.

    Raises NotFound if the job has no worker of this rank, or its address is not known yet.
    """
    if rank is None:
        return Selection(job.id)
    for member in job.members:
        if member.rank == rank and member.HasField("address"):
            return Selection(job.id, (member.address.ip, member.address.udp_port))
    raise NotFound(
        f"the job {job.name!r} has no admitted worker of rank {rank}: `innet job show` lists them"
    )


def show(
    interface: str | None,
    file: Path | None,
    count: int,
    take: Callable[[Any], object],
    selection: Selection = Selection(),
) -> None:
    """Pass selected innet frames to `take`, until it has had `count` of them.

    A `count` of 0 means no limit. Raises UsageError if the source cannot be opened, InnetError if the
    interface goes down, and the errors of `take`.
    """
    shown = 0
    problem: Exception | None = None

    def look(packet: Any) -> None:
        nonlocal shown, problem
        try:
            for frame in innet_frames(packet):
                if selection.matches(frame) and (not count or shown < count):
                    shown += 1
                    take(frame)
        except Exception as found:  # noqa: BLE001 - Scapy would take it for the source's end
            problem = found

    def over(_: Any) -> bool:
        return bool(problem) or (bool(count) and shown >= count)

    try:
        source = {"offline": str(file)} if file else {"opened_socket": _listen(str(interface))}
        sniff(**source, prn=look, store=False, stop_filter=over, chainCC=True)
    except PermissionError:
        raise UsageError(f"capturing on {interface} needs root: run it with sudo") from None
    except (OSError, ValueError, Scapy_Exception) as why:
        raise UsageError(f"cannot capture from {interface or file}: {why}") from None
    if problem:
        raise problem
    if interface and not over(None):  # Scapy has printed a warning only
        raise InnetError(f"the capture from {interface} has ended: is the interface down?")


@contextlib.contextmanager
def written(file: Path) -> Iterator[Callable[[Any], object]]:
    """Return a function that adds frames to a new pcapng file.

    It raises UsageError if the file exists or cannot be written.
    """
    with _writing(file):
        file.touch(exist_ok=False)
        writer = PcapNgWriter(str(file))

    def store(frame: Any) -> None:
        with _writing(file):
            writer.write(frame)

    try:
        yield store
    finally:
        with _writing(file):
            writer.close()


@contextlib.contextmanager
def _writing(file: Path) -> Iterator[None]:
    try:
        yield
    except OSError as problem:
        raise UsageError(f"cannot write {file}: {problem.strerror}") from None


def _listen(interface: str) -> Any:
    source = conf.L2listen(iface=interface)
    if interface == "lo":  # where each packet would be seen twice, on its way out and in
        source.ins.setsockopt(_SOL_PACKET, _PACKET_IGNORE_OUTGOING, 1)
    return source


def innet_frames(packet: Any) -> Iterator[Any]:
    """Yield the frames with an innet header: `packet` itself, or the frames in a UDP cable's datagram.

    The kernel shows a batch of datagrams as one: frames of equal size, one after the other.
    """
    if _is_innet(packet):
        yield packet
    elif UDP in packet and Raw in packet[UDP]:
        rest = bytes(packet[UDP].payload)
        while len(rest) >= ENCAPSULATION_BYTES + HEADER_BYTES:
            frame = Ether(rest)
            if not _is_innet(frame):
                return
            size = ETHERNET_BYTES + frame[IP].len
            inner = Ether(rest[:size])
            if not _is_innet(inner):  # its length is wrong
                return
            inner.time = packet.time
            yield inner
            rest = rest[max(size, ENCAPSULATION_BYTES) :]


def _is_innet(frame: Any) -> bool:
    """Return whether a frame has an innet header in UDP over IPv4, and not in an error of ICMP."""
    return all(layer in frame for layer in (IP, UDP, Innet))


def describe(frame: Any) -> str:
    """Return a frame as one line of text, with the time at which it was captured (UTC)."""
    ip, udp = frame[IP], frame[UDP]
    at = datetime.fromtimestamp(float(frame.time), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
    ends = f"{ip.src}:{udp.sport} > {ip.dst}:{udp.dport}"
    return f"{at}  {ends}  {frame[Innet].mysummary()}{_verdict(frame)}"


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
