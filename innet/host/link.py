"""The link of this host: one connected UDP socket, with a batch of packets per call.

There are two kinds of link, in one class. On a real network the kernel puts UDP, IP and Ethernet
before a packet. A link such as ``udp:127.0.0.1:8001/127.0.0.1:9001`` is a cable made of UDP to a
port of the embedded switch: the datagrams' payload is whole frames, which this module builds. On
both kinds all packets have one size. So the kernel can cut one buffer into many datagrams
(``UDP_SEGMENT``) and join many into one (``UDP_GRO``).

Outgoing packets get the check of the packet format. Incoming packets whose check does not match are
dropped and counted.
"""

import select
import socket
import time

from innet.errors import UsageError
from innet.host import fastpath
from innet.host.numpy_socket import NumpySocket
from innet.host.waker import Waker
from innet.machine.sockets import enlarge_buffers, join_datagrams
from innet.wire.check import seal
from innet.wire.frames import SOURCE_IP, SOURCE_PORT, Address, encapsulation
from innet.wire.records import Records, packet_bytes, packet_dtype


class Link:
    """A worker's attachment to its switch.

    `own` and `service` are the addresses that its packets and the switch's carry. `encapsulation`
    stands before every packet, `hello_encapsulation` before one without lanes. Both are empty where
    the kernel encapsulates. The `waker` ends a wait. The packets of a switch that is not `sealed`
    have a check of 0, and no other check is accepted.
    """

    def __init__(
        self,
        sock: socket.socket,
        lanes: int,
        own: Address,
        service: Address,
        encapsulation: bytes = b"",
        hello_encapsulation: bytes = b"",
        waker: Waker | None = None,
        *,
        sealed: bool = True,
    ) -> None:
        self._socket, self._waker = sock, waker
        self.ip = own.ip
        self._own = int.from_bytes(own.ip_bytes), own.udp_port
        source = int.from_bytes(service.ip_bytes), service.udp_port
        self.corrupted = 0
        self.encapsulation = encapsulation
        self.hello_encapsulation = hello_encapsulation
        self.dtype = packet_dtype(lanes, len(encapsulation))
        # The positions that identify a frame's sender. A host's network stack passes nothing else
        # on.
        told: tuple[tuple[int, bytes], ...] = ()
        if encapsulation:
            port = service.udp_port.to_bytes(2)
            told = (SOURCE_IP.start, service.ip_bytes), (SOURCE_PORT.start, port)
        self.arriving = fastpath.Format(self.dtype, *source, told, sealed=sealed)
        self.leaving = fastpath.Format(self.dtype, *self._own)
        self.native = None
        if library := fastpath.compiled():
            descriptor = waker.descriptor if waker else None
            self.native = fastpath.Socket(library, sock, self.arriving, descriptor)
        self._packets = self.native or NumpySocket(sock, self.dtype, source, told, sealed=sealed)
        sock.setblocking(False)
        enlarge_buffers(sock)
        join_datagrams(sock)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        if waker:
            self._poll.register(waker.descriptor, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Return when a packet is there, when the waker is used, or after `seconds`."""
        ready = self._poll.poll(max(0.0, seconds) * 1000)
        if self._waker and any(each == self._waker.descriptor for each, _ in ready):
            self._waker.reset()

    def pause(self, seconds: float) -> None:
        """Wait, so that packets accumulate."""
        time.sleep(seconds)

    def send(self, records: Records) -> None:
        """Seal equal-sized packets, and send them in order.

        Packets that the kernel cannot take are lost, as on a wire.
        """
        seal(records, *self._own)
        self._packets.send(records)

    def receive(self) -> Records:
        """Return the packets that have arrived, or the first of many; valid until the next call.

        Packets of another size are skipped. Damaged ones are counted in `corrupted`.
        """
        batch, corrupted = self._packets.receive()
        self.corrupted += corrupted
        return batch

    def close(self) -> None:
        """Close the socket."""
        self._socket.close()


def open_link(
    spec: str, service: Address, lanes: int, waker: Waker | None = None, *, sealed: bool = True
) -> Link:
    """Open the link that `spec` names, towards the switch at `service`.

    `spec` is ``host`` (the kernel's network stack) or ``udp:LOCAL_IP:PORT/REMOTE_IP:PORT``. Raises
    UsageError if the text makes no sense, if the switch is unreachable, or if the local address is
    in use.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        if spec == "host":
            connect_to_service(sock, service.ip, service.udp_port)
            own = Address("", *sock.getsockname())
            return Link(sock, lanes, own, service, waker=waker, sealed=sealed)
        local, remote = parse_endpoints(spec)
        _connect_cable(sock, spec, local, remote)
        own = frame_address(local)
        return Link(
            sock,
            lanes,
            own,
            service,
            encapsulation(own, service, packet_bytes(lanes)),
            encapsulation(own, service, packet_bytes(0)),
            waker,
            sealed=sealed,
        )
    except BaseException:
        sock.close()
        raise


def connect_to_service(sock: socket.socket, ip: str, port: int) -> None:
    """Connect a UDP socket to the switch's service address. Raises UsageError if no route leads there."""
    try:
        sock.connect((ip, port))
    except OSError as problem:
        raise UsageError(
            f"cannot open link 'host' to the switch's service address {ip}: {problem.strerror}; give the "
            f"interface that leads to the switch an address in its subnet (`ip route get {ip}` says by "
            "which way packets leave)"
        ) from problem


def _connect_cable(
    sock: socket.socket, spec: str, local: tuple[str, int], remote: tuple[str, int]
) -> None:
    try:
        sock.bind(local)
        sock.connect(remote)
    except OSError as problem:
        raise UsageError(
            f"cannot open link {spec!r}: {problem.strerror}; its first end has to be an address of this "
            "machine, with a port that nobody else has"
        ) from problem


def parse_endpoints(spec: str) -> tuple[tuple[str, int], tuple[str, int]]:
    """Return ``udp:A:P/B:Q`` as ((A, P), (B, Q)). Raises UsageError."""
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
    """Return the address of this end of a UDP cable inside the frames, derived from its UDP port."""
    high, low = divmod(local[1], 256)
    return Address(
        mac=f"02:00:0a:00:{high:02x}:{low:02x}", ip=f"10.0.{high}.{low}", udp_port=local[1]
    )
