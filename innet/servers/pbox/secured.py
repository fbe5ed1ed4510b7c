"""Mutual TLS at both sides: what a server checks in a certificate, and how it refuses a client.

The folders are those of the controller and of its workers: see :mod:`innet.rpc.tls`. A client needs the
certificate of a worker or of an administrator, as if it joined a job of the controller.
"""

import contextlib
import os
import socket
import ssl
import tempfile
import threading
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

from innet.errors import InnetError, NoCapacity, NotAuthorized, ServerLost
from innet.machine.tcp import notice_death
from innet.machine.threads import start
from innet.rpc import tls
from innet.rpc.revocation import Revocations
from innet.rpc.roles import check_allowed
from innet.servers.pbox.lobby import Lobby
from innet.servers.pbox.protocol import DEAD_AFTER_MS
from innet.servers.pbox.relay import Relay
from innet.servers.pbox.sockets import shut

_MOST_HANDSHAKES = 512
_HANDSHAKE_WITHIN_S = 5.0
_LEAVES_WITHIN_S = 1.0
_MOST_CONNECTIONS = 4096
"""Connections with a certificate. What is behind a front bounds them, too, and refuses idle ones."""

_METHOD = "Join"
_BREATHER_S = 0.1
_BACKLOG = 512


class ServerTls:
    """A server's certificate, and its check of clients. Raises UsageError and NotAuthorized."""

    def __init__(self, folder: Path) -> None:
        identity = tls.load(folder, tls.CONTROLLER)
        self._context, self._revocations = identity.server_context(), Revocations(identity.revoked)

    def admit(self, sock: socket.socket) -> ssl.SSLSocket:
        """Return a connection whose TLS handshake is to come, within 5 s. Raises OSError."""
        sock.settimeout(_HANDSHAKE_WITHIN_S)
        return self._context.wrap_socket(sock, server_side=True, do_handshake_on_connect=False)

    def check(self, shown: dict[str, Any]) -> None:
        """Raise NotAuthorized if the certificate that was shown may not join jobs, or is revoked."""
        self._revocations.check(shown)
        check_allowed(tls.roles(shown), _METHOD)


class Front:
    """A TCP port for TLS, in front of a plain `listener` that only this process can reach.

    `outer` is the listening socket of the port. A client with a certificate that does not suffice gets
    the bytes of `refusal`, and is reported. Clients without a certificate keep nobody out: they are in a
    :class:`Lobby`. Raises NoCapacity, and closes `outer`, if there are too many threads or open files.
    """

    def __init__(
        self,
        outer: socket.socket,
        security: ServerTls,
        refusal: Callable[[InnetError], bytes],
        report: Callable[..., None],
    ) -> None:
        self._outer, self._security, self._refusal = outer, security, refusal
        self._report = report
        with contextlib.ExitStack() as stack:
            stack.enter_context(outer)
            try:
                self.listener = stack.enter_context(socket.socket(socket.AF_UNIX))
                self._inner = _bind(self.listener)
            except OSError as why:
                raise NoCapacity(
                    f"cannot open a socket for TLS: {why.strerror}; if too many files are open, raise "
                    "the limit (`ulimit -n`)"
                ) from None
            stack.callback(os.close, self._inner)
            self.listener.listen(_BACKLOG)
            self._lock, self._closed = threading.Lock(), threading.Event()
            self._room = threading.BoundedSemaphore(_MOST_CONNECTIONS)
            self._relays: set[Relay] = set()
            self._lobby = Lobby()
            self._greeting: dict[socket.socket, threading.Thread] = {}
            self._accepting = threading.Thread(target=self._accept, name="pbox front")
            start(self._accepting)
            stack.pop_all()

    def close(self) -> None:
        """End all connections and threads. The listener belongs to the caller."""
        self._closed.set()
        self._outer.shutdown(socket.SHUT_RDWR)
        self._accepting.join()
        self._outer.close()
        with self._lock:
            greeting = dict(self._greeting)
        for sock, thread in greeting.items():
            shut(sock)
            thread.join()
        with self._lock:
            relays = set(self._relays)
        for relay in relays:
            relay.close()
        os.close(self._inner)

    def _accept(self) -> None:
        while True:
            try:
                sock, address = self._outer.accept()
            except OSError:
                if self._closed.wait(_BREATHER_S):  # if it is not closed, too many files are open
                    return
                continue
            try:
                _keep_alive(sock)
                secured = self._security.admit(sock)
            except OSError:  # the client has gone
                sock.close()
            else:
                self._start_greeting(secured, address[0])

    def _start_greeting(self, secured: ssl.SSLSocket, address: str) -> None:
        thread = threading.Thread(target=self._greet, args=(secured,), name="pbox handshake")
        with self._lock:
            self._lobby.enter(secured, address, _MOST_HANDSHAKES, _HANDSHAKE_WITHIN_S)
            try:
                start(thread)
            except NoCapacity as why:
                self._report("refused", why=str(why))
                self._lobby.remove(secured)
                secured.close()
            else:
                self._greeting[secured] = thread

    def _greet(self, secured: ssl.SSLSocket) -> None:
        """Make a relay of a connection whose client may join jobs."""
        made = False
        try:
            made = self._relay(secured)
        except OSError:
            pass  # it does not speak TLS, has no certificate of our authorities, or has gone
        except NoCapacity as why:
            self._report("refused", why=str(why))
        finally:
            self._lobby.remove(secured)
            with self._lock:
                self._greeting.pop(secured, None)
            if not made:
                secured.close()

    def _relay(self, secured: ssl.SSLSocket) -> bool:
        secured.do_handshake()
        shown = tls.shown_to(secured)
        try:
            self._check(shown)
        except NotAuthorized as why:
            self._refuse(secured, why)
            return False
        if not self._lobby.remove(secured):  # its place was needed
            return False
        with contextlib.ExitStack() as stack:
            if not self._room.acquire(blocking=False):
                raise NoCapacity(f"this server has {_MOST_CONNECTIONS} connections: use another")
            stack.callback(self._room.release)
            plain = stack.enter_context(socket.socket(socket.AF_UNIX))
            plain.connect(f"/proc/self/fd/{self._inner}")
            with self._lock:
                self._relays.add(Relay(secured, plain, partial(self._check, shown), self._ended))
            stack.pop_all()
        return True

    def _check(self, shown: dict[str, Any]) -> None:
        try:
            self._security.check(shown)
        except NotAuthorized as why:
            self._report("refused", who=tls.name(shown), why=str(why))
            raise

    def _refuse(self, secured: ssl.SSLSocket, why: InnetError) -> None:
        """Send the reason, and wait a little until the client hangs up: a reset could lose the reason.

        Meanwhile the connection is in the lobby, so its place is free for any other one.
        """
        until = time.monotonic() + _LEAVES_WITHIN_S
        secured.settimeout(_LEAVES_WITHIN_S)
        secured.sendall(self._refusal(why))
        shut(secured, socket.SHUT_WR)
        while (left := until - time.monotonic()) > 0:
            secured.settimeout(left)
            if not secured.recv(1 << 12):
                break

    def _ended(self, relay: Relay) -> None:
        with self._lock:
            self._relays.discard(relay)
        self._room.release()


def _bind(listener: socket.socket) -> int:
    """Bind a Unix socket, and return a descriptor by which only this process reaches it.

    The socket has no file. Nobody else can open it, and nothing stays behind if this process is
    killed.
    """
    with tempfile.TemporaryDirectory(prefix="innet-pbox-") as folder:  # nobody else can enter it
        listener.bind(f"{folder}/core")
        return os.open(f"{folder}/core", os.O_PATH | os.O_CLOEXEC)


class ClientTls:
    """A worker's certificate, and its connections. Raises UsageError and NotAuthorized."""

    def __init__(self, folder: Path) -> None:
        self._identity = tls.load(folder, tls.WORKER)
        self._context = self._identity.client_context()

    def secure(self, sock: socket.socket, host: str, address: str) -> tuple[socket.socket, Relay]:
        """Return a plain socket that stands for a connection, and its relay.

        `host` is the name that the server's certificate has to have, and `address` is for errors. Raises
        NotAuthorized, ServerLost, and NoCapacity if there are too many threads.
        """
        try:
            secured = self._context.wrap_socket(sock, server_hostname=host)
        except OSError as why:
            sock.close()
            if isinstance(why, ssl.SSLCertVerificationError):
                reason = self._identity.distrust(why, host)
                raise NotAuthorized(f"the parameter server at {address} {reason}") from None
            raise ServerLost(
                f"the parameter server at {address} made no TLS connection: {why}; is it served with "
                "--tls?"
            ) from None
        with contextlib.ExitStack() as stack:
            stack.enter_context(secured)
            plain, inner = map(stack.enter_context, socket.socketpair())
            relay = Relay(secured, inner)
            stack.pop_all()
        return plain, relay


def _keep_alive(sock: socket.socket) -> None:
    """Let the kernel notice when a client's machine has died, as cores and the control side do it."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    notice_death(sock)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, DEAD_AFTER_MS)
