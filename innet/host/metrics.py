"""The agents' metrics for Prometheus: read on request, never while packets pass."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from innet.host.fallback_path import REASONS as FALLBACK_REASONS
from innet.host.job import Path, Term, WorkerInfo
from innet.rpc import innet_pb2 as pb
from innet.telemetry.prometheus import serve

Item = TypeVar("Item")

_LABELS = ("job", "rank")
_WAITING_S = 1.0
_PATHS = {"none": None, "switch": Path.SWITCH, "fallback": Path.FALLBACK}

_COUNTERS: dict[str, tuple[str, Callable[[pb.Progress], float]]] = {
    "innet_agent_exchanges": (
        "Exchanges that were finished; an all-reduce takes one or more.",
        lambda progress: progress.exchange,
    ),
    "innet_agent_chunks": (
        "Chunks whose result came from the switch.", lambda progress: progress.chunks_done
    ),
    "innet_agent_transmit_packets": (
        "Packets sent, repetitions included.", lambda progress: progress.packets_sent
    ),
    "innet_agent_transmit_bytes": (
        "Bytes of whole frames sent.", lambda progress: progress.bytes_sent
    ),
    "innet_agent_receive_packets": (
        "Packets received.", lambda progress: progress.packets_received
    ),
    "innet_agent_receive_bytes": (
        "Bytes of whole frames received.", lambda progress: progress.bytes_received
    ),
    "innet_agent_retransmissions": (
        "Packets sent again.", lambda progress: progress.retransmissions
    ),
    "innet_agent_corrupted_packets": (
        "Packets received and dropped because their check was wrong.",
        lambda progress: progress.corrupted,
    ),
}  # fmt: skip
_GAUGES: dict[str, tuple[str, Callable[[pb.Progress], float]]] = {
    "innet_agent_busy": (
        "1 while an all-reduce is under way, 0 otherwise.", lambda progress: progress.busy
    ),
    "innet_agent_remaining_chunks": (
        "Chunks of the exchange under way that have no result.",
        lambda progress: progress.remaining,
    ),
    "innet_agent_stuck_seconds": (
        "Seconds for which an exchange under way has had no result; 0 between exchanges.",
        lambda progress: progress.stuck_s if progress.busy else 0,
    ),
    "innet_agent_switch_silent_seconds": (
        "Seconds for which the switch has owed an answer.", lambda progress: progress.silent_s
    ),
    "innet_agent_round_trip_seconds": (
        "The smoothed round trip to the switch.", lambda progress: progress.round_trip_s
    ),
    "innet_agent_retransmission_timeout_seconds": (
        "Seconds after which a missing reply counts as lost.", lambda progress: progress.timeout_s
    ),
    "innet_agent_window_chunks": (
        "Chunks that may be in flight at once.", lambda progress: progress.window
    ),
}  # fmt: skip


class MeasuredAgent(Protocol):
    """The attributes of an :class:`innet.host.agent.Agent` that the metrics read."""

    @property
    def info(self) -> WorkerInfo:
        """Return the agent's rank and its job."""

    @property
    def term(self) -> Term | None:
        """Return the term on which the workers have agreed."""

    @property
    def fallbacks(self) -> Mapping[str, int]:
        """Return the number of sums made without the switch, by reason."""

    def progress(self) -> pb.Progress:
        """Return the agent's progress."""


@dataclass(eq=False)
class Shown:
    """An agent, with the name of its job."""

    job: str
    agent: MeasuredAgent

    @property
    def labels(self) -> list[str]:
        """Return the values of the labels `job` and `rank`."""
        return [self.job, str(self.agent.info.rank)]


@dataclass(eq=False)
class AgentCollector(Collector):
    """A collector that turns a snapshot of this process's agents into Prometheus's metrics."""

    shown: list[Shown] = field(default_factory=list)
    others: list[Collector] = field(default_factory=list)

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics of all agents, with one snapshot for each agent."""
        moments = [(each, each.agent.progress()) for each in list(self.shown)]
        for name, (text, value) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=_LABELS)
            for each, progress in moments:
                counter.add_metric(each.labels, value(progress))
            yield counter
        for name, (text, value) in _GAUGES.items():
            gauge = GaugeMetricFamily(name, text, labels=_LABELS)
            for each, progress in moments:
                gauge.add_metric(each.labels, value(progress))
            yield gauge
        yield _paths(each for each, _ in moments)
        yield _fallbacks(each for each, _ in moments)
        yield _missing(moments)
        for other in dict.fromkeys(self.others):  # each once
            yield from other.collect()


@contextlib.contextmanager
def exposed(agent: MeasuredAgent, job: str, address: str) -> Iterator[str]:
    """Show an agent at ``/metrics`` of `HOST:PORT`; agents of this process may share the address.

    Yields HOST:PORT. Raises UsageError.
    """
    with _at(address, lambda collector: collector.shown, Shown(job, agent)) as where:
        yield where


@contextlib.contextmanager
def exposed_too(collector: Collector, address: str) -> Iterator[str]:
    """Show another collector at ``/metrics`` too. If it is added twice, it appears once.

    Yields HOST:PORT. Raises UsageError.
    """
    with _at(address, lambda agents: agents.others, collector) as where:
        yield where


@contextlib.contextmanager
def _at(address: str, where: Callable[[AgentCollector], list[Item]], item: Item) -> Iterator[str]:
    with _lock:
        endpoint = _endpoints.get(address) or _Endpoint(address)
        _endpoints[address] = endpoint
        where(endpoint.collector).append(item)
    try:
        yield endpoint.address
    finally:
        with _lock:
            where(endpoint.collector).remove(item)
            if not (endpoint.collector.shown or endpoint.collector.others):
                del _endpoints[address]
                endpoint.close()


class _Endpoint:
    """An address at which this process serves metrics."""

    def __init__(self, address: str) -> None:
        self.collector = AgentCollector()
        self._open = contextlib.ExitStack()
        self.address = self._open.enter_context(serve(self.collector, address, "INNET_METRICS"))

    def close(self) -> None:
        """Stop serving."""
        self._open.close()


_endpoints: dict[str, _Endpoint] = {}
_lock = threading.Lock()


def _paths(shown: Iterator[Shown]) -> Metric:
    family = GaugeMetricFamily(
        "innet_agent_path", "1 for the path of the present term.", labels=(*_LABELS, "path")
    )
    for each in shown:
        term = each.agent.term
        present = term.path if term else None
        for name, path in _PATHS.items():
            family.add_metric([*each.labels, name], path == present)
    return family


def _fallbacks(shown: Iterator[Shown]) -> Metric:
    family = CounterMetricFamily(
        "innet_agent_fallbacks",
        "Sums made without the switch: exchanges, or tensors for the reason dtype.",
        labels=(*_LABELS, "reason"),
    )
    for each in shown:
        counts = {**dict.fromkeys(FALLBACK_REASONS, 0), **each.agent.fallbacks}
        for reason, count in counts.items():
            family.add_metric([*each.labels, reason], count)
    return family


def _missing(moments: list[tuple[Shown, pb.Progress]]) -> Metric:
    family = GaugeMetricFamily(
        "innet_agent_waits_for",
        "1 for every worker whose contribution is missing, after a second without a result.",
        labels=(*_LABELS, "missing"),
    )
    for each, progress in moments:
        told = progress.busy and progress.stuck_s >= _WAITING_S
        for rank in progress.missing if told else ():
            family.add_metric([*each.labels, str(rank)], 1)
    return family
