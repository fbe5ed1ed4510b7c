"""Packets as numpy records: one array element per packet, one operation for a whole batch."""

from functools import cache

import numpy as np
import numpy.typing as npt

from innet.wire.frames import ENCAPSULATION_BYTES, ETHERNET_BYTES, TYPE_OF_SERVICE
from innet.wire.layout import (
    HEADER,
    HEADER_BYTES,
    LANE_BYTES,
    OPERATION_BITS,
    VERSION,
    Ecn,
    Flag,
    Kind,
)

Records = npt.NDArray[np.void]

_OPERATION = np.uint8((1 << OPERATION_BITS) - 1)


@cache
def packet_dtype(lanes: int, encapsulation: int = 0) -> np.dtype[np.void]:
    """Return the layout of one packet: `encapsulation` opaque bytes, the header, and `lanes` lanes.

    All integers are big-endian, and lanes are signed. With ``lanes=0`` the packet is a bare header.
    Kind and operation share the byte `call`; see :func:`get_field`.
    """
    fields: list[tuple[str, object] | tuple[str, object, tuple[int]]] = []
    if encapsulation:
        fields.append(("encapsulation", f"V{encapsulation}"))
    fields += [
        ("call", ">u1") if field.name == "kind" else (field.name, f">u{field.bits // 8}")
        for field in HEADER
        if field.name != "operation"
    ]
    if lanes:
        fields.append(("lanes", ">i4", (lanes,)))
    return np.dtype(fields)


def least_mtu(lanes: int) -> int:
    """Return the smallest MTU in bytes with which a packet crosses a network in one frame."""
    return ENCAPSULATION_BYTES - ETHERNET_BYTES + packet_bytes(lanes)


def packet_bytes(lanes: int) -> int:
    """Return the size of the UDP payload of a packet with `lanes` lanes."""
    return HEADER_BYTES + lanes * LANE_BYTES


def blank(count: int, lanes: int, kind: Kind, encapsulation: bytes = b"") -> Records:
    """Return `count` packets of one kind, with every other header field zero, ready to be filled.

    A contribution is of one worker.
    """
    records: Records = np.zeros(count, packet_dtype(lanes, len(encapsulation)))
    if encapsulation:
        records["encapsulation"] = np.void(encapsulation)
    records["version"] = VERSION
    set_field(records, "kind", kind)
    if kind == Kind.CONTRIBUTION:
        records["count"] = 1
    return records


def get_field(records: Records, name: str) -> npt.NDArray[np.unsignedinteger]:
    """Return a field of the header of each packet, (packets,), also one that shares its byte."""
    match name:
        case "kind":
            return np.asarray(records["call"] >> OPERATION_BITS)
        case "operation":
            return np.asarray(records["call"] & _OPERATION)
    return np.asarray(records[name])


def set_field(records: Records, name: str, value: npt.ArrayLike) -> None:
    """Set a field of the header of each packet, to one value or to one for each packet."""
    match name:
        case "kind":
            records["call"] = (
                records["call"] & _OPERATION | np.asarray(value, np.uint8) << OPERATION_BITS
            )
        case "operation":
            records["call"] = records["call"] & ~_OPERATION | np.asarray(value, np.uint8)
        case _:
            records[name] = value


def bare(records: Records) -> Records:
    """Return copies of packets without their lanes. The check, and the lengths in IP and UDP, stay."""
    before = records.dtype.fields["version"][1] if records.dtype.fields else 0
    dtype = packet_dtype(0, before)
    rows = np.ascontiguousarray(records).view(np.uint8).reshape(len(records), -1)
    return np.ascontiguousarray(rows[:, : dtype.itemsize]).view(dtype).reshape(-1)


def marked(records: Records) -> npt.NDArray[np.bool_]:
    """Return which packets, or contributions in them, found a long queue on their way, (packets,)."""
    flagged: npt.NDArray[np.bool_] = records["flags"] & Flag.MARKED != 0
    if "encapsulation" not in (records.dtype.names or ()):
        return flagged
    frames = np.ascontiguousarray(records).view(np.uint8).reshape(len(records), -1)
    return np.asarray(flagged | (frames[:, TYPE_OF_SERVICE] % 4 == Ecn.CONGESTED), np.bool_)
