"""Packets as numpy records: one array element per packet, one operation for a whole batch."""

from functools import cache

import numpy as np
import numpy.typing as npt

from innet.wire.frames import TYPE_OF_SERVICE
from innet.wire.layout import HEADER, HEADER_BYTES, LANE_BYTES, VERSION, Ecn, Flag, Kind

Records = npt.NDArray[np.void]


@cache
def packet_dtype(lanes: int, encapsulation: int = 0) -> np.dtype[np.void]:
    """Return the layout of one packet: `encapsulation` opaque bytes, the header, and `lanes` lanes.

    All integers are big-endian, and lanes are signed. With ``lanes=0`` the packet is a bare header.
    """
    fields: list[tuple[str, object] | tuple[str, object, tuple[int]]] = []
    if encapsulation:
        fields.append(("encapsulation", f"V{encapsulation}"))
    fields += [(field.name, f">u{field.bits // 8}") for field in HEADER]
    if lanes:
        fields.append(("lanes", ">i4", (lanes,)))
    return np.dtype(fields)


def packet_bytes(lanes: int) -> int:
    """Return the size of the UDP payload of a packet with `lanes` lanes."""
    return HEADER_BYTES + lanes * LANE_BYTES


def blank(count: int, lanes: int, kind: Kind, encapsulation: bytes = b"") -> Records:
    """Return `count` packets of one kind, with every other header field zero, ready to be filled."""
    records: Records = np.zeros(count, packet_dtype(lanes, len(encapsulation)))
    if encapsulation:
        records["encapsulation"] = np.void(encapsulation)
    records["version"] = VERSION
    records["kind"] = kind
    return records


def bare(records: Records) -> Records:
    """Return copies of packets without their lanes. The check, and lengths in front, stay as they are."""
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
