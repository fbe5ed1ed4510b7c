"""How packets leave and reach this host: one connected UDP socket, a batch of packets per call.

Two kinds of link, one class. On a real network the kernel puts UDP, IP and Ethernet in front of a
packet. On a link like ``udp:127.0.0.1:8001/127.0.0.1:9001``, a cable made of UDP to a port of the
embedded switch, whole frames are the datagrams' payload and the encapsulation is ours. Either way
packets are of one size, so that the kernel can cut one buffer into many datagrams
(``UDP_SEGMENT``) and hand many over as one (``UDP_GRO``).

What leaves is sealed with the check of the packet format, and what comes with a check that does not
fit is dropped and counted.
"""

import select
import socket
import time

from innet.errors import UsageError
from innet.host import fastpath
from innet.host.bell import Bell
from innet.host.numpy_socket import NumpySocket
from innet.sockets import enlarge_buffers, join_datagrams
from innet.wire.check import seal
from innet.wire.frames import SOURCE_IP, SOURCE_PORT, Address, encapsulation
from innet.wire.records import Records, packet_bytes, packet_dtype


class Link:
    """A worker's attachment to its switch.

    `own` and `service` are the addresses that its packets and the switch's carry. `encapsulation`
    stands in front of every packet sent or received, `hello_encapsulation` in front of one without
    lanes; both are empty where the kernel does it. The `bell` ends a wait. What a switch sends that is
    not `sealed` has a check of 0, and nothing else.
    """

    def __init__(
        self,
        sock: socket.socket,
        lanes: int,
        own: Address,
        service: Address,
        encapsulation: bytes = b"",
        hello_encapsulation: bytes = b"",
        bell: Bell | None = None,
        *,
        sealed: bool = True,
    ) -> None:
        self._socket, self._bell = sock, bell
        self._own = int.from_bytes(own.ip_bytes), own.udp_port
        source = int.from_bytes(service.ip_bytes), service.udp_port
        self.corrupted = 0
        self.encapsulation = encapsulation
        self.hello_encapsulation = hello_encapsulation
        self.dtype = packet_dtype(lanes, len(encapsulation))
        # Where a frame says who sent it. From a host's network stack nothing else comes.
        told: tuple[tuple[int, bytes], ...] = ()
        if encapsulation:
            port = service.udp_port.to_bytes(2)
            told = (SOURCE_IP.start, service.ip_bytes), (SOURCE_PORT.start, port)
        self.arriving = fastpath.Format(self.dtype, *source, told, sealed=sealed)
        self.leaving = fastpath.Format(self.dtype, *self._own)
        self.native = None
        if library := fastpath.compiled():
            descriptor = bell.descriptor if bell else None
            self.native = fastpath.Socket(library, sock, self.arriving, descriptor)
        self._packets = self.native or NumpySocket(sock, self.dtype, source, told, sealed=sealed)
        sock.setblocking(False)
        enlarge_buffers(sock)
        join_datagrams(sock)
        self._poll = select.poll()
        self._poll.register(sock, select.POLLIN)
        if bell:
            self._poll.register(bell.descriptor, select.POLLIN)

    def wait(self, seconds: float) -> None:
        """Return when a packet is there, when the bell rings, or after `seconds`."""
        ready = self._poll.poll(max(0.0, seconds) * 1000)
        if self._bell and any(each == self._bell.descriptor for each, _ in ready):
            self._bell.hush()

    def pause(self, seconds: float) -> None:
        """Let packets come together."""
        time.sleep(seconds)

    def send(self, records: Records) -> None:
        """Seal equal-sized packets, and send them in order.

        What the kernel cannot take is lost, as on a wire.
        """
        seal(records, *self._own)
        self._packets.send(records)

    def receive(self) -> Records:
        """The packets that have arrived, or the first of many; valid until the next call.

        What is not a packet of this link's size is skipped, what is not intact is counted in
        `corrupted`.
        """
        batch, corrupted = self._packets.receive()
        self.corrupted += corrupted
        return batch

    def close(self) -> None:
        """Give the socket back."""
        self._socket.close()


def open_link(
    spec: str, service: Address, lanes: int, bell: Bell | None = None, *, sealed: bool = True
) -> Link:
    """Open the link that `spec` names, towards the switch at `service`.

    `spec` is ``host`` (the kernel's network stack) or ``udp:LOCAL_IP:PORT/REMOTE_IP:PORT``.
    Raises UsageError if the text makes no sense or the local address is in use.
    """
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        if spec == "host":
            sock.connect((service.ip, service.udp_port))
            own = Address("", *sock.getsockname())
            return Link(sock, lanes, own, service, bell=bell, sealed=sealed)
        local, remote = parse_endpoints(spec)
        sock.bind(local)
        sock.connect(remote)
        own = frame_address(local)
        return Link(
            sock,
            lanes,
            own,
            service,
            encapsulation(own, service, packet_bytes(lanes)),
            encapsulation(own, service, packet_bytes(0)),
            bell,
            sealed=sealed,
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
