"""Channels to servers, with mutual TLS or in plain text, and the reasons for which TLS prevents one.

gRPC reports any failure of TLS as a server that cannot be reached. So this module makes a further
connection, without gRPC, to find the reason.
"""

import contextlib
import queue
import socket
import ssl
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import Future
from datetime import UTC, datetime

import grpc

from innet.errors import NotAuthorized
from innet.machine.forks import cut_in_children
from innet.rpc.tls import Identity

_NO_ANSWER = (
    grpc.StatusCode.CANCELLED,
    grpc.StatusCode.DEADLINE_EXCEEDED,
    grpc.StatusCode.UNAVAILABLE,
)
SILENT_FOR_S = 10.0
"""The time in which a client has to begin to speak with a server."""

CALLS_PER_CONNECTION = 128
"""The most calls of one client that a server works on, or that wait there."""

_MOST_METADATA = 16 << 10
_DOUBTFUL_AFTER, _ANSWER_WITHIN = 0.5, 1.0


def channel(
    address: str, identity: Identity | None, options: Sequence[tuple[str, int]] = ()
) -> grpc.Channel:
    """Return a channel to `address`: over TLS with an identity, in plain text without one."""
    if identity:
        return grpc.secure_channel(address, identity.channel_credentials(), options)
    return grpc.insecure_channel(address, options)


def bounded_connections(most: int) -> list[tuple[str, int]]:
    """Return the options of a gRPC server that serves at most `most` connections at the same time.

    It closes further ones. A client has `SILENT_FOR_S` seconds to begin with its TLS handshake and with
    gRPC. So silent connections keep the place of others for a short time only, and file descriptors are
    left for other files. A connection has at most `CALLS_PER_CONNECTION` calls under way, each with at
    most 16 KB of headers.
    """
    return [
        ("grpc.max_allowed_incoming_connections", most),
        ("grpc.server_handshake_timeout_ms", int(1000 * SILENT_FOR_S)),
        ("grpc.max_concurrent_streams", CALLS_PER_CONNECTION),
        ("grpc.max_metadata_size", _MOST_METADATA),
    ]


def answered(channel: grpc.Channel, timeout: float) -> Future[bool]:
    """Return a future that tells whether a server answers on a channel within `timeout` seconds.

    It may answer anything. innet's servers answer with an error, because they do not have the method that
    is called. gRPC's own ``channel_ready_future`` would go on watching the channel for a moment. If the
    channel had been closed meanwhile, the future would then fail in a thread of its own.

    The call has a thread, because no signal interrupts it there. If a signal interrupted the main thread
    while gRPC starts a call, the channel's ``close`` would wait forever for the call's end.
    """
    answer = Future[bool]()

    def call() -> None:
        try:
            channel.unary_unary("/innet/answered")(b"", timeout, wait_for_ready=True)
        except grpc.RpcError as problem:
            answer.set_result(problem.code() not in _NO_ANSWER)
        except ValueError:  # raised by gRPC for a channel that was closed meanwhile
            answer.set_result(False)
        else:
            answer.set_result(True)

    threading.Thread(target=call, name="innet-connect", daemon=True).start()
    return answer


def await_ready(
    channels: Mapping[str, grpc.Channel], identity: Identity | None, timeout: float, advice: str
) -> str:
    """Wait until one of these channels, which are keyed by address, is connected. Return its address.

    Raises TimeoutError if that takes more than `timeout` seconds, and NotAuthorized if TLS prevents it.
    The error's message completes a sentence that begins with the server. `advice` is a part of it if only
    one side uses TLS.
    """
    connected: queue.SimpleQueue[str] = queue.SimpleQueue()
    for address, each in channels.items():

        def note(answer: Future[bool], address: str = address) -> None:
            if answer.result():
                cut_in_children(address)
                connected.put(address)

        answered(each, timeout).add_done_callback(note)
    doubtful = min(timeout, _DOUBTFUL_AFTER)
    for wait in (doubtful, timeout - doubtful):
        with contextlib.suppress(queue.Empty):
            return connected.get(timeout=wait)
        for address in channels:
            if why := _obstacle(address, identity, advice):
                raise NotAuthorized(why)
    raise TimeoutError


def server_expiry(address: str, identity: Identity) -> datetime | None:
    """Return when the certificate of the server at `address` expires, or None if it does not answer."""
    try:
        with (
            _connected(address) as sock,
            _context(identity).wrap_socket(sock, server_hostname=_host(address)) as secured,
        ):
            ends = str((secured.getpeercert() or {})["notAfter"])
    except (OSError, ValueError):
        return None
    return datetime.fromtimestamp(ssl.cert_time_to_seconds(ends), UTC)


def _obstacle(address: str, identity: Identity | None, advice: str) -> str | None:
    """Return the reason why TLS prevents a connection, or None. gRPC does not report it."""
    try:
        with _connected(address) as sock:
            if identity is None:
                return _takes_only_tls(sock, advice)
            return _refusal(sock, _host(address), identity, advice)
    except (OSError, ValueError):  # no server, or an address that only gRPC understands
        return None


def _takes_only_tls(sock: socket.socket, advice: str) -> str | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    try:
        context.wrap_socket(sock).close()
    except ssl.SSLError:
        return None
    return f"speaks only TLS: {advice}"


def _refusal(sock: socket.socket, host: str, identity: Identity, advice: str) -> str | None:
    try:
        with _context(identity).wrap_socket(sock, server_hostname=host) as secured:
            # With TLS 1.3 the client's handshake ends before the server has checked its certificate.
            # A gRPC server sends first; if it refuses the client, it closes the connection.
            refused = not secured.recv(1)
    except ssl.SSLCertVerificationError as problem:
        return identity.distrust(problem, host)
    except ssl.SSLError as problem:
        if "ALERT" not in (problem.reason or ""):
            return f"does not speak TLS: {advice}"
        refused = True
    except ConnectionError:
        refused = True
    if refused:
        return (
            f"refuses {identity.certificate}: it has to be for this use, and of an authority "
            "that the other side trusts"
        )
    return None


def _context(identity: Identity) -> ssl.SSLContext:
    context = identity.client_context()
    context.set_alpn_protocols(["h2"])
    return context


def _host(address: str) -> str:
    """Return the name that the certificate of the server at `address` is for."""
    return "localhost" if address.startswith("unix:") else address.rpartition(":")[0].strip("[]")


def _connected(address: str) -> socket.socket:
    if address.startswith("unix:"):
        sock = socket.socket(socket.AF_UNIX)
        sock.settimeout(_ANSWER_WITHIN)
        sock.connect(address.removeprefix("unix:"))
        return sock
    host, _, port = address.rpartition(":")
    return socket.create_connection((host.strip("[]"), int(port)), _ANSWER_WITHIN)
