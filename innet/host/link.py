"""How packets leave and reach this host: one connected UDP socket, a batch of packets per call.

Two kinds of link, one class. On a real network the kernel puts UDP, IP and Ethernet in front of a
packet. On a link like ``udp:127.0.0.1:8001/127.0.0.1:9001``, a cable made of UDP to a port of the
embedded switch, whole frames are the datagrams' payload and the encapsulation is ours. Either way
packets are of one size, so that the kernel can cut one buffer into many datagrams
(``UDP_SEGMENT``) and hand many over as one (``UDP_GRO``).
"""

import errno
import select
import socket
import struct
import time
from collections.abc import Iterator

import numpy as np

from innet.errors import UsageError
from innet.sockets import UDP_GRO, enlarge_buffers, join_datagrams
from innet.wire.frames import Address, encapsulation
from innet.wire.records import Records, packet_bytes, packet_dtype

_UDP_SEGMENT = 103
_MOST_SEGMENTS = 64
_MOST_BYTES = 65_000
_DATAGRAMS_PER_DRAIN = 32

# What a UDP socket says when nobody listens at the other end: a lost packet, no more.
_UNREACHABLE = {errno.ECONNREFUSED, errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN}
_NO_ROOM = {errno.EAGAIN, errno.ENOBUFS}


class Link:
    """A worker's attachment to its switch.

    `encapsulation` stands in front of every packet sent or received, `hello_encapsulation` in front
    of one without lanes; both are empty where the kernel does it.
    """

    def __init__(
        self,
        sock: socket.socket,
        lanes: int,
        encapsulation: bytes = b"",
        hello_encapsulation: bytes = b"",
    ) -> None:
        self._socket = sock
        self.encapsulation = encapsulation
        self.hello_encapsulation = hello_encapsulation
        self.dtype = packet_dtype(lanes, len(encapsulation))
        self._buffer = memoryview(bytearray(1 << 16))
        self._batch = min(_MOST_SEGMENTS, _MOST_BYTES // self.dtype.itemsize)
        self._segmenting = True
        sock.setblocking(False)
        enlarge_buffers(sock)
        join_datagrams(sock)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Return when a packet is there, or after `seconds`."""
        self._poll.poll(max(0.0, seconds) * 1000)

    def send(self, records: Records) -> None:
        """Send equal-sized packets, in order. What the kernel cannot take is lost, as on a wire."""
        for start in range(0, len(records), self._batch):
            self._send_batch(records[start : start + self._batch])

    def receive(self) -> Iterator[Records]:
        """Everything that has arrived, in batches that are valid until the next one.

        What is not a packet of this link's size is skipped. Bounded, so that a flood of packets
        cannot keep the caller from its timers.
        """
        for _ in range(_DATAGRAMS_PER_DRAIN):
            try:
                size, ancillary, _, _ = self._socket.recvmsg_into([self._buffer], 64)
            except OSError as problem:
                if problem.errno in _UNREACHABLE:
                    continue
                if problem.errno == errno.EAGAIN:
                    return
                raise
            segment = _segment_size(ancillary) or size
            if segment == self.dtype.itemsize:  # the last of a batch may be shorter: not ours
                yield np.frombuffer(self._buffer[: size - size % segment], self.dtype)

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()

    def _send_batch(self, records: Records) -> None:
        if len(records) > 1 and self._segmenting:
            size = struct.pack("=H", records.dtype.itemsize)
            try:
                self._sendmsg(records, [(socket.SOL_UDP, _UDP_SEGMENT, size)])
                return
            except OSError as problem:
                if problem.errno not in (errno.EINVAL, errno.EIO, errno.EOPNOTSUPP):
                    raise
                self._segmenting = False  # a kernel or a device that cannot: one by one
        for record in records:
            self._sendmsg(record.reshape(1), [])

    def _sendmsg(self, records: Records, ancillary: list[tuple[int, int, bytes]]) -> None:
        try:
            self._socket.sendmsg([records.view(np.uint8).data], ancillary)
        except OSError as problem:
            if problem.errno not in _UNREACHABLE | _NO_ROOM:
                raise


def open_link(spec: str, service: Address, lanes: int) -> Link:
    """Open the link that `spec` names, towards the switch at `service`.

    `spec` is ``host`` (the kernel's network stack) or ``udp:LOCAL_IP:PORT/REMOTE_IP:PORT``.
    Raises UsageError if the text makes no sense or the local address is in use.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        if spec == "host":
            sock.connect((service.ip, service.udp_port))
            return Link(sock, lanes)
        local, remote = parse_endpoints(spec)
        sock.bind(local)
        sock.connect(remote)
        own = frame_address(local)
        return Link(
            sock,
            lanes,
            encapsulation(own, service, packet_bytes(lanes)),
            encapsulation(own, service, packet_bytes(0)),
        )
    except OSError as problem:
        sock.close()
        raise UsageError(f"cannot open link {spec!r}: {problem.strerror}") from problem
    except BaseException:
        sock.close()
        raise


def parse_endpoints(spec: str) -> tuple[tuple[str, int], tuple[str, int]]:
    """``udp:A:P/B:Q`` as ((A, P), (B, Q)). Raises UsageError."""
    kind, _, ends = spec.partition(":")
    try:
        if kind != "udp":
            raise ValueError
        local, remote = (_endpoint(end) for end in ends.split("/"))
        return local, remote
    except ValueError:
        raise UsageError(
            f"link {spec!r} is neither 'host' nor 'udp:LOCAL_IP:PORT/REMOTE_IP:PORT'"
        ) from None


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not 0 < int(port) < 1 << 16:
        raise ValueError
    return host, int(port)


def frame_address(local: tuple[str, int]) -> Address:
    """The address that this end of a UDP cable has inside the frames: made from its UDP port."""
    high, low = divmod(local[1], 256)
    return Address(
        mac=f"02:00:0a:00:{high:02x}:{low:02x}", ip=f"10.0.{high}.{low}", udp_port=local[1]
    )


def monotonic() -> float:
    """The transport's clock, in seconds."""
    return time.monotonic()


def _segment_size(ancillary: list[tuple[int, int, bytes]]) -> int | None:
    for level, kind, data in ancillary:
        if level == socket.SOL_UDP and kind == UDP_GRO:
            return int(struct.unpack("=i", data[:4])[0])
    return None
