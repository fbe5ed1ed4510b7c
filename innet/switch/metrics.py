"""A switch's numbers for Prometheus, read when somebody asks for them and never for each packet."""

import contextlib
from collections.abc import Callable, Iterator

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from innet.switch.constants import PIPELINES
from innet.switch.stats import PortStats, Stats
from innet.telemetry.prometheus import serve

_PORT_COUNTERS: dict[str, tuple[str, Callable[[PortStats], int]]] = {
    "innet_switch_port_receive_packets": (
        "Packets that came in.", lambda port: port.counts.received.packets
    ),
    "innet_switch_port_receive_bytes": (
        "Bytes that came in.", lambda port: port.counts.received.bytes
    ),
    "innet_switch_port_transmit_packets": (
        "Packets that went out.", lambda port: port.counts.sent.packets
    ),
    "innet_switch_port_transmit_bytes": (
        "Bytes that went out.", lambda port: port.counts.sent.bytes
    ),
}  # fmt: skip


class SwitchCollector(Collector):
    """A collector that turns the switch's present numbers into Prometheus metrics."""

    def __init__(self, stats: Callable[[], Stats]) -> None:
        self._stats = stats

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, taken at one moment."""
        stats = self._stats()
        for name, (text, value) in _PORT_COUNTERS.items():
            family = CounterMetricFamily(name, text, labels=("port", "interface"))
            for port in stats.ports:
                family.add_metric([str(port.number), port.spec], value(port))
            yield family
        up = GaugeMetricFamily(
            "innet_switch_port_up",
            "1 if the port's interface is there and up, 0 otherwise.",
            labels=("port", "interface"),
        )
        for port in stats.ports:
            up.add_metric([str(port.number), port.spec], port.is_up)
        yield up
        yield from _drops(stats)
        yield from _lookups(stats)
        yield from _pipeline(stats)


def serve_metrics(
    stats: Callable[[], Stats], address: str
) -> contextlib.AbstractContextManager[str]:
    """Serve ``/metrics`` at `HOST:PORT`, as :func:`innet.telemetry.prometheus.serve` does."""
    return serve(SwitchCollector(stats), address, "--metrics-addr")


def _drops(stats: Stats) -> Iterator[Metric]:
    meant = CounterMetricFamily(
        "innet_switch_program_drops",
        "Packets that the program dropped on purpose, and in which pipeline.",
        labels=("pipeline",),
    )
    family = CounterMetricFamily(
        "innet_switch_drops",
        "Packets that were lost, by reason, and by port if they were lost at a port.",
        labels=("reason", "port"),
    )
    for reason, count in stats.drops.items():
        if reason in PIPELINES:
            meant.add_metric([reason], count)
        else:
            family.add_metric([reason, ""], count)
    for port in stats.ports:
        family.add_metric(["send_failed", str(port.number)], port.counts.send_failures)
        family.add_metric(["receive_buffer_full", str(port.number)], port.overruns)
    yield meant
    yield family


def _lookups(stats: Stats) -> Iterator[Metric]:
    hits = CounterMetricFamily(
        "innet_switch_table_hits", "Lookups that found an entry.", labels=("table",)
    )
    misses = CounterMetricFamily(
        "innet_switch_table_misses", "Lookups that found none.", labels=("table",)
    )
    for table, counts in stats.tables.items():
        hits.add_metric([table], counts.hits)
        misses.add_metric([table], counts.misses)
    yield hits
    yield misses


def _pipeline(stats: Stats) -> Iterator[Metric]:
    running = bool(stats.digest)
    yield GaugeMetricFamily(
        "innet_switch_ready", "1 if a program is running, 0 otherwise.", value=running
    )
    if running:
        yield InfoMetricFamily(
            "innet_switch_pipeline",
            "The program that is running, by its JSON's SHA-256 and by P4Runtime's cookie.",
            value={"sha256": stats.digest, "cookie": str(stats.cookie)},
        )
