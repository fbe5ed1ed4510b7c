"""The packets in a switch's captures, as numpy records."""

import struct
from pathlib import Path

import numpy as np

from innet.wire.check import intact
from innet.wire.frames import ENCAPSULATION_BYTES, SOURCE_IP, SOURCE_PORT
from innet.wire.records import Records, packet_dtype

_FILE_HEADER, _RECORD_HEADER = 24, struct.Struct("=IIII")


def captured(file: Path, lanes: int) -> Records:
    """Return the undamaged innet packets with lanes in a capture, (packets,), in order."""
    content, dtype = file.read_bytes(), packet_dtype(lanes, ENCAPSULATION_BYTES)
    at, frames = _FILE_HEADER, []
    while at + _RECORD_HEADER.size <= len(content):
        *_, size, _ = _RECORD_HEADER.unpack_from(content, at)
        at += _RECORD_HEADER.size
        if size == dtype.itemsize and at + size <= len(content):
            frames.append(content[at : at + size])
        at += size
    records = np.frombuffer(b"".join(frames), dtype)
    return records[intact(records, *senders(records))]


def senders(records: Records) -> tuple[np.ndarray, np.ndarray]:
    """Return the IPv4 addresses and the UDP ports that packets come from, both (packets,)."""
    frames = np.ascontiguousarray(records).view(np.uint8).reshape(len(records), -1)
    ips, ports = (np.ascontiguousarray(frames[:, where]) for where in (SOURCE_IP, SOURCE_PORT))
    return ips.view(">u4")[:, 0], ports.view(">u2")[:, 0]
