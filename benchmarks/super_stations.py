"""Workers of :mod:`benchmarks.switch` that send and receive super-frames (``super_stations.c``)."""

import ctypes
import socket
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import numpy as np

from innet.errors import InnetError
from innet.machine.sockets import UDP_SEGMENT, enlarge_buffers, join_datagrams
from innet.native.compiler import compile_library
from innet.wire.batch import word_sums
from innet.wire.check import bases, weights
from innet.wire.frames import ENCAPSULATION_BYTES, Address
from innet.wire.layout import HEADER_BYTES, LANE_BYTES
from innet.wire.records import Records, packet_dtype

_MOST_BYTES = 65_000
_number, _pointer = ctypes.c_uint64, ctypes.c_void_p


class _Station(ctypes.Structure):
    _fields_ = [
        ("socket", ctypes.c_int64), ("packets", _pointer), ("sums", _pointer), ("answers", _number),
    ]  # fmt: skip


class _Stations(ctypes.Structure):
    _fields_ = [
        ("stations", _pointer),
        *((name, _number) for name in ("count", "window", "burst", "packet_bytes")),
        *((name, _number) for name in ("sequence_at", "check_at", "weight")),
        ("seconds", ctypes.c_double), ("sent", _number), ("took", ctypes.c_double),
    ]  # fmt: skip


class SuperStation:
    """A worker in this network namespace, whose eth0 gets the worker's address."""

    def __init__(self, own: Address, service: Address, records: Records) -> None:
        for command in (
            f"link set eth0 address {own.mac}",
            f"neigh replace {service.ip} lladdr {service.mac} dev eth0",
        ):
            subprocess.run(["ip", *command.split()], check=True)
        frames = records.view(np.uint8).reshape(len(records), -1)
        self.packets = np.ascontiguousarray(frames[:, ENCAPSULATION_BYTES:])
        self.dtype = packet_dtype((self.packets.shape[1] - HEADER_BYTES) // LANE_BYTES)
        words = weights(self.dtype.itemsize // 4)
        self.sums = word_sums(self.packets.view(self.dtype)[:, 0], words)
        self.sums = np.ascontiguousarray(self.sums + bases(own.ip_number, own.udp_port), np.uint64)
        self.weight = int(words[self.place("sequence") // 4])
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        enlarge_buffers(self.socket)
        join_datagrams(self.socket)
        self.socket.setsockopt(socket.SOL_UDP, UDP_SEGMENT, self.packets.shape[1])
        self.socket.bind((own.ip, own.udp_port))
        self.socket.connect((service.ip, service.udp_port))

    def place(self, field: str) -> int:
        """Return where a field begins in a packet."""
        fields = self.dtype.fields
        return int(fields[field][1]) if fields else 0

    def close(self) -> None:
        """Close the socket."""
        self.socket.close()


def exchange(stations: Sequence[SuperStation], window: int, seconds: float) -> tuple[int, float]:
    """Let stations send contributions. Returns how many each has sent, and the seconds.

    Raises InnetError if something is lost.
    """
    first = stations[0]
    size = first.packets.shape[1]
    half = window // 2
    bursts = -(-half * size // _MOST_BYTES)
    natives = (_Station * len(stations))(
        *(
            _Station(each.socket.fileno(), each.packets.ctypes.data, each.sums.ctypes.data, 0)
            for each in stations
        )
    )
    everything = _Stations(
        ctypes.addressof(natives), len(stations), window, -(-half // bursts), size,
        first.place("sequence"), first.place("check"), first.weight, seconds,
    )  # fmt: skip
    if not _library().stations_run(ctypes.byref(everything)):
        raise InnetError("answers are missing")
    return everything.sent, everything.took


@cache
def _library() -> ctypes.CDLL:
    source = Path(__file__).with_suffix(".c").read_bytes()
    flags = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-Wno-parentheses", "-fPIC")
    library = ctypes.CDLL(
        str(compile_library(flags, [source], lambda: {"super_stations.c": source}))
    )
    library.stations_run.argtypes = (ctypes.POINTER(_Stations),)
    library.stations_run.restype = ctypes.c_bool
    return library
