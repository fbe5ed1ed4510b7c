"""The collectives for Prometheus."""

from collections.abc import Iterator

from prometheus_client.core import CounterMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from innet.torch.counts import Way, carried


class CollectiveCollector(Collector):
    """A collector that turns the counts of this process into Prometheus's metric."""

    def collect(self) -> Iterator[Metric]:
        """Yield one counter."""
        family = CounterMetricFamily(
            "innet_torch_collectives",
            "Collectives of the backend innet, by who carried them and why it was Gloo.",
            labels=Way._fields,
        )
        for way, number in carried().items():
            family.add_metric(list(way), number)
        yield family


COLLECTOR = CollectiveCollector()
"""The collector of this process, which has only one."""
