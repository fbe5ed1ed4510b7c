"""Packets over a UDP socket without a compiler, many in one system call, as in udp.c.

If the kernel joins datagrams (``UDP_GRO``), each of them holds dozens of packets, and plain
``recvmsg`` would do. If datagrams arrive paced, one by one, the kernel does not join them. A call for
each would then cost more than all other work of a worker. ``recvmmsg`` serves both cases. Python has no
such call, so numpy lays out its structs as Linux expects them.
"""

import ctypes
import errno
import fcntl
import os
import select
import socket
import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from innet.host.packets import Packets
from innet.host.refusals import MISUSES, NOT_OURS
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
from innet.wire.layout import Ecn, Flag
from innet.wire.records import Records

_MARK = socket.IPPROTO_IP, socket.IP_TOS, struct.pack("=i", Ecn.CONGESTED)

Rows = npt.NDArray[np.uint8]

MESSAGES = 64
"""The most datagrams that are received in one call."""

DATAGRAM_BYTES = 1 << 16
"""The bytes of room for each datagram."""

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


class _Datagrams(NamedTuple):
    """Received datagrams: their sizes, those of the packets in them, and marks of long queues."""

    sizes: npt.NDArray[np.uint32]
    segments: npt.NDArray[np.int64]
    congested: npt.NDArray[np.bool_]


class NumpySocket:
    """A connected, non-blocking UDP socket for packets of two dtypes: with lanes, and bare.

    Incoming packets must carry the check of a sender at `address`, (IP, port), or 0 if not
    `sealed`. `told` gives the positions before the header that identify a packet's sender, each
    with the bytes expected there. The `waker` ends a wait. `refused` is the error number with which
    this machine's kernel refused the last packets, or 0.
    """

    def __init__(
        self,
        sock: socket.socket,
        dtypes: tuple[np.dtype[np.void], np.dtype[np.void]],
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
        self._socket, self._dtypes = sock, dtypes
        self._address, self._told, self._sealed = address, told, sealed
        self.segmenting, self.refused = True, 0
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

    def receive(self) -> tuple[Packets, int]:
        """Return the packets of the next datagrams, and the number of those dropped as damaged.

        The packets are valid until the next call. If nothing has arrived, that is no error. Raises
        OSError.
        """
        datagrams = self._take()
        (full, lost), (bare, also) = (self._found(dtype, datagrams) for dtype in self._dtypes)
        return Packets(full, bare), lost + also

    def _found(self, dtype: np.dtype[np.void], datagrams: _Datagrams) -> tuple[Records, int]:
        """Return the packets of a dtype in some datagrams, and the number of dropped ones."""
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

    def wait(self, seconds: float) -> None:
        """Return when a packet is there, when the waker is used, or after `seconds`."""
        ready = self._poll.poll(max(0.0, seconds) * 1000)
        if self._waker and any(each == self._waker.descriptor for each, _ in ready):
            self._waker.reset()

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()

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
            if number in MISUSES:
                raise OSError(number, os.strerror(number))
            count = 0
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
        return _Datagrams(sizes, segments, congested)

    def _rows(self, size: int, datagrams: _Datagrams) -> tuple[Rows, npt.NDArray[np.bool_]]:
        """Return the packets of `size` bytes, (packets, size), and which of them are congested."""
        sizes, segments, congested = datagrams
        which = np.flatnonzero(segments == size)
        counts = sizes[which] // size
        # The last packet of a datagram may be shorter than the others.
        tails = np.flatnonzero(
            (segments != size) & (segments > 0) & (sizes % np.maximum(segments, 1) == size)
        )
        if not tails.size and len(which) == 1:
            [message], [count] = which.tolist(), counts.tolist()
            rows = self._buffers[message, : count * size].reshape(count, size)
        elif not tails.size and (counts == 1).all():
            rows = self._buffers[which, :size]
        else:
            whole = zip(which.tolist(), counts.tolist(), strict=True)
            parts = [self._buffers[message, : count * size] for message, count in whole]
            ends = zip(tails.tolist(), sizes[tails].tolist(), strict=True)
            parts += [self._buffers[message, end - size : end] for message, end in ends]
            rows = np.concatenate(parts).reshape(-1, size)
        return rows, np.concatenate([np.repeat(congested[which], counts), congested[tails]])

    @property
    def is_sending(self) -> bool:
        """Return whether packets wait for this host's link."""
        return self._queued() > 0

    def _has_long_queue(self) -> bool:
        return self._queued() >= LONG_QUEUE_BYTES

    def _queued(self) -> int:
        [waiting] = struct.unpack("=i", fcntl.ioctl(self._socket, SIOCOUTQ, bytes(4)))
        return int(waiting)

    def _send_batch(self, packets: Records, options: list[tuple[int, int, bytes]]) -> None:
        if len(packets) > 1 and self.segmenting:
            size = struct.pack("=H", packets.itemsize)
            number = self._sendmsg(packets, [(socket.SOL_UDP, UDP_SEGMENT, size), *options])
            if number not in (errno.EINVAL, errno.EIO, errno.EOPNOTSUPP):
                return
            if self._sendmsg(packets[:1], options):
                return
            self.segmenting = False  # the kernel or the device cannot cut: send one by one
            packets = packets[1:]
        for packet in packets:
            self._sendmsg(packet.reshape(1), options)

    def _sendmsg(self, packets: Records, ancillary: list[tuple[int, int, bytes]]) -> int:
        """Send one datagram, or many in one buffer. Return the error number of lost packets, or 0."""
        number = 0
        try:
            self._socket.sendmsg([packets.view(np.uint8).data], ancillary)
        except OSError as problem:
            number = problem.errno or 0
            if number in MISUSES:
                raise
        self.refused = 0 if number in NOT_OURS else number
        return number


def _addresses(array: npt.NDArray[np.generic]) -> npt.NDArray[np.uint64]:
    """Return the addresses of an array's rows in memory."""
    return np.uint64(array.ctypes.data) + np.arange(len(array), dtype=np.uint64) * np.uint64(
        array.strides[0]
    )
