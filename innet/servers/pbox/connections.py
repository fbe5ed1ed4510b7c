"""A worker's connections: one to the control side of every server, one to every core."""

import contextlib
import logging
import socket
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from innet.errors import InnetError, NotAuthorized, ParameterServerError, ServerLost
from innet.machine.forks import close_in_children
from innet.servers.pbox import messages, native
from innet.servers.pbox.messages import Malformed, Registration
from innet.servers.pbox.placement import FLOAT_BYTES, Placement, chunk_floats, place
from innet.servers.pbox.protocol import HEADER, MAGIC, Kind
from innet.servers.pbox.secured import ClientTls
from innet.servers.pbox.sockets import parse_address

if TYPE_CHECKING:
    from innet.servers.pbox.relay import Relay

_log = logging.getLogger("innet")

_RETRY_S = 0.1
# These limits matter only on a machine that is far too busy. On others, the answer comes at once.
_REASON_WITHIN_S = 20.0
_NOTICED_WITHIN_S = 20.0


def _broken(address: str, why: Exception) -> str:
    return (
        f"the connection to the parameter server at {address} broke ({why}): connect again; if the "
        f"server has ended, {messages.RESTART}"
    )


def closed(address: str) -> str:
    """Return the message for a server that has closed a connection without a reason."""
    return (
        f"the parameter server at {address} has closed the connection: if it has ended, "
        f"{messages.RESTART}"
    )


@dataclass(frozen=True)
class CoreConnection:
    """The connection to one core, and the positions of its chunks: an array of ``PIECE``."""

    sock: socket.socket
    pieces: np.ndarray


class Connections:
    """All connections of a worker."""

    def __init__(
        self, addresses: Sequence[str], timeout: float, security: ClientTls | None = None
    ) -> None:
        self.addresses, self._security = list(addresses), security
        self._hosts: list[str] = []
        self._relays: list[Relay] = []
        self.controls: list[socket.socket] = []
        self.cores: list[socket.socket] = []
        self.server_of_core: list[int] = []
        self._timeout = timeout

    @property
    def servers(self) -> range:
        """Return the servers' numbers."""
        return range(len(self.addresses))

    @property
    def names(self) -> str:
        """Return all servers' addresses, for a message."""
        return ", ".join(self.addresses)

    def open_control(self, server: int) -> None:
        """Connect to a server, which may start within the timeout, in place of an older connection.

        Raises ServerLost.
        """
        address = self.addresses[server]
        host, port = parse_address(address, "address")
        deadline = time.monotonic() + self._timeout
        silent = True
        while True:
            try:
                sock = socket.create_connection((host, port), max(0.1, deadline - time.monotonic()))
                break
            except OSError as why:
                if silent:
                    _log.warning(
                        "no parameter server answers at %s yet (%s): waiting for it, up to %g s",
                        address, why, self._timeout,
                    )  # fmt: skip
                    silent = False
                if time.monotonic() + _RETRY_S > deadline:
                    raise ServerLost(
                        f"no parameter server answers at {address} within {self._timeout:g} s "
                        f"({why}): start one with `innet pbox serve`, or name another address"
                    ) from None
                time.sleep(_RETRY_S)
        sock.settimeout(self._timeout)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for older in self.controls[server : server + 1]:
            older.close()
        self._hosts[server : server + 1] = [sock.getpeername()[0]]
        self.controls[server : server + 1] = [self._secured(sock, host, server)]

    def _secured(self, sock: socket.socket, host: str, server: int) -> socket.socket:
        """Return the socket to use for a connection. Raises NotAuthorized and ServerLost."""
        if self._security:
            sock, relay = self._security.secure(sock, host, self.addresses[server])
            self._relays.append(relay)
        close_in_children(sock)
        return sock

    def open_core(self, server: int, where: Sequence[Any], hello: bytes) -> None:
        """Connect to a core and send the HELLO. Raises ServerLost."""
        host = where[0] or self._hosts[server]
        name = where[0] or parse_address(self.addresses[server], "address")[0]
        try:
            sock = socket.create_connection((str(host), int(where[1])), self._timeout)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock = self._secured(sock, name, server)
            self.cores.append(sock)
            self.server_of_core.append(server)
            sock.sendall(hello)
            sock.setblocking(False)
        except OSError as why:
            raise self.sent_error(server) or ServerLost(
                f"a core of the parameter server at {self.addresses[server]}, at {host}:{where[1]}, "
                f"does not answer ({why}): let firewalls pass all ports of this host, and see to it "
                "that workers can reach the server's --data-host"
            ) from None

    def tell(self, server: int, message: Mapping[str, Any]) -> None:
        """Send a server a message. Raises the error that the server has sent, or ServerLost."""
        try:
            self.controls[server].settimeout(self._timeout)
            messages.send(self.controls[server], message)
        except OSError as why:
            raise self.sent_error(server) or ServerLost(
                _broken(self.addresses[server], why)
            ) from None

    def tell_all(self, message: Mapping[str, Any]) -> None:
        """Send all servers a message. Raises the error that a server has sent, or ServerLost."""
        for server in self.servers:
            self.tell(server, message)

    def ask(self, server: int, message: Mapping[str, Any], answer: str) -> Any:
        """Send a server a request. Return the reply's value under the name `answer`.

        Raises the error that the server has sent, or ServerLost.
        """
        self.tell(server, message)
        return self.receive(server)[answer]

    def receive(self, server: int, silent: InnetError | None = None) -> dict[str, Any]:
        """Return a server's next message. Raises the error that it contains, or ServerLost.

        If the server sends nothing, the error is `silent`, if there is one.
        """
        message = self._receive(server, silent=silent)
        if "error" in message:
            raise messages.raised(message)
        return message

    def _receive(
        self, server: int, within: float | None = None, silent: InnetError | None = None
    ) -> dict[str, Any]:
        address = self.addresses[server]
        try:
            self.controls[server].settimeout(within or self._timeout)
            message = messages.receive(self.controls[server], messages.MOST_ANSWER_BYTES)
        except TimeoutError:
            raise silent or ServerLost(
                f"the parameter server at {address} does not answer: is it overloaded?"
            ) from None
        except (OSError, Malformed) as why:
            raise ServerLost(_broken(address, why)) from None
        if message is None:
            if problem := next((each.problem for each in self._relays if each.problem), ""):
                raise NotAuthorized(
                    f"the parameter server at {address} has ended the TLS connection: {problem}; is the "
                    "certificate a worker's, of an authority that the server trusts?"
                )
            raise ServerLost(closed(address))
        return message

    def await_ready(self, silent: InnetError | None) -> None:
        """Wait until all servers have the initial parameters. Raises as :meth:`receive`."""
        for server in self.servers:
            self.receive(server, silent)

    def sent_error(self, server: int) -> InnetError | None:
        """Return the error with which a server has ended the job, or None if it sends none in time.

        An error that another server has sent counts as well. If the server's process has ended, its
        connection is closed, and there is nothing to wait for.
        """
        opened = range(len(self.controls))
        for each in [server, *(other for other in opened if other != server)]:
            deadline = time.monotonic() + (_REASON_WITHIN_S if each == server else 0.01)
            while (left := deadline - time.monotonic()) > 0:
                try:
                    message = self._receive(each, left)
                except ServerLost:
                    break
                except InnetError as why:
                    return why
                if "error" in message:  # other messages were sent before the error
                    return messages.raised(message)
        return None

    def close(self, *, goodbye: bool) -> None:
        """Close the connections. With `goodbye`, first tell the servers that this is on purpose.

        Then wait up to 20 s until the servers have closed their side. From then on the rank has left
        the job, and if it was the last one, the job's name is free.
        """
        if goodbye:
            with contextlib.suppress(InnetError):
                self.tell_all({"goodbye": True})
        for sock in self.cores:
            sock.close()
        for sock in self.controls:
            with contextlib.suppress(OSError):
                sock.shutdown(socket.SHUT_WR)
        deadline = time.monotonic() + _NOTICED_WITHIN_S
        for sock in self.controls:
            with contextlib.suppress(OSError):
                while (left := deadline - time.monotonic()) > 0:
                    sock.settimeout(left)
                    if not sock.recv(1 << 12):
                        break
            sock.close()
        for relay in self._relays:
            relay.close()


def open_connections(
    addresses: Sequence[str],
    registration: Registration,
    timeout: float,
    security: ClientTls | None = None,
) -> tuple[Connections, list[CoreConnection]]:
    """Register with all servers and connect to all their cores.

    With `security` it uses mutual TLS. Raises the error that a server answers with, ServerLost, and
    NotAuthorized.
    """
    chunk_floats(registration.chunk_bytes)  # a wrong size is an error before any server answers
    connections = Connections(addresses, timeout, security)
    try:
        endpoints = [_greet(connections, server) for server in connections.servers]
        complete = replace(registration, cores=tuple(map(len, endpoints)))
        complete.check()
        placement = place(complete.sizes, complete.cores, complete.chunk_bytes)
        for server in connections.servers:
            if len(endpoints) > 1:
                # The server does not wait long for a registration, and others may have started late.
                endpoints[server] = _greet(connections, server)
            connections.tell(server, replace(complete, server=server).message())
            answer = connections.receive(server)
            for key, where in zip(answer["keys"], endpoints[server], strict=True):
                content = bytes.fromhex(key)
                hello = HEADER.pack(
                    MAGIC, Kind.HELLO, complete.rank, len(content), int(answer["job"]), 0.0
                )
                connections.open_core(server, where, hello + content)
    except BaseException as why:
        connections.close(goodbye=False)
        if isinstance(why, (KeyError, TypeError, ValueError)):
            raise ParameterServerError(
                f"an answer of {connections.names} is not PBox's: are these addresses "
                "of `innet pbox serve`?"
            ) from why
        raise
    return connections, [
        CoreConnection(sock, _pieces(placement, core))
        for core, sock in enumerate(connections.cores)
    ]


def _greet(connections: Connections, server: int) -> list[Any]:
    connections.open_control(server)
    cores = connections.ask(server, {"pbox": messages.VERSION}, "cores")
    return [[str(host), int(port)] for host, port in cores]


def _pieces(placement: Placement, core: int) -> np.ndarray:
    chunks = placement.of_core(core)
    pieces = np.empty(len(chunks), native.PIECE)
    pieces["key"] = placement.key[chunks]
    pieces["offset"] = placement.offset[chunks] * FLOAT_BYTES
    pieces["bytes"] = placement.length[chunks] * FLOAT_BYTES
    return pieces
