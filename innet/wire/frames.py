"""The headers in front of an innet packet on the wire: Ethernet, IPv4, UDP."""

import ipaddress
import struct
from dataclasses import dataclass

from innet.wire.layout import UDP_PORT, Ecn

ETHERNET_BYTES = 14
ENCAPSULATION_BYTES = ETHERNET_BYTES + 20 + 8
USUAL_MTU = 1500
"""The MTU of most Ethernets in bytes, and that of a new veth."""

SOURCE_IP, SOURCE_PORT = slice(26, 30), slice(34, 36)
"""The position of the sender's address and port in these bytes."""

TYPE_OF_SERVICE = 15
"""The position of the byte that ends with :class:`innet.wire.layout.Ecn`."""


@dataclass(frozen=True)
class Address:
    """The source or destination of packets. `mac` and `ip` are text, as people write them."""

    mac: str
    ip: str
    udp_port: int = UDP_PORT

    @property
    def mac_bytes(self) -> bytes:
        """Return the six bytes of the MAC address."""
        return bytes.fromhex(self.mac.replace(":", ""))

    @property
    def ip_bytes(self) -> bytes:
        """Return the four bytes of the IPv4 address."""
        return ipaddress.IPv4Address(self.ip).packed

    @property
    def ip_number(self) -> int:
        """Return the IPv4 address as a number."""
        return int(ipaddress.IPv4Address(self.ip))


def mac_text(raw: bytes) -> str:
    """Return six bytes in the form ``02:00:00:00:00:01``."""
    return ":".join(f"{byte:02x}" for byte in raw)


def encapsulation(
    source: Address, destination: Address, payload_bytes: int, ecn: Ecn = Ecn.CAPABLE
) -> bytes:
    """Return the 42 bytes in front of a UDP payload of `payload_bytes`, without a UDP checksum."""
    total = 28 + payload_bytes
    ip = struct.pack(
        "!BBHHHBBH4s4s", 0x45, ecn, total, 0, 0, 64, 17, 0, source.ip_bytes,
        destination.ip_bytes,
    )  # fmt: skip
    ip = ip[:10] + struct.pack("!H", internet_checksum(ip)) + ip[12:]
    ethernet = destination.mac_bytes + source.mac_bytes + b"\x08\x00"
    udp = struct.pack("!HHHH", source.udp_port, destination.udp_port, 8 + payload_bytes, 0)
    return ethernet + ip + udp


def internet_checksum(data: bytes) -> int:
    """Return RFC 1071's ones'-complement checksum of an even number of bytes."""
    total: int = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF
