"""The link of this host to its switch, with a batch of packets per call.

There are three kinds of link, in one class:

* ``host``: on a real network the kernel puts UDP, IP and Ethernet before a packet.
* ``udp:127.0.0.1:8001/127.0.0.1:9001``: a cable made of UDP to a port of innet-switch. The
  datagrams' payload is whole frames, which this module builds.
* ``shm:/run/innet/1``: a cable in shared memory to a port of innet-switch on the same machine. It
  carries whole frames, too.

Packets of a link have one of two sizes: with lanes, or bare. Packets of one size that leave together are
one buffer, which the kernel cuts into datagrams (``UDP_SEGMENT``). The kernel also joins many datagrams
that arrive into one (``UDP_GRO``).

Outgoing packets get the check of the packet format. Incoming packets whose check does not match are
dropped and counted.
"""

import contextlib
import errno
import hashlib
import os
import socket
import time
from collections.abc import Iterator
from pathlib import Path

from innet.errors import UsageError
from innet.host import fastpath, refusals
from innet.host.connections import (
    Connection,
    Format,
    Formats,
    SharedMemoryConnection,
    UdpConnection,
)
from innet.host.numpy_socket import NumpySocket
from innet.host.packets import Packets
from innet.host.refusals import MISUSES
from innet.host.waker import Waker
from innet.machine.boot import boot_id
from innet.machine.forks import close_in_children
from innet.machine.sockets import enlarge_buffers, join_datagrams, route_mtu, take_part_in_ecn
from innet.wire.check import seal
from innet.wire.frames import SOURCE_IP, SOURCE_PORT, Address, encapsulation
from innet.wire.records import Records, least_mtu, packet_bytes, packet_dtype

_WAY_WITHIN, _WAY_AGAIN = 2.0, 0.1  # seconds in which there has to be a way, and between two looks
_SHARED = "shm:"
_SHARED_MAC, _FAR_MAC = 0x06, 0x0A  # locally administered, and not the 02 of other addresses
_SHARED_IP, _FAR_IP = 0x80, 0x40  # 10.128.0.0/10 and 10.64.0.0/10
_NEEDS_COMPILER = "a link through shared memory needs a C compiler: install one, or use 'udp:...'"
_SHARED_PROBLEMS = {
    errno.EACCES: "this user may not write to the switch's socket; run the worker as the switch's user, "
    "or give this user the right to",
    errno.ENOENT: "no switch has made this socket; start innet-switch with a port at this path",
    errno.ECONNREFUSED: "the switch that made this socket has ended; start it again",
    errno.EBUSY: "another worker is connected to this port of the switch",
    errno.EPROTO: "the switch is another version of innet",
    errno.ETIMEDOUT: "the switch has not answered",
}


class Link:
    """A worker's attachment to its switch: a UDP socket, or the path of a switch's Unix socket.

    `own` and `service` are the addresses that its packets and the switch's carry. `encapsulation`
    stands before a packet with lanes, `bare_encapsulation` before one without. Both are empty where
    the kernel encapsulates. The `waker` ends a wait. The packets of a switch that is not `sealed`
    have a check of 0, and no other check is accepted.
    """

    def __init__(
        self,
        end: socket.socket | Path,
        lanes: int,
        own: Address,
        service: Address,
        encapsulation: bytes = b"",
        bare_encapsulation: bytes = b"",
        waker: Waker | None = None,
        *,
        sealed: bool = True,
    ) -> None:
        self.ip = own.ip
        self._far = service.ip
        self._own = int.from_bytes(own.ip_bytes), own.udp_port
        source = int.from_bytes(service.ip_bytes), service.udp_port
        self.corrupted = 0
        self.sealed = sealed
        self.encapsulation = encapsulation
        self.bare_encapsulation = bare_encapsulation
        self.dtype = packet_dtype(lanes, len(encapsulation))
        self.bare_dtype = packet_dtype(0, len(encapsulation))
        # The positions that identify the sender of a frame on a cable. Without a cable, the kernel
        # passes on nothing but the switch's packets.
        told: tuple[tuple[int, bytes], ...] = ()
        if encapsulation:
            port = service.udp_port.to_bytes(2)
            told = (SOURCE_IP.start, service.ip_bytes), (SOURCE_PORT.start, port)
        bare, full = (
            Format(dtype, *source, told, sealed=sealed) for dtype in (self.bare_dtype, self.dtype)
        )
        arriving = Formats(bare, full)
        self.leaving = Formats(Format(self.bare_dtype, *self._own), Format(self.dtype, *self._own))
        self.native: Connection | None = None
        library, descriptor = fastpath.compiled(), waker.descriptor if waker else None
        if isinstance(end, Path):
            if not library:
                raise UsageError(_NEEDS_COMPILER)
            self.native = SharedMemoryConnection(library, end, arriving, descriptor)
            self._packets: Connection | NumpySocket = self.native
        else:
            end.setblocking(False)
            enlarge_buffers(end)
            join_datagrams(end)
            if not encapsulation:
                take_part_in_ecn(end)
            elif end.family == socket.AF_INET:
                self._far = end.getpeername()[0]
            if library:
                self.native = UdpConnection(library, end, arriving, descriptor)
            self._packets = self.native or NumpySocket(
                end, (self.dtype, self.bare_dtype), source, told, waker, sealed=sealed
            )
        close_in_children(self)

    @property
    def is_sending(self) -> bool:
        """Return whether packets wait for this host's link, as far as is known."""
        return self._packets.is_sending

    @property
    def refusal(self) -> str:
        """Return why this machine's kernel has refused the last packets, and what to check, or ""."""
        return refusals.explanation(self._packets.refused, self._far)

    def wait(self, seconds: float) -> None:
        """Return when a packet is there, when the waker is used, or after `seconds`."""
        self._packets.wait(seconds)

    def send(self, records: Records) -> None:
        """Seal equal-sized packets, and send them in order.

        Packets that the kernel refuses or has no room for are lost, as on a wire. Raises OSError if the
        socket is not usable as such.
        """
        seal(records, *self._own)
        self._packets.send(records)

    def receive(self) -> Packets:
        """Return the packets that have arrived, or the first of many; valid until the next call.

        Packets of other sizes are skipped. Damaged ones are counted in `corrupted`.
        """
        batch, corrupted = self._packets.receive()
        self.corrupted += corrupted
        return batch

    def close(self) -> None:
        """End the connection."""
        self._packets.close()


def open_link(
    spec: str, service: Address, lanes: int, waker: Waker | None = None, *, sealed: bool = True
) -> Link:
    """Open the link that `spec` names, towards the switch at `service`.

    `spec` is ``host`` (the kernel's network stack), ``udp:LOCAL_IP:PORT/REMOTE_IP:PORT`` or
    ``shm:PATH``. Raises UsageError if the text makes no sense, if the switch is unreachable, or if
    the local address is in use.
    """
    if spec == "host":
        with _socket() as sock:
            connect_to_service(sock, service.ip, service.udp_port)
            _check_mtu(sock, service.ip, lanes)
            own = Address("", *sock.getsockname())
            return Link(sock, lanes, own, service, waker=waker, sealed=sealed)
    own = own_address(spec)
    before = encapsulation(own, service, packet_bytes(lanes))
    before_bare = encapsulation(own, service, packet_bytes(0))
    if path := _shared_path(spec):
        with _explained(spec):
            return Link(path, lanes, own, service, before, before_bare, waker, sealed=sealed)
    with _socket() as sock:
        _connect_cable(sock, spec, *parse_endpoints(spec))
        return Link(sock, lanes, own, service, before, before_bare, waker, sealed=sealed)


@contextlib.contextmanager
def _socket() -> Iterator[socket.socket]:
    """Yield a UDP socket, which is closed if the block fails."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        yield sock
    except BaseException:
        sock.close()
        raise


@contextlib.contextmanager
def _explained(spec: str) -> Iterator[None]:
    """Raise UsageError instead of the OSErrors of a connection through shared memory."""
    try:
        yield
    except OSError as problem:
        why = _SHARED_PROBLEMS.get(problem.errno or 0, problem.strerror)
        raise UsageError(f"cannot open link {spec!r}: {why}") from problem


def connect_to_service(sock: socket.socket, ip: str, port: int) -> None:
    """Connect a UDP socket to the switch's service address. Raises UsageError if no route leads there."""
    try:
        _connect(sock, (ip, port))
    except OSError as problem:
        raise UsageError(
            f"cannot open link 'host' to the switch's service address {ip}: {problem.strerror}; give the "
            f"interface that leads to the switch an address in its subnet (`ip route get {ip}` says by "
            "which way packets leave)"
        ) from problem


def _check_mtu(sock: socket.socket, ip: str, lanes: int) -> None:
    """Raise UsageError if the kernel would cut packets into fragments, which no switch sums."""
    needed = least_mtu(lanes)
    if (most := route_mtu(sock)) < needed:
        raise UsageError(
            f"cannot open link 'host' to the switch's service address {ip}: packets with {lanes} lanes "
            f"need an MTU of {needed} bytes, and this way has {most}; raise the MTU of all "
            "interfaces on the way (`ip link set dev NAME mtu 9000`), or add the switch with fewer lanes"
        )


def _connect_cable(
    sock: socket.socket, spec: str, local: tuple[str, int], remote: tuple[str, int]
) -> None:
    try:
        sock.bind(local)
    except OSError as problem:
        raise UsageError(
            f"cannot open link {spec!r}: {problem.strerror}; its first end has to be an address of this "
            "machine, with a port that nobody else has"
        ) from problem
    try:
        _connect(sock, remote)
    except OSError as problem:
        why = refusals.explanation(problem.errno or 0, remote[0])
        if isinstance(problem, socket.gaierror):
            why = f"{problem.strerror}; its second end has to be an address of the switch's machine"
        raise UsageError(f"cannot open link {spec!r}: {why}") from problem


def _connect(sock: socket.socket, address: tuple[str, int]) -> None:
    """Connect a UDP socket, for which the kernel needs a way to the address. Raises OSError.

    A firewall or a route may forbid that for a moment.
    """
    until = time.monotonic() + _WAY_WITHIN
    while True:
        try:
            return sock.connect(address)
        except socket.gaierror:
            raise
        except OSError as problem:
            if problem.errno is None or problem.errno in MISUSES or time.monotonic() > until:
                raise
        time.sleep(_WAY_AGAIN)


def own_address(spec: str) -> Address:
    """Return the address of this end of a cable inside the frames. Raises UsageError."""
    if path := _shared_path(spec):
        return shared_address(path)
    return frame_address(parse_endpoints(spec)[0])


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
            f"link {spec!r} is neither 'host' nor 'udp:LOCAL_IP:PORT/REMOTE_IP:PORT' nor 'shm:PATH'"
        ) from None


def _shared_path(spec: str) -> Path | None:
    """Return the path of a cable in shared memory, or None for another kind of link."""
    path = spec.removeprefix(_SHARED)
    return Path(path).absolute() if path and path != spec else None


def _endpoint(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not 0 < int(port) < 1 << 16:
        raise ValueError
    return host, int(port)


def frame_address(local: tuple[str, int]) -> Address:
    """Return the address of this end of a UDP cable inside the frames.

    It is derived from the UDP port, and beyond loopback from the host as well, because the workers of
    several machines may have the same port.
    """
    host, port = local
    high, low = divmod(port, 256)
    if host.startswith("127."):
        return Address(
            mac=f"02:00:0a:00:{high:02x}:{low:02x}", ip=f"10.0.{high}.{low}", udp_port=port
        )
    return _derived(f"{host}:{port}".encode(), _FAR_MAC, _FAR_IP, port)


def shared_address(path: Path) -> Address:
    """Return the address of a worker inside the frames of a cable in shared memory.

    It is derived from the path and the machine, because the switches of a tree may have the same paths on
    several machines. No frame address of a UDP cable begins with the same bytes.
    """
    return _derived(os.fsencode(path) + b"\0" + boot_id().encode(), _SHARED_MAC, _SHARED_IP, None)


def _derived(key: bytes, first_of_mac: int, second_of_ip: int, port: int | None) -> Address:
    """Return an address from a digest. Without a port, the port also comes from the digest."""
    digest = hashlib.blake2b(key, digest_size=5).digest()
    high, *rest = digest[:3]
    return Address(
        mac=":".join(f"{byte:02x}" for byte in (first_of_mac, *digest)),
        ip=".".join(map(str, (10, second_of_ip | high & 0x3F, *rest))),
        udp_port=int.from_bytes(digest[3:]) | 0x8000 if port is None else port,
    )
