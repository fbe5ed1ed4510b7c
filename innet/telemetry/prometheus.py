"""The HTTP server for Prometheus, the same for every process."""

import contextlib
import socket
import threading
from collections.abc import Iterator
from importlib.metadata import version
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.metrics_core import InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from innet.errors import UsageError
from innet.machine.descriptors import is_reserved
from innet.machine.numbers import is_port

MOST_CONNECTIONS, _SILENT_FOR_S = 64, 10.0


class BuildCollector(Collector):
    """The version of innet as a metric."""

    def collect(self) -> Iterator[Metric]:
        """Yield the metric, which is always 1."""
        yield InfoMetricFamily("innet_build", "The version.", {"version": version("innet")})


class _Server(ThreadingMixIn, WSGIServer):
    """A server with a thread for each of a bounded number of connections."""

    daemon_threads = True
    request_queue_size = 128

    def __init__(self, host: str, port: int, registry: CollectorRegistry) -> None:
        [(family, *_, address), *_] = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        self.address_family = family
        self._room = threading.BoundedSemaphore(MOST_CONNECTIONS)
        super().__init__(address[:2], _Handler)  # type: ignore[arg-type]
        self.set_app(make_wsgi_app(registry))

    def verify_request(self, request: Any, client_address: Any) -> bool:  # noqa: ARG002
        """Return whether there is room for a connection."""
        return not is_reserved(request) and self._room.acquire(blocking=False)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer the request of a connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._room.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client has gone, or has not asked in time."""


class _Handler(WSGIRequestHandler):
    timeout = _SILENT_FOR_S

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002
        """Log no requests."""


@contextlib.contextmanager
def serve(collector: Collector, address: str, setting: str) -> Iterator[str]:
    """Serve ``/metrics`` at `HOST:PORT` while the block runs, and yield the real HOST:PORT.

    Port 0 picks a free one. Raises UsageError if the address cannot be served; `setting` is the option or
    variable that the user gave it in.
    """
    host, _, port = address.rpartition(":")
    if not (host and is_port(port)):
        raise UsageError(f"{setting} {address!r} is not HOST:PORT")
    registry = CollectorRegistry(auto_describe=False)
    registry.register(collector)
    registry.register(BuildCollector())
    try:
        server = _Server(host.strip("[]"), int(port), registry)
    except (OSError, UnicodeError) as problem:  # no name of a host has such letters, or so many
        why = problem.strerror if isinstance(problem, OSError) else "it is no address"
        raise UsageError(f"cannot serve metrics at {address}: {why}") from None
    thread = threading.Thread(target=server.serve_forever, name="innet-metrics", daemon=True)
    thread.start()
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
