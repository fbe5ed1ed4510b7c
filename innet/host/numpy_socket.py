"""Packets over a UDP socket without a compiler, many in one system call, as in udp.c.

If the kernel joins datagrams (``UDP_GRO``), each of them holds dozens of packets, and plain
``recvmsg`` would do. If it does not, because they arrive paced, one by one, then a call for each
would cost more than the rest of a worker together. ``recvmmsg`` serves both cases. Python has no
such call, so numpy lays out its structs as Linux expects them.
"""

import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from innet.host.waker import Waker
from innet.machine.sockets import (
    LONG_QUEUE_BYTES,
    MOST_SEGMENTS,
    MOST_SENT_BYTES,
    SIOCOUTQ,
    UDP_GRO,
    UDP_SEGMENT,
)
from innet.wire.check import intact
from innet.wire.layout import Ecn, Flag, Kind
from innet.wire.records import Records, packet_dtype

_MARK = socket.IPPROTO_IP, socket.IP_TOS, struct.pack("=i", Ecn.CONGESTED)

Rows = npt.NDArray[np.uint8]

MESSAGES = 64
"""The most datagrams that are received in one call."""

DATAGRAM_BYTES = 1 << 16
"""The room for each of them."""

_LIBC = ctypes.CDLL(None, use_errno=True)

# The structs of recvmmsg(2) on 64-bit machines: iovec, mmsghdr, and two cmsghdrs, each with an int or
# a byte. If the kernel has joined datagrams, the first tells their size, and the type of service comes
# second.
_VECTOR = np.dtype([("base", "u8"), ("bytes", "u8")], align=True)
_MESSAGE = np.dtype(
    [
        ("name", "u8"),
        ("name_bytes", "u4"),
        ("vectors", "u8"),
        ("vector_count", "u8"),
        ("control", "u8"),
        ("control_bytes", "u8"),
        ("flags", "u8"),  # an int, and the padding of the inner struct msghdr
        ("received", "u4"),
    ],
    align=True,
)
_CONTROL_MESSAGE = np.dtype(
    {
        "names": ["bytes", "level", "kind", "number", "octet"],
        "formats": ["u8", "i4", "i4", "i4", "u1"],
        "offsets": [0, 8, 12, 16, 16],
        "itemsize": 24,
    }
)
_CONTROL = np.dtype([("first", _CONTROL_MESSAGE), ("second", _CONTROL_MESSAGE)])

# Errors of a UDP socket if nobody listens at the other end: they mean a lost packet, no more.
_UNREACHABLE = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN}
_NO_ROOM = {errno.EAGAIN, errno.ENOBUFS}


@dataclass(frozen=True)
class _Datagrams:
    """Received datagrams: their sizes, those of the packets in them, and who found a long queue."""

    sizes: npt.NDArray[np.int64]
    segments: npt.NDArray[np.int64]
    congested: npt.NDArray[np.bool_]


class NumpySocket:
    """A connected, non-blocking UDP socket for packets of one dtype.

    Incoming packets must carry the check of a sender at `address`, (IP, port), or 0 if not
    `sealed`. `told` gives the positions before the header that identify a packet's sender, each
    with the bytes expected there. The `waker` ends a wait.
    """

    def __init__(
        self,
        sock: socket.socket,
        dtype: np.dtype[np.void],
        address: tuple[int, int],
        told: tuple[tuple[int, bytes], ...],
        waker: Waker | None,
        *,
        sealed: bool,
    ) -> None:
        self._waker = waker
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        if waker:
            self._poll.register(waker.descriptor, select.POLLIN)
        front = dtype.fields["version"][1] if dtype.fields else 0
        self._socket, self._dtype, self._bare = sock, dtype, packet_dtype(0, front)
        self._address, self._told, self._sealed = address, told, sealed
        self.segmenting = True
        self._buffers = np.empty((MESSAGES, DATAGRAM_BYTES), np.uint8)
        self._vectors = np.zeros(MESSAGES, _VECTOR)
        self._vectors["base"] = _addresses(self._buffers)
        self._vectors["bytes"] = DATAGRAM_BYTES
        self._control = np.zeros(MESSAGES, _CONTROL)
        self._messages = np.zeros(MESSAGES, _MESSAGE)
        self._messages["vectors"] = _addresses(self._vectors)
        self._messages["vector_count"] = 1
        self._messages["control"] = _addresses(self._control)

    def send(self, packets: Records) -> None:
        """Send packets that have their check, in order. Lost ones are no error. Raises OSError."""
        most = min(MOST_SEGMENTS, MOST_SENT_BYTES // packets.itemsize)
        options = [_MARK] if self._has_long_queue() else []
        for start in range(0, len(packets), most):
            self._send_batch(packets[start : start + most], options)

    def receive(self) -> tuple[Records, int]:
        """Return the packets of the next datagrams, and the number of dropped ones.

        The packets are valid until the next call. Having received nothing is no error. Raises
        OSError.
        """
        datagrams = self._take()
        batch, dropped = self._intact(self._dtype, datagrams)
        bare, dropped_bare = self._intact(self._bare, datagrams)
        bare = bare[(bare["kind"] == Kind.PENDING) | (bare["kind"] == Kind.STALE)]
        if len(bare):
            batch = np.concatenate([batch, _with_zeros(bare, self._dtype)], dtype=self._dtype)
        return batch, dropped + dropped_bare

    def wait(self, seconds: float) -> None:
        """Return when a packet is there, when the waker is used, or after `seconds`."""
        ready = self._poll.poll(max(0.0, seconds) * 1000)
        if self._waker and any(each == self._waker.descriptor for each, _ in ready):
            self._waker.reset()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

    def _intact(self, dtype: np.dtype[np.void], datagrams: _Datagrams) -> tuple[Records, int]:
        """Return the intact packets of a dtype in these datagrams, and the number of damaged ones."""
        rows, congested = self._rows(dtype.itemsize, datagrams)
        batch = np.ascontiguousarray(rows).reshape(-1).view(dtype)
        good = intact(batch, *self._address) if self._sealed else batch["check"] == 0
        for offset, wanted in self._told:
            good &= (rows[:, offset : offset + len(wanted)] == np.frombuffer(wanted, np.uint8)).all(
                1
            )
        batch["flags"] |= np.where(congested, np.uint16(Flag.MARKED), np.uint16(0))
        dropped = len(batch) - int(np.count_nonzero(good))
        return batch[good] if dropped else batch, dropped

    def _take(self) -> _Datagrams:
        """Receive the next datagrams."""
        messages = self._messages
        messages["control_bytes"] = _CONTROL.itemsize
        count = _LIBC.recvmmsg(
            self._socket.fileno(), ctypes.c_void_p(messages.ctypes.data), MESSAGES,
            socket.MSG_DONTWAIT, None,
        )  # fmt: skip
        if count < 0:
            number = ctypes.get_errno()
            if number == errno.EAGAIN or number in _UNREACHABLE:
                none = np.zeros(0, np.int64)
                return _Datagrams(none, none, np.zeros(0, np.bool_))
            raise OSError(number, os.strerror(number))
        sizes, control_bytes = messages["received"][:count], messages["control_bytes"][:count]
        control = self._control[:count]
        first = control["first"]
        joined = (
            (control_bytes > 0) & (first["level"] == socket.SOL_UDP) & (first["kind"] == UDP_GRO)
        )
        segments = np.where(joined, first["number"], sizes)
        last = np.where(joined, control["second"], first)
        about_service = control_bytes > np.where(joined, first.itemsize, 0)
        congested = about_service & (last["octet"] % 4 == Ecn.CONGESTED)
        return _Datagrams(sizes.astype(np.int64), segments.astype(np.int64), congested)

    def _rows(self, size: int, datagrams: _Datagrams) -> tuple[Rows, npt.NDArray[np.bool_]]:
        """Return the packets of a size, and which of them found a long queue on their way."""
        sizes, segments = datagrams.sizes, datagrams.segments
        # The last packet of a datagram may be shorter than the others.
        tails = sizes % np.maximum(segments, 1)
        whole = np.flatnonzero((segments == size) & (sizes >= size))
        packets = np.append(
            sizes[whole] // size, np.ones(np.count_nonzero(tails == size), np.int64)
        )
        which = np.append(whole, np.flatnonzero(tails == size))
        starts = np.append(np.zeros(len(whole), np.int64), (sizes - tails)[tails == size])
        congested = np.repeat(datagrams.congested[which], packets)
        if not len(which):
            return self._buffers[:0, :size], congested
        if (packets == 1).all() and not starts.any():
            return self._buffers[which, :size], congested
        places = zip(which.tolist(), starts.tolist(), packets.tolist(), strict=True)
        parts = [self._buffers[at, start : start + count * size] for at, start, count in places]
        rows = parts[0] if len(parts) == 1 else np.concatenate(parts)
        return rows.reshape(-1, size), congested

    def _has_long_queue(self) -> bool:
        waiting = struct.unpack("=i", fcntl.ioctl(self._socket, SIOCOUTQ, bytes(4)))
        return bool(waiting[0] >= LONG_QUEUE_BYTES)

    def _send_batch(self, packets: Records, options: list[tuple[int, int, bytes]]) -> None:
        if len(packets) > 1 and self.segmenting:
            size = struct.pack("=H", packets.itemsize)
            try:
                self._sendmsg(packets, [(socket.SOL_UDP, UDP_SEGMENT, size), *options])
                return
            except OSError as problem:
                if problem.errno not in (errno.EINVAL, errno.EIO, errno.EOPNOTSUPP):
                    raise
                self.segmenting = False  # the kernel or the device cannot: send one by one
        for packet in packets:
            self._sendmsg(packet.reshape(1), options)

    def _sendmsg(self, packets: Records, ancillary: list[tuple[int, int, bytes]]) -> None:
        try:
            self._socket.sendmsg([packets.view(np.uint8).data], ancillary)
        except OSError as problem:
            if problem.errno not in _UNREACHABLE | _NO_ROOM:
                raise


def _with_zeros(bare: Records, dtype: np.dtype[np.void]) -> Records:
    """Return bare headers as packets with lanes of zeros."""
    records: Records = np.zeros(len(bare), dtype)
    rows = records.view(np.uint8).reshape(len(bare), -1)
    rows[:, : bare.itemsize] = bare.view(np.uint8).reshape(len(bare), -1)
    return records


def _addresses(array: npt.NDArray[np.generic]) -> npt.NDArray[np.uint64]:
    """Return the addresses of an array's rows in memory."""
    return np.uint64(array.ctypes.data) + np.arange(len(array), dtype=np.uint64) * np.uint64(
        array.strides[0]
    )
