"""The HTTP server for Prometheus, the same for every process."""

import contextlib
from collections.abc import Iterator
from importlib.metadata import version

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.metrics_core import InfoMetricFamily, Metric
from prometheus_client.registry import Collector

from innet.errors import UsageError
from innet.machine.numbers import is_port


class BuildCollector(Collector):
    """The version of innet as a metric."""

    def collect(self) -> Iterator[Metric]:
        """Yield the metric, which is always 1."""
        yield InfoMetricFamily("innet_build", "The version.", {"version": version("innet")})


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
        server, thread = start_http_server(int(port), host.strip("[]"), registry)
    except (OSError, UnicodeError) as problem:  # no name of a host has such letters, or so many
        why = problem.strerror if isinstance(problem, OSError) else "it is no address"
        raise UsageError(f"cannot serve metrics at {address}: {why}") from None
    try:
        yield f"{host}:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
