"""Super-frames for tests: how the kernel cuts and joins them, and how a switch does. Needs root.

Run in a network namespace of its own (``unshare --net``): :func:`connect` makes pairs of interfaces.
"""

import contextlib
import ctypes
import fcntl
import random
import socket
import struct
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass, replace

from scapy.layers.inet import IP, TCP, UDP, IPOption_RR
from scapy.layers.inet6 import IPv6, IPv6ExtHdrDestOpt
from scapy.layers.l2 import Dot1AD, Dot1Q, Ether
from scapy.packet import Raw

SOL_PACKET, AUXDATA, VNET_HDR, IGNORE_OUTGOING = 263, 8, 15, 23
DESCRIPTION = struct.Struct("<BBHHHH")
NEEDS_CHECKSUM = 1
NO_SUPER_FRAME, TCPV4, TCPV6, UDP_L4, ECN = 0, 1, 4, 5, 0x80
_SIOCETHTOOL, _SET_TX_CHECKSUMS = 0x8946, 0x17
_WITHIN = 60.0
_ABOUT, _TAG_VALID = struct.Struct("=IIIHHHH"), 1 << 4


@dataclass(frozen=True)
class Described:
    """A frame with the kernel's description of it."""

    kind: int
    size: int
    frame: bytes
    flags: int = 0
    start: int = 0
    offset: int = 0
    head: int = 0

    def __bytes__(self) -> bytes:
        numbers = (self.flags, self.kind, self.head, self.size, self.start, self.offset)
        return DESCRIPTION.pack(*numbers) + self.frame

    @classmethod
    def parse(cls, message: bytes) -> "Described":
        """Return the frame in a message of a packet socket."""
        flags, kind, head, size, start, offset = DESCRIPTION.unpack_from(message)
        return cls(kind, size, message[DESCRIPTION.size :], flags, start, offset, head)


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def connect(*pairs: tuple[str, str]) -> None:
    """Make pairs of interfaces on which the kernel itself sends nothing."""
    for near, far in pairs:
        ip("link", "add", near, "type", "veth", "peer", "name", far)
        for end in (near, far):
            ip("link", "set", end, "addrgenmode", "none", "up")


def turn_off_offloads(interface: str) -> None:
    """Let the kernel cut the super-frames that leave an interface, and complete their checksums."""
    command = ctypes.create_string_buffer(struct.pack("=II", _SET_TX_CHECKSUMS, 0))
    request = struct.pack("16sP16x", interface.encode(), ctypes.addressof(command))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        fcntl.ioctl(sock, _SIOCETHTOOL, request)


@contextlib.contextmanager
def tap(interface: str, *, described: bool) -> Iterator[socket.socket]:
    """Open a packet socket on an interface."""
    with socket.socket(socket.AF_PACKET, socket.SOCK_RAW) as sock:
        sock.setsockopt(SOL_PACKET, IGNORE_OUTGOING, 1)
        sock.setsockopt(SOL_PACKET, AUXDATA, 1)
        if described:
            sock.setsockopt(SOL_PACKET, VNET_HDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8 << 20)
        sock.bind((interface, 3))
        sock.settimeout(_WITHIN)
        yield sock


def take(sock: socket.socket, last: bytes, *, described: bool) -> list[bytes]:
    """Return the messages up to one that ends with `last`."""
    found = []
    while True:
        message, control, *_ = sock.recvmsg(70_000, 100)
        if message.endswith(last):
            return found
        found.append(_with_tag(message, control, described=described))


def _with_tag(message: bytes, control: list[tuple[int, int, bytes]], *, described: bool) -> bytes:
    """Return a message with the VLAN tag that the kernel has taken out."""
    for level, kind, data in control:
        status, *_, tci, tpid = _ABOUT.unpack(data)
        if (level, kind) != (SOL_PACKET, AUXDATA) or not status & _TAG_VALID:
            continue
        tag = struct.pack("!HH", tpid, tci)
        if not described:
            return message[:12] + tag + message[12:]
        found = Described.parse(message)
        frame = found.frame[:12] + tag + found.frame[12:]
        start = found.start + len(tag) if found.flags else 0
        head = found.head + len(tag) if found.kind else 0
        return bytes(replace(found, frame=frame, start=start, head=head))
    return message


def segment_checksum(frame: bytes) -> tuple[int, int]:
    """Return where the transport header of a frame begins, and where its checksum is in it."""
    at = 12
    while frame[at : at + 2] in (b"\x81\x00", b"\x88\xa8"):
        at += 4
    at += 2
    if frame[at] >> 4 == 4:
        protocol, start = frame[at + 9], at + 4 * (frame[at] & 15)
    else:
        protocol, start = frame[at + 6], at + 40
        while protocol in (0, 43, 60):
            protocol, start = frame[start], start + 8 * (frame[start + 1] + 1)
    return start, 6 if protocol == 17 else 16


def super_frame(packet, size: int, kind: int) -> Described:
    """Return a packet of scapy as a super-frame with a partial checksum, as a kernel sends it."""
    whole = bytearray(bytes(packet))
    start, offset = segment_checksum(whole)
    network = packet[IP] if IP in packet else packet[IPv6]
    protocol = UDP if UDP in packet else TCP
    length = len(whole) - start
    if IP in packet:
        addresses = socket.inet_aton(network.src) + socket.inet_aton(network.dst)
    else:
        addresses = socket.inet_pton(socket.AF_INET6, network.src)
        addresses += socket.inet_pton(socket.AF_INET6, network.dst)
    pseudo = addresses + struct.pack("!II", length, 17 if protocol is UDP else 6)
    total = sum(struct.unpack(f"!{len(pseudo) // 2}H", pseudo))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    struct.pack_into("!H", whole, start + offset, total)
    head = start + (8 if protocol is UDP else 4 * (whole[start + 12] >> 4))
    return Described(kind, size, bytes(whole), NEEDS_CHECKSUM, start, offset, head)


def cases() -> dict[str, Described]:
    """Return super-frames of all kinds that a kernel can send."""
    chance = random.Random(45)
    ether = Ether(dst="02:00:00:00:00:02", src="02:00:00:00:00:01")
    four, six = (
        IP(src="10.0.0.1", dst="10.0.0.2", id=65_530, flags="DF"),
        IPv6(src="fd00::1", dst="fd00::2"),
    )
    udp, tcp = UDP(sport=4000, dport=5000), TCP(sport=4000, dport=5000, seq=2**32 - 5000, flags="A")
    found = {}

    def add(name: str, packet, payload: int, size: int, kind: int) -> None:
        whole = packet / Raw(chance.randbytes(payload))
        found[name] = super_frame(whole.__class__(bytes(whole)), size, kind)

    for version, network, tcp_kind in (("IPv4", four, TCPV4), ("IPv6", six, TCPV6)):
        for tags, outer in (
            ("", ether),
            (", tagged", ether / Dot1Q(vlan=5, prio=3)),
            (", tagged twice", ether / Dot1AD(vlan=6) / Dot1Q(vlan=5)),
        ):
            udp_head, tcp_head = outer / network / udp, outer / network / tcp
            add(f"UDP, {version}{tags}", udp_head, 20 * 1000, 1000, UDP_L4)
            add(f"UDP, {version}{tags}, a short end", udp_head, 3 * 1440 + 1, 1440, UDP_L4)
            add(f"TCP, {version}{tags}", tcp_head, 20 * 1428, 1428, tcp_kind)
            add(f"TCP, {version}{tags}, a short end", tcp_head, 5000, 1428, tcp_kind)
        add(f"UDP, {version}, as long as can be", ether / network / udp, 65_535 - 48, 1200, UDP_L4)
        add(f"UDP, {version}, small", ether / network / udp, 128 * 3, 3, UDP_L4)
        add(f"UDP, {version}, odd", ether / network / udp, 10 * 77 + 5, 77, UDP_L4)
        for flags in ("FPA", "PA", "CPA", "EA", "CEFA"):
            marked = ether / network / TCP(sport=1, dport=2, seq=7, flags=flags)
            kind = tcp_kind | (ECN if "C" in flags else 0)
            add(f"TCP, {version}, {flags}", marked, 4000, 1000, kind)
        timed = TCP(
            sport=1,
            dport=2,
            seq=7,
            flags="A",
            options=[("Timestamp", (5, 6)), ("NOP", None), ("NOP", None)],
        )
        add(f"TCP, {version}, with options", ether / network / timed, 4000, 1000, tcp_kind)
    recorded = IP(src="10.0.0.1", dst="10.0.0.2", options=[IPOption_RR()])
    add("UDP, IPv4 with options", ether / recorded / udp, 5000, 1000, UDP_L4)
    add("TCP, IPv4 with options", ether / recorded / tcp, 5000, 1000, TCPV4)
    add("UDP, IPv4, may be fragmented", ether / IP(src="10.0.0.1", dst="10.0.0.2", id=9, tos=2) / udp,
        5000, 1000, UDP_L4)  # fmt: skip
    extended = six / IPv6ExtHdrDestOpt()
    add("UDP, IPv6 with an extension", ether / extended / udp, 5000, 1000, UDP_L4)
    return found


# -- what a description means, in Python ----------------------------------------------------------


def checksum(data: bytes) -> int:
    """Return RFC 1071's checksum."""
    padded = data + bytes(len(data) % 2)
    total = sum(struct.unpack(f"!{len(padded) // 2}H", padded))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def completed(found: Described) -> bytes:
    """Return a frame with the checksum that its description asks for."""
    frame = bytearray(found.frame)
    if found.flags & NEEDS_CHECKSUM:
        struct.pack_into(
            "!H", frame, found.start + found.offset, checksum(frame[found.start :]) or 0xFFFF
        )
    return bytes(frame)


def segments(found: Described) -> list[bytes]:
    """Return the frames that a described one stands for. The kernel's own are the same."""
    if not found.kind:
        return [completed(found)]
    assert found.flags & NEEDS_CHECKSUM
    start, offset = segment_checksum(found.frame)
    assert (start, offset) == (found.start, found.offset)
    is_udp = found.kind == UDP_L4
    head = start + (8 if is_udp else 4 * (found.frame[start + 12] >> 4))
    whole, network = len(found.frame), 14
    while found.frame[network - 2 : network] in (b"\x81\x00", b"\x88\xa8"):
        network += 4
    cut = []
    for number, at in enumerate(range(head, whole, found.size)):
        frame = bytearray(found.frame[:head] + found.frame[at : at + found.size])
        if frame[network] >> 4 == 4:
            first = struct.unpack_from("!H", frame, network + 4)[0]
            struct.pack_into(
                "!HH", frame, network + 2, len(frame) - network, (first + number) & 0xFFFF
            )
            struct.pack_into("!H", frame, network + 10, 0)
            struct.pack_into("!H", frame, network + 10, checksum(frame[network:start]))
        else:
            struct.pack_into("!H", frame, network + 4, len(frame) - network - 40)
        if is_udp:
            struct.pack_into("!H", frame, start + 4, len(frame) - start)
        else:
            sequence = struct.unpack_from("!I", frame, start + 4)[0] + at - head
            struct.pack_into("!I", frame, start + 4, sequence & 0xFFFFFFFF)
            frame[start + 13] &= 0xFF if at + found.size >= whole else ~9 & 0xFF
            frame[start + 13] &= ~0x80 & 0xFF if number else 0xFF
        # One's complement: the sum without the old length, and with the new one.
        kept = struct.unpack_from("!H", frame, start + offset)[0]
        parts = struct.pack("!HHH", kept, ~(whole - start) & 0xFFFF, len(frame) - start)
        struct.pack_into("!H", frame, start + offset, ~checksum(parts) & 0xFFFF)
        cut.append(completed(replace(found, kind=0, frame=bytes(frame))))
    return cut


def alike(wanted: bytes, found: bytes) -> bool:
    """Return whether two frames mean the same: a zero checksum of UDP over IPv4 says nothing.

    A switch that sends super-frames may turn this zero into a valid checksum.
    """
    if (
        wanted == found
        or len(wanted) != len(found)
        or wanted[12:14] != b"\x08\x00"
        or wanted[23] != 17
    ):
        return wanted == found
    start, offset = segment_checksum(wanted)
    at = start + offset
    if wanted[at : at + 2] != bytes(2):
        return False
    network = found[26:34] + struct.pack("!HH", 17, len(found) - start)
    valid = checksum(network + found[start:]) == 0
    return valid and found[:at] + bytes(2) + found[at + 2 :] == wanted
