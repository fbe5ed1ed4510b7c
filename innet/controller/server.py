"""The controller's gRPC server, on an event loop."""

from concurrent import futures
from importlib.metadata import version
from pathlib import Path

import grpc
import structlog

from innet.controller.audit import AuditInterceptor, Refusals
from innet.controller.certificate_watch import CertificateWatch
from innet.controller.controller import Controller
from innet.controller.roles import RoleInterceptor
from innet.controller.service import ControllerService
from innet.controller.state.registry import Policy
from innet.controller.state.store import Store
from innet.controller.state.validation import MOST_BYTES
from innet.controller.stream_limit import most_open_streams
from innet.errors import UsageError
from innet.machine.memory import return_freed_memory
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc import tls
from innet.rpc.addresses import check_address, check_plain_text
from innet.rpc.channels import bounded_connections
from innet.rpc.event_loop import on_loop
from innet.rpc.interceptors import CallsInterceptor
from innet.rpc.malformed import ParsingInterceptor
from innet.rpc.revocation import Revocations

_log = structlog.get_logger("innet.controller")
_CALLS = 64
_DEFAULT_POLICY = Policy()


class ControllerServer:
    """A running controller with its TCP `port` and its `controller`.

    `address` is ``host:port``; port 0 picks a free one. With an `identity` it takes only clients
    that show a certificate, and lets them call the methods that their roles allow. Without one it
    serves this machine only, unless `insecure`. Its state is kept in the file or the store
    `state`, or in memory. Raises UsageError if the port is in use or the file cannot be used.
    """

    def __init__(
        self,
        address: str,
        identity: tls.Identity | None = None,
        *,
        insecure: bool = False,
        state: Path | Store | None = None,
        policy: Policy = _DEFAULT_POLICY,
    ) -> None:
        check_address(address, "--address")
        if not (identity or insecure):
            check_plain_text(
                address, "give certificates with --tls, which `innet certificates make` makes"
            )
        revocations = Revocations(identity.revoked) if identity else None
        most_streams = most_open_streams()
        self._server = on_loop(_made(most_streams, revocations))
        try:
            self.port = on_loop(_add_port(self._server, address, identity))
        except RuntimeError:
            self.port = 0
        if not self.port:
            raise UsageError(
                f"cannot serve at {address}: is the port in use, or is it an address of another machine?"
            )
        if not state:
            _log.info("the state is in memory: a controller that follows will know nothing of it")
        store = state if isinstance(state, Store) else Store(state)
        self.controller = Controller(store, policy, identity)
        service = ControllerService(self.controller, most_streams)
        self._watch: CertificateWatch | None = None
        if identity and revocations:
            self._watch = CertificateWatch(identity, revocations, service.expel)
        rpc.add_ControllerServicer_to_server(service, self._server)
        on_loop(self._server.start())
        return_freed_memory()
        _log.info("the controller serves", port=self.port, version=version("innet"))

    def close(self) -> None:
        """Stop serving, and disconnect from the switches."""
        _log.info("the controller stops")
        if self._watch:
            self._watch.close()
        self.controller.close()
        on_loop(self._server.stop(grace=0.5))


async def _made(most_streams: int, revocations: Revocations | None) -> grpc.aio.Server:
    """Return a server without a service. It is made on the event loop that it runs on."""
    pool = futures.ThreadPoolExecutor(_CALLS, thread_name_prefix="innet-controller")
    interceptors = [
        ParsingInterceptor(),
        AuditInterceptor(Refusals()),
        *([RoleInterceptor(revocations)] if revocations else []),
    ]
    return grpc.aio.server(
        options=[
            ("grpc.so_reuseport", 0),
            ("grpc.max_receive_message_length", MOST_BYTES),
            *bounded_connections(most_streams + _CALLS),
        ],
        maximum_concurrent_rpcs=most_streams + _CALLS,
        interceptors=[CallsInterceptor(pool, interceptors)],
    )


async def _add_port(server: grpc.aio.Server, address: str, identity: tls.Identity | None) -> int:
    port: int
    if identity:
        port = server.add_secure_port(address, identity.server_credentials())
        _log.info("links are encrypted", certificate_expires=identity.expires.isoformat())
    else:
        port = server.add_insecure_port(address)
        _log.warning("links are not encrypted, and whoever reaches the controller may do anything")
    return port
