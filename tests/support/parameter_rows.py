"""Frames with results of the aggregation program that ask a server above racks for something."""

import struct
from collections.abc import Sequence

import numpy as np

from innet.wire import parameters as wire
from innet.wire.check import seal
from innet.wire.frames import Address, encapsulation
from innet.wire.layout import UDP_PORT, Kind, Operation
from innet.wire.parameters import Ask
from innet.wire.records import blank, packet_bytes, packet_dtype, set_field

LANES = 64
WIDTH = LANES - wire.HEADER_LANES
FRONT = 42
SERVICE = Address("02:00:00:00:00:fe", "10.255.255.254", UDP_PORT)
SERVICE_NUMBER = int.from_bytes(SERVICE.ip_bytes)
RACK = Address("02:00:00:00:00:01", "10.0.0.1", UDP_PORT)
DTYPE = packet_dtype(LANES, FRONT)


def result(
    ask: int, operation: Operation, lanes: Sequence[int], workers: int = 1, **fields: int
) -> bytes:
    """Return a sealed result of so many workers. `fields` are other fields of the packet."""
    front = encapsulation(SERVICE, RACK, packet_bytes(LANES))
    packets = blank(1, LANES, Kind.RESULT, front)
    set_field(packets, "operation", operation)
    packets["flags"], packets["lanes"] = ask, lanes
    packets["count"], packets["job"] = workers, 7
    for name, value in fields.items():
        set_field(packets, name, value)
    seal(packets, SERVICE_NUMBER, SERVICE.udp_port)
    return packets.tobytes()


def lanes(**header: int) -> np.ndarray:
    """Return a chunk's lanes with only this header."""
    made = np.zeros(LANES, np.int32)
    for name, value in header.items():
        made[getattr(wire, name.upper())] = value
    return made


def describe(nonce: int = 5, chunks: int = 3, rule: int = 1, **fields: int) -> bytes:
    """Return a frame that begins a job anew."""
    row = lanes(nonce=nonce, count=chunks, rule=rule)
    row[wire.HEADER_LANES :][:8] = np.frombuffer(struct.pack(">4d", 0.5, 0, 0, 0), ">i4")
    return result(Ask.DESCRIBE, Operation.MAX, row, **fields)


def begin(values: np.ndarray, chunk: int = 0, nonce: int = 5, **fields: int) -> bytes:
    """Return a frame with a row of parameters."""
    row = lanes(nonce=nonce, chunk=chunk)
    row[wire.HEADER_LANES :] = values.astype(np.float32).view(np.int32)
    return result(Ask.BEGIN, Operation.MAX, row, **fields)


def step(
    sums: np.ndarray, number: int = 1, chunk: int = 0, nonce: int = 5, *, rate: float = 1.0,
    scale: int = 0, workers: int = 1, **fields: int,
) -> bytes:  # fmt: skip
    """Return a frame with a row of gradients, summed over so many workers."""
    row = lanes(nonce=nonce, chunk=chunk, step=number, scale=scale)
    row[wire.RATE : wire.RATE + 4] = np.frombuffer(struct.pack(">d", rate), ">u2")
    row *= workers
    row[wire.HEADER_LANES :] = sums
    return result(Ask.STEP, Operation.SUM, row, workers, **fields)


def read(frame: bytes) -> np.void:
    """Return a frame's packet."""
    return np.frombuffer(frame, DTYPE)[0]


def floats(frame: bytes) -> np.ndarray:
    """Return the parameters in a frame."""
    row = read(frame)["lanes"][wire.HEADER_LANES :].astype(np.int32)
    return row.view(np.float32)
