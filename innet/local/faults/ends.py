"""The ends of a cable with faults: UDP sockets, or rings in shared memory.

This module implements the rings of wire/ring.h a second time, in Python. So the C code of the switch and
of the agent is tested against an implementation that shares no code with it.
"""

import array
import contextlib
import fcntl
import mmap
import os
import select
import socket
import struct
from collections.abc import Callable
from functools import partial
from itertools import groupby
from pathlib import Path
from typing import Protocol

from innet.errors import InnetError
from innet.machine.sockets import UDP_GRO, UDP_SEGMENT, enlarge_buffers, join_datagrams

_MOST_SEGMENTS, _MOST_BYTES = 64, 65_000
_CONNECTS_WITHIN = 10.0  # seconds

# As in wire/ring.h.
_VERSION, _FILES, _MOST_FILES = 2, 2, 65
_RING_BYTES, _HEADER, _WRAP = 1 << 20, 8, 0xFFFF0001
_HEAD, _TAIL, _ASLEEP, _DATA = 0, 64, 72, 128
_RING = _DATA + _RING_BYTES
_UP, _DOWN = 0, _RING
_CABLE = 2 * _RING


class End(Protocol):
    """One end, which the carrier watches by its `fileno`."""

    def fileno(self) -> int:
        """Return a descriptor that is readable when packets have come."""

    def receive(self) -> list[bytes]:
        """Return some packets. Raises BlockingIOError if there are none."""

    def send(self, packets: list[bytes]) -> None:
        """Send packets, in order. Some may be lost, as on a wire."""

    def close(self) -> None:
        """Release the end."""


class UdpEnd:
    """A connected UDP socket, which sends and receives many packets with one call."""

    def __init__(self, local: tuple[str, int], remote: tuple[str, int]) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(local)
        self._socket.connect(remote)
        enlarge_buffers(self._socket)
        join_datagrams(self._socket)
        self.port: int = self._socket.getsockname()[1]
        self.fileno, self.close = self._socket.fileno, self._socket.close

    def receive(self) -> list[bytes]:
        """Return the packets of the next datagram, or of many joined into one."""
        try:
            content, ancillary, _, _ = self._socket.recvmsg(1 << 16, 64, socket.MSG_DONTWAIT)
        except ConnectionRefusedError:  # nobody listens, so the packet is lost
            return []
        for level, kind, data in ancillary:
            if (level, kind) == (socket.SOL_UDP, UDP_GRO):
                [size] = struct.unpack("=i", data[:4])
                return [content[start : start + size] for start in range(0, len(content), size)]
        return [content]

    def send(self, packets: list[bytes]) -> None:
        """Send packets, as many as possible with one call."""
        for size, run in groupby(packets, len):
            equal = list(run)
            most = max(1, min(_MOST_SEGMENTS, _MOST_BYTES // size)) if size else 1
            for start in range(0, len(equal), most):
                some = equal[start : start + most]
                segment = (socket.SOL_UDP, UDP_SEGMENT, struct.pack("=H", size))
                with contextlib.suppress(ConnectionRefusedError):
                    self._socket.sendmsg(some, [segment] if len(some) > 1 else [])


class _Rings:
    """The two rings of a cable, seen from one end: `came` is the ring to read, `goes` the other.

    `wake` wakes the reader of the other.
    """

    def __init__(self, file: int, came: int, goes: int, wake: Callable[[], None]) -> None:
        self._memory = mmap.mmap(file, 0)
        self._came, self._goes, self._wake = came, goes, wake
        self._read = self._written = 0

    def close(self) -> None:
        self._memory.close()

    def receive(self) -> list[bytes]:
        packets, head = [], self._number(self._came + _HEAD)
        while self._read != head:
            at = self._read % _RING_BYTES
            [length] = struct.unpack_from("=I", self._memory, self._came + _DATA + at)
            if length == _WRAP:
                self._read += _RING_BYTES - at
                continue
            start = self._came + _DATA + at + _HEADER
            packets.append(self._memory[start : start + length])
            self._read += _place(length)
        self._put(self._came + _TAIL, "=Q", self._read)
        return packets

    def sleep(self) -> bool:
        """Ask for a wake-up. Return whether there is nothing to read."""
        self._put(self._came + _ASLEEP, "=I", 1)
        return self._number(self._came + _HEAD) == self._read

    def send(self, packets: list[bytes]) -> None:
        for packet in packets:
            self._write(packet)
        self._put(self._goes + _HEAD, "=Q", self._written)
        if self._memory[self._goes + _ASLEEP]:
            self._put(self._goes + _ASLEEP, "=I", 0)
            self._wake()

    def _write(self, packet: bytes) -> None:
        at, place = self._written % _RING_BYTES, _place(len(packet))
        skipped = _RING_BYTES - at if place > _RING_BYTES - at else 0
        full = self._written - self._number(self._goes + _TAIL) + skipped + place > _RING_BYTES
        if full or not packet:
            return
        if skipped:
            self._put(self._goes + _DATA + at, "=I", _WRAP)
            self._written, at = self._written + skipped, 0
        self._put(self._goes + _DATA + at, "=I", len(packet))
        start = self._goes + _DATA + at + _HEADER
        self._memory[start : start + len(packet)] = packet
        self._written += place

    def _number(self, at: int) -> int:
        [number] = struct.unpack_from("=Q", self._memory, at)
        return int(number)

    def _put(self, at: int, form: str, number: int) -> None:
        struct.pack_into(form, self._memory, at, number)


def _place(length: int) -> int:
    return _HEADER + (length + 7) // 8 * 8


class WorkersEnd:
    """The end that connects to a switch's port, as a worker does.

    A switch on several cores has a pair of rings for each. All packets go to the first core, which
    hands over those of other cores.
    """

    def __init__(self, path: Path) -> None:
        self._connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._connection.settimeout(_CONNECTS_WITHIN)
        self._connection.connect(str(path))
        _, files, *_ = socket.recv_fds(self._connection, 64, _MOST_FILES)
        if len(files) < _FILES:
            raise InnetError(f"{path}: the switch has another worker at this port")
        self._connection.setblocking(False)
        memory, *bells = files
        self._rings = [
            _Rings(
                memory,
                core * _CABLE + _DOWN,
                core * _CABLE + _UP,
                partial(os.eventfd_write, bell, 0),
            )
            for core, bell in enumerate(bells)
        ]
        self._files = files
        self._poller = select.epoll()
        self._poller.register(self._connection, select.EPOLLIN)
        for each in self._rings:
            each.sleep()

    def fileno(self) -> int:
        """Return a descriptor that is readable when the switch wakes this end."""
        return self._poller.fileno()

    def receive(self) -> list[bytes]:
        """Return all packets that the switch has written."""
        with contextlib.suppress(BlockingIOError):
            if not self._connection.recv(1, socket.MSG_DONTWAIT):  # the switch has ended
                with contextlib.suppress(OSError):  # it was noticed before
                    self._poller.unregister(self._connection)
        return _awake(self._rings)

    def send(self, packets: list[bytes]) -> None:
        """Write packets as far as there is room."""
        self._rings[0].send(packets)

    def close(self) -> None:
        """End the connection."""
        for each in self._rings:
            each.close()
        self._poller.close()
        self._connection.close()
        for file in self._files:
            os.close(file)


class SwitchsEnd:
    """The end that listens for a worker, as a switch's port does, for one worker after the other."""

    def __init__(self, path: Path) -> None:
        self._server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._server.bind(str(path))
        self._server.listen()
        self._poller = select.epoll()
        self._poller.register(self._server, select.EPOLLIN)
        self._worker = contextlib.ExitStack()
        self._peer: socket.socket | None = None
        self._rings: _Rings | None = None

    def fileno(self) -> int:
        """Return the descriptor of the connection, of its wake-ups, and of new connections."""
        return self._poller.fileno()

    def receive(self) -> list[bytes]:
        """Return all packets that the worker has written."""
        for file, _ in self._poller.poll(0):
            if file == self._server.fileno():
                self._accept()
            elif (
                self._peer and file == self._peer.fileno()
            ):  # a worker says nothing, so it has ended
                self._worker.close()
        if not self._rings:
            raise BlockingIOError
        return _awake([self._rings])

    def send(self, packets: list[bytes]) -> None:
        """Write packets as far as there is room. Without a worker they are lost."""
        if self._rings:
            self._rings.send(packets)

    def close(self) -> None:
        """End the connection, and listen no more."""
        self._worker.close()
        self._poller.close()
        self._server.close()

    def _accept(self) -> None:
        peer, _ = self._server.accept()
        self._worker.close()
        stack = self._worker
        stack.callback(self._left)
        self._peer = stack.enter_context(peer)
        memory = os.memfd_create("cable", os.MFD_ALLOW_SEALING)
        os.ftruncate(memory, _CABLE)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW)
        files = [memory, os.eventfd(1, os.EFD_NONBLOCK)]
        for file in files:
            stack.callback(os.close, file)
        _, wakeup = files
        self._rings = _Rings(memory, _UP, _DOWN, partial(_wake_worker, peer))
        stack.callback(self._rings.close)
        self._rings.sleep()
        # A wake-up adds nothing to the eventfd, which nobody reads.
        watched = {peer.fileno(): select.EPOLLIN, wakeup: select.EPOLLIN | select.EPOLLET}
        for file, events in watched.items():
            self._poller.register(file, events)
            stack.callback(self._poller.unregister, file)
        socket.send_fds(peer, [array.array("I", [_VERSION, _CABLE]).tobytes()], files)

    def _left(self) -> None:
        self._peer = self._rings = None


def _wake_worker(peer: socket.socket) -> None:
    with contextlib.suppress(OSError):  # it has not read earlier wake-ups, or has ended
        peer.send(b"\0", socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL)


def _awake(rings: list[_Rings]) -> list[bytes]:
    """Return the packets in the rings. If there are none, ask for a wake-up and raise BlockingIOError."""
    if packets := [packet for each in rings for packet in each.receive()]:
        return packets
    if all(each.sleep() for each in rings):
        raise BlockingIOError
    return [packet for each in rings for packet in each.receive()]
