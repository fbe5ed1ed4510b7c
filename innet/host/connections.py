"""Connections to the switch in C, over UDP or through shared memory, and the packets that cross them.

A :class:`Format` tells C how to make packets, and which of the arriving packets to keep.
"""

import ctypes
import errno
import os
import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from innet.host import structs
from innet.host.fastpath import at, raise_errno
from innet.host.numpy_socket import DATAGRAM_BYTES, MESSAGES
from innet.host.packets import Packets
from innet.host.structs import POINTER, SIZE
from innet.wire.check import bases, weights
from innet.wire.layout import HEADER_BYTES
from innet.wire.records import Records

_CONNECT_WITHIN = 5.0  # seconds


class Format:
    """The format of packets of one dtype that carry the address of one sender.

    `told` gives the positions before the header that identify a packet's sender, each with the
    bytes expected there. In packets that are not `sealed` the check is 0: all weights are 0, and
    the address does not count.
    """

    def __init__(
        self,
        dtype: np.dtype[np.void],
        ip: int,
        port: int,
        told: tuple[tuple[int, bytes], ...] = (),
        *,
        sealed: bool = True,
    ) -> None:
        front = dtype.fields["version"][1] if dtype.fields else 0
        words = (dtype.itemsize - front) // 4
        self.dtype = dtype
        self._weights = weights(words) if sealed else np.zeros(words, np.uint64)
        self.native = structs.Format(
            dtype.itemsize, front, words - HEADER_BYTES // 4, words,
            at(self._weights, np.uint64, words), int(bases(ip, port)[0]) if sealed else 0, len(told),
            (SIZE * 2)(*(offset for offset, _ in told)),
            (SIZE * 2)(*(len(wanted) for _, wanted in told)),
            (ctypes.c_uint8 * 8)(*b"".join(wanted for _, wanted in told)),
        )  # fmt: skip


@dataclass(frozen=True)
class Formats:
    """The formats of one sender's packets, bare and with lanes."""

    bare: Format
    full: Format

    def __iter__(self) -> Iterator[Format]:
        return iter((self.bare, self.full))


class Buffers:
    """Room for the packets that arrive in one call, for each of these formats."""

    def __init__(self, formats: Formats, messages: int, room: int) -> None:
        self._formats = formats
        self._bytes = {each: np.empty((messages, room), np.uint8) for each in formats}
        self.inbox = structs.Inbox(
            (POINTER * 2)(*(ctypes.addressof(each.native) for each in formats)),
            (POINTER * 2)(*(at(each, np.uint8) for each in self._bytes.values())), room,
        )  # fmt: skip

    @property
    def packets(self) -> Packets:
        """Return the packets that have arrived, valid until the next call."""
        bare, full = (
            self._bytes[each].reshape(-1)[: count * each.dtype.itemsize].view(each.dtype)
            for each, count in zip(self._formats, self.inbox.packets, strict=True)
        )
        return Packets(full, bare)


class Connection:
    """A connection to the switch, for packets, in C.

    The names of the C functions begin with `prefix`. Each of them takes `context`.
    """

    def __init__(self, library: ctypes.CDLL, prefix: str, context: int, incoming: Formats) -> None:
        self._context = context
        self._send, self._receive, self._wait = (
            getattr(library, f"{prefix}_{name}") for name in ("send", "receive", "wait")
        )
        functions = (
            ctypes.cast(each, POINTER)
            for each in (
                library.innet_now, self._wait, self._send, self._receive
            )
        )  # fmt: skip
        self._queued, put = (
            getattr(library, f"{prefix}_{name}", None) for name in ("queued", "put")
        )
        self.network = structs.Network(
            context, *functions,
            *(ctypes.cast(each, POINTER) if each else None for each in (self._queued, put)),
        )  # fmt: skip
        self.buffers = Buffers(incoming, MESSAGES, DATAGRAM_BYTES)

    def send(self, packets: Records) -> None:
        """Send packets that have their check, in order. Lost ones are no error. Raises OSError."""
        address = at(packets, packets.dtype)
        raise_errno(self._send(self._context, address, len(packets), packets.itemsize))

    def receive(self) -> tuple[Packets, int]:
        """Return the packets that have arrived, and the number of those dropped as damaged.

        The packets are valid until the next call. If nothing has arrived, that is no error. Raises
        OSError.
        """
        number = self._receive(self._context, self.buffers.inbox)
        if number != errno.EAGAIN:
            raise_errno(number)
        return self.buffers.packets, self.buffers.inbox.corrupted

    @property
    def refused(self) -> int:
        """Return the error number with which this machine's kernel refused the last packets, or 0."""
        return 0

    @property
    def is_sending(self) -> bool:
        """Return whether packets wait for this host's link, as far as is known."""
        return self._queued is not None and self._queued(self._context) > 0

    def wait(self, seconds: float) -> None:
        """Return when a packet is there, when the waker is used, or after `seconds`."""
        self._wait(self._context, seconds)

    def close(self) -> None:
        """End the connection."""
        raise NotImplementedError


class UdpConnection(Connection):
    """A connected, non-blocking UDP socket. The eventfd `waker` ends a wait."""

    def __init__(
        self, library: ctypes.CDLL, sock: socket.socket, incoming: Formats, waker: int | None
    ) -> None:
        self._socket = sock
        self._udp = structs.Udp(sock.fileno(), -1 if waker is None else waker, True)
        super().__init__(library, "innet_udp", ctypes.addressof(self._udp), incoming)

    @property
    def segmenting(self) -> bool:
        """Return whether the kernel cuts one buffer into packets."""
        return bool(self._udp.segmenting)

    @property
    def refused(self) -> int:
        """Return the error number with which this machine's kernel refused the last packets, or 0."""
        return int(self._udp.refused)

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


class SharedMemoryConnection(Connection):
    """A cable in shared memory to a switch that listens at the path of a Unix socket.

    If the switch ends, the next packet connects to its successor. Raises OSError.
    """

    def __init__(
        self, library: ctypes.CDLL, path: Path, incoming: Formats, waker: int | None
    ) -> None:
        self._library = library
        context = library.innet_shared_create(os.fsencode(path), -1 if waker is None else waker)
        if not context:
            raise OSError(errno.ENAMETOOLONG, os.strerror(errno.ENAMETOOLONG))
        super().__init__(library, "innet_shared", context, incoming)
        try:
            self._connect()
        except OSError:
            self.close()
            raise

    def close(self) -> None:
        """End the connection, unless it has ended."""
        context, self._context = self._context, 0
        if context:
            self._library.innet_shared_destroy(context)

    def _connect(self) -> None:
        until = time.monotonic() + _CONNECT_WITHIN
        while (number := self._library.innet_shared_connect(self._context)) == errno.EAGAIN:
            if time.monotonic() > until:
                raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT))
            self.wait(_CONNECT_WITHIN)
        raise_errno(number)
