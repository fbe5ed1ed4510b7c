"""A parameter server's metrics for Prometheus, read at every scrape."""

import contextlib
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from innet.servers.pbox.server import Stats
from innet.telemetry.prometheus import serve

_CORE = {
    "bytes_in": ("receive_bytes", "Bytes received from workers."),
    "bytes_out": ("transmit_bytes", "Bytes sent to workers."),
    "chunks": ("chunks", "Chunks pushed or pulled."),
    "updates": ("updates", "Steps of chunks."),
    "refused": ("refused", "Connections that were refused, or broke a rule."),
}
_JOB = {
    "updates": ("job_updates", "Steps of chunks."),
    "late": ("job_late", "Gradients of chunks that came after the quorum, and were dropped."),
    "stale": (
        "job_staleness",
        "By how many updates gradients of chunks were behind, summed up.",
    ),
}
_JOB_NOW = {
    "workers": ("job_workers", "Workers that the job is for."),
    "joined": ("job_joined", "Workers that are connected."),
    "bytes": ("job_reserved_bytes", "Memory that is reserved for the job."),
    "most_stale": ("job_most_staleness", "The largest staleness so far, in updates."),
}


class PBoxCollector(Collector):
    """A collector that turns a snapshot of a server into Prometheus's metrics."""

    def __init__(self, stats: Callable[[], Stats]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of one snapshot."""
        stats = self._stats()
        for field, (name, text) in _CORE.items():
            family = CounterMetricFamily(f"innet_pbox_{name}", text, labels=("core",))
            for core, counts in enumerate(stats.cores):
                family.add_metric([str(core)], int(counts[field]))
            yield family
        busy = CounterMetricFamily(
            "innet_pbox_busy_seconds", "Time that a core did not wait.", labels=("core",)
        )
        connections = GaugeMetricFamily(
            "innet_pbox_connections", "Connections of workers.", labels=("core",)
        )
        for core, counts in enumerate(stats.cores):
            busy.add_metric([str(core)], int(counts["busy_ns"]) / 1e9)
            connections.add_metric([str(core)], int(counts["connections"]))
        yield busy
        yield connections
        yield from _of_jobs(stats)
        yield GaugeMetricFamily(
            "innet_pbox_reserved_bytes",
            "Memory that is reserved for jobs, also for those that have just ended.",
            value=stats.reserved_bytes,
        )


def _of_jobs(stats: Stats) -> Iterator[Metric]:
    for field, (name, text) in _JOB.items():
        counter = CounterMetricFamily(f"innet_pbox_{name}", text, labels=("job",))
        for job, values in stats.jobs.items():
            counter.add_metric([job], values[field])
        yield counter
    for field, (name, text) in _JOB_NOW.items():
        gauge = GaugeMetricFamily(f"innet_pbox_{name}", text, labels=("job",))
        for job, values in stats.jobs.items():
            gauge.add_metric([job], values[field])
        yield gauge


def serve_metrics(
    stats: Callable[[], Stats], address: str
) -> contextlib.AbstractContextManager[str]:
    """Serve ``/metrics`` at `HOST:PORT`, as :func:`innet.telemetry.prometheus.serve` does."""
    return serve(PBoxCollector(stats), address, "--metrics-addr")
