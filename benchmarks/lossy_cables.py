"""Cables made of UDP that lose packets at random, carried in C (``lossy_cables.c``).

:mod:`innet.local.faults` knows every fault, but handles each packet in Python. Between the switches of a
thousand workers there are too many packets for that, and losses are all that is needed.
"""

import contextlib
import ctypes
import multiprocessing
import socket
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection
from pathlib import Path

from innet.errors import InnetError
from innet.host.link import parse_endpoints
from innet.local.ports import free_udp_ports, udp_cable
from innet.machine.sockets import UDP_GRO, UDP_SEGMENT, enlarge_buffers, join_datagrams
from innet.native.compiler import compile_library

_FLAGS = ("-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC")
_GOLDEN = 0x9E3779B97F4A7C15
_STOPS_WITHIN = 10.0
_spawning = multiprocessing.get_context("spawn")


class Losses(ctypes.Structure):
    """The random losses of losses.h."""

    _fields_ = [
        ("share", ctypes.c_double), ("state", ctypes.c_uint64), ("until", ctypes.c_int64),
        ("lost", ctypes.c_int64),
    ]  # fmt: skip

    @classmethod
    def seeded(cls, share: float, seed: int, stream: int) -> "Losses":
        """Return losses of this share of packets. Every `stream` of a seed is another sequence."""
        return cls(share, (seed << 16 | stream) * _GOLDEN % (1 << 64) | 1)


class _Direction(ctypes.Structure):
    _fields_ = [("source", ctypes.c_int32), ("target", ctypes.c_int32), ("losses", Losses)]


@contextlib.contextmanager
def lossy(links: Sequence[str], seed: int, loss: float) -> Iterator[list[str]]:
    """Lengthen free cables made of UDP by a stretch that loses this share of packets, each way.

    Yield the ends of the longer cables, in the order of `links`. Raises InnetError.
    """
    ours, theirs = _spawning.Pipe()
    process = _spawning.Process(target=_carry, args=(theirs, links, seed, loss), daemon=True)
    process.start()
    theirs.close()
    try:
        try:
            ends: list[str] = ours.recv()
        except EOFError:
            raise InnetError("the process that carries the packets has failed") from None
        yield ends
    finally:
        ours.close()  # this tells the process to end
        process.join(_STOPS_WITHIN)
        process.kill()


def _carry(control: Connection, links: Sequence[str], seed: int, loss: float) -> None:
    source = Path(__file__).with_suffix(".c")
    sources = {each.name: each.read_bytes() for each in (source, source.with_name("losses.h"))}
    constants = {"UDP_GRO": UDP_GRO, "UDP_SEGMENT": UDP_SEGMENT}
    path = compile_library(_FLAGS, sources.values(), lambda: sources, constants, ["-lm"])
    library = ctypes.CDLL(str(path))
    with contextlib.ExitStack() as stack:
        directions: list[_Direction] = []
        ends = []
        for link, port in zip(links, free_udp_ports(len(links)), strict=True):
            inner = stack.enter_context(_connected(("127.0.0.1", 0), ("127.0.0.1", port)))
            outer = stack.enter_context(_connected(*parse_endpoints(link)))
            here = f"127.0.0.1:{inner.getsockname()[1]}"
            ends.append(udp_cable(f"127.0.0.1:{port}", here).interface)
            for way in ((inner, outer), (outer, inner)):
                losses = Losses.seeded(loss, seed, len(directions))
                directions.append(_Direction(*(each.fileno() for each in way), losses))
        control.send(ends)
        count = len(directions)
        files = ctypes.create_string_buffer(8 * (count + 1))
        library.carry_all((_Direction * count)(*directions), count, control.fileno(), files)


def _connected(local: tuple[str, int], remote: tuple[str, int]) -> socket.socket:
    made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.bind(local)
    made.connect(remote)
    enlarge_buffers(made)
    join_datagrams(made)
    return made
