"""The Scapy layer, for people who read packets. Its fields come from :mod:`innet.wire.layout`."""

from typing import Any

from scapy.fields import (
    BitEnumField,
    ByteField,
    FieldListField,
    FlagsField,
    IntField,
    ShortField,
    SignedIntField,
    XIntField,
    XLongField,
)
from scapy.layers.inet import UDP
from scapy.packet import Packet, bind_layers

from innet.wire.layout import HEADER, UDP_PORT, VERSION, WITH_LANES, Flag, Kind, Operation

_ENUMS = {"kind": Kind, "operation": Operation}
_BY_BITS = {8: ByteField, 16: ShortField, 32: IntField}


def _scapy_field(name: str, bits: int) -> Any:
    if name in _ENUMS:
        return BitEnumField(name, 0, bits, {int(member): member.name for member in _ENUMS[name]})
    if name == "flags":
        return FlagsField(name, 0, bits, [member.name for member in Flag])
    if name in ("workers", "check"):
        return XLongField(name, 0) if bits == 64 else XIntField(name, 0)
    return _BY_BITS[bits](name, VERSION if name == "version" else 0)


class Lanes(Packet):  # type: ignore[misc]
    """The chunk: as many signed 32-bit integers as the packet holds."""

    name = "innet lanes"
    fields_desc = [  # noqa: RUF012 - scapy's way of declaring a layer
        FieldListField("lanes", [], SignedIntField("lane", 0), length_from=lambda _: None)
    ]

    def do_dissect(self, s: bytes) -> bytes:
        """Take whole lanes. Remaining bytes are padding."""
        whole = len(s) - len(s) % 4
        self.setfieldval(
            "lanes", [int.from_bytes(s[i : i + 4], "big", signed=True) for i in range(0, whole, 4)]
        )
        return s[whole:]


class Innet(Packet):  # type: ignore[misc]
    """The innet header."""

    name = "innet"
    fields_desc = [_scapy_field(field.name, field.bits) for field in HEADER]  # noqa: RUF012

    def guess_payload_class(self, payload: bytes) -> Any:
        """Return the class of the payload: lanes, if packets of its kind may have any."""
        if self.kind in WITH_LANES:
            return Lanes
        return super().guess_payload_class(payload)

    def mysummary(self) -> str:
        """Return one line with the packet's main fields."""
        return str(
            self.sprintf(
                "innet %Innet.kind% %Innet.operation% job %Innet.job% term %Innet.term% "
                "slot %Innet.slot% seq %Innet.sequence% workers %Innet.workers%"
            )
            + (self.sprintf(" %Innet.flags%") if self.flags else "")
        )


bind_layers(UDP, Innet, dport=UDP_PORT)
bind_layers(UDP, Innet, sport=UDP_PORT)
# Scapy takes the first layer that fits either port. A worker's port may be that of another protocol, so
# innet's layer goes to the front.
UDP.payload_guess = [*UDP.payload_guess[-2:], *UDP.payload_guess[:-2]]
