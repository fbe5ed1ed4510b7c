"""Packets by a UDP socket, many in a system call, without a compiler: what udp.c does.

Where the kernel joins datagrams (``UDP_GRO``) one of them holds dozens of packets, and plain ``recvmsg``
would do. Where it does not, because they come paced, one by one, a call for each of them would cost more
than all the rest of a worker. ``recvmmsg`` serves both; Python has no such call, but its numbers can be
laid out with numpy as Linux wants them.
"""

import ctypes
import errno
import os
import socket
import struct

import numpy as np
import numpy.typing as npt

from innet.sockets import UDP_GRO, UDP_SEGMENT
from innet.wire.check import intact
from innet.wire.records import Records

Rows = npt.NDArray[np.uint8]

_MESSAGES = 64
_DATAGRAM_BYTES = 1 << 16
_MOST_BYTES = 65_000  # of what is sent at once
_LIBC = ctypes.CDLL(None, use_errno=True)

# recvmmsg(2), for machines with 64 bits: struct iovec, struct mmsghdr, and a struct cmsghdr with an int.
_VECTOR = np.dtype([("base", "u8"), ("bytes", "u8")], align=True)
_MESSAGE = np.dtype(
    [
        ("name", "u8"),
        ("name_bytes", "u4"),
        ("vectors", "u8"),
        ("vector_count", "u8"),
        ("control", "u8"),
        ("control_bytes", "u8"),
        ("flags", "u8"),  # an int, and what fills up the inner struct msghdr
        ("received", "u4"),
    ],
    align=True,
)
_CONTROL = np.dtype(
    [("bytes", "u8"), ("level", "i4"), ("kind", "i4"), ("segment", "i4")], align=True
)

# What a UDP socket says when nobody listens at the other end: a lost packet, no more.
_UNREACHABLE = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN}
_NO_ROOM = {errno.EAGAIN, errno.ENOBUFS}


class NumpySocket:
    """Packets of one dtype by a connected UDP socket, which does not block.

    What comes has to bear the check of a sender at `address`, (IP, port), or, if it is not `sealed`, 0.
    `told`: where in front of the header a packet tells its sender, and with what bytes.
    """

    def __init__(
        self,
        sock: socket.socket,
        dtype: np.dtype[np.void],
        address: tuple[int, int],
        told: tuple[tuple[int, bytes], ...],
        *,
        sealed: bool,
    ) -> None:
        self._socket, self._dtype, self._packet_bytes = sock, dtype, dtype.itemsize
        self._address, self._told, self._sealed = address, told, sealed
        self.segmenting = True
        self._buffers = np.empty((_MESSAGES, _DATAGRAM_BYTES), np.uint8)
        self._vectors = np.zeros(_MESSAGES, _VECTOR)
        self._vectors["base"] = _places(self._buffers)
        self._vectors["bytes"] = _DATAGRAM_BYTES
        self._control = np.zeros(_MESSAGES, _CONTROL)
        self._messages = np.zeros(_MESSAGES, _MESSAGE)
        self._messages["vectors"] = _places(self._vectors)
        self._messages["vector_count"] = 1
        self._messages["control"] = _places(self._control)

    def send(self, packets: Records) -> None:
        """Send packets that have their check, in order. Raises OSError, but not for lost ones."""
        most = min(_MESSAGES, _MOST_BYTES // packets.itemsize)
        for start in range(0, len(packets), most):
            self._send_batch(packets[start : start + most])

    def receive(self) -> tuple[Records, int]:
        """The packets of the next datagrams, and how many were dropped.

        The packets are valid until the next call. Raises OSError, but not because nothing has arrived.
        """
        rows = self._take()
        batch = np.ascontiguousarray(rows).reshape(-1).view(self._dtype)
        good = intact(batch, *self._address) if self._sealed else batch["check"] == 0
        for place, wanted in self._told:
            good &= (rows[:, place : place + len(wanted)] == np.frombuffer(wanted, np.uint8)).all(1)
        dropped = len(batch) - int(np.count_nonzero(good))
        return batch[good] if dropped else batch, dropped

    def _take(self) -> Rows:
        messages = self._messages
        messages["control_bytes"] = _CONTROL.itemsize
        count = _LIBC.recvmmsg(
            self._socket.fileno(), ctypes.c_void_p(messages.ctypes.data), _MESSAGES,
            socket.MSG_DONTWAIT, None,
        )  # fmt: skip
        if count < 0:
            number = ctypes.get_errno()
            if number == errno.EAGAIN or number in _UNREACHABLE:
                return self._buffers[:0, : self._packet_bytes]
            raise OSError(number, os.strerror(number))
        sizes, control = messages["received"][:count], self._control[:count]
        joined = (messages["control_bytes"][:count] > 0) & (control["kind"] == UDP_GRO)
        segments = np.where(joined, control["segment"], sizes)
        ours = np.flatnonzero(segments == self._packet_bytes)
        # The last packet of a datagram may be cut short: it is not ours.
        return self._rows(ours, sizes[ours] // self._packet_bytes)

    def _rows(self, which: npt.NDArray[np.intp], packets: npt.NDArray[np.uint32]) -> Rows:
        size = self._packet_bytes
        if len(which) == 1:
            [message], [count] = which.tolist(), packets.tolist()
            return self._buffers[message, : count * size].reshape(count, size)
        if (packets == 1).all():
            return self._buffers[which, :size]
        datagrams = zip(which.tolist(), packets.tolist(), strict=True)
        parts = [self._buffers[message, : count * size] for message, count in datagrams]
        return np.concatenate(parts).reshape(-1, size)

    def _send_batch(self, packets: Records) -> None:
        if len(packets) > 1 and self.segmenting:
            size = struct.pack("=H", packets.itemsize)
            try:
                self._sendmsg(packets, [(socket.SOL_UDP, UDP_SEGMENT, size)])
                return
            except OSError as problem:
                if problem.errno not in (errno.EINVAL, errno.EIO, errno.EOPNOTSUPP):
                    raise
                self.segmenting = False  # a kernel or a device that cannot: one by one
        for packet in packets:
            self._sendmsg(packet.reshape(1), [])

    def _sendmsg(self, packets: Records, ancillary: list[tuple[int, int, bytes]]) -> None:
        try:
            self._socket.sendmsg([packets.view(np.uint8).data], ancillary)
        except OSError as problem:
            if problem.errno not in _UNREACHABLE | _NO_ROOM:
                raise


def _places(array: npt.NDArray[np.generic]) -> npt.NDArray[np.uint64]:
    """Where the rows of an array are in memory."""
    return np.uint64(array.ctypes.data) + np.arange(len(array), dtype=np.uint64) * np.uint64(
        array.strides[0]
    )
