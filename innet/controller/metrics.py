"""The controller's metrics for Prometheus, read at the time of each request."""

import contextlib
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from innet.controller.controller import Controller
from innet.controller.jobs.history import Cause
from innet.controller.jobs.quotas import DEFAULT
from innet.errors import InnetError, NotFound
from innet.rpc import innet_pb2 as pb
from innet.rpc.words import PATHS

_PORT_COUNTERS = ("refused", "corrupted", "spoofed")
_SWITCHES_AT_ONCE = 64


class ControllerCollector(Collector):
    """Metrics of a controller for Prometheus, at one moment.

    Each scrape reads the switches' counters. Counters of a switch that does not answer are left
    out.
    """

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._expires = controller.identity.expires if controller.identity else None

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        switches = self._switches()  # first: then it is known which of them do not answer
        jobs = list(self._jobs())
        yield from _of_jobs(jobs)
        yield _contributions(jobs)
        yield from self._history()
        yield from _of_switches(switches)
        yield _dropped(switches)
        yield _ports_up(switches)
        yield from self._quotas()
        yield self._drift()
        yield self._expiry()

    def _jobs(self) -> Iterator[pb.Job]:
        for listed in self._controller.jobs.views():
            with contextlib.suppress(NotFound):  # deleted meanwhile
                yield self._controller.jobs.view(listed.name)

    def _switches(self) -> list[pb.Switch]:
        with ThreadPoolExecutor(_SWITCHES_AT_ONCE) as pool:  # each may take its time, or hang
            views = pool.map(self._switch, self._controller.switches.views())
            return [view for view in views if view]

    def _switch(self, listed: pb.Switch) -> pb.Switch | None:
        with contextlib.suppress(NotFound):  # removed meanwhile
            return self._controller.switches.view(listed.name)
        return None

    def _history(self) -> Iterator[Metric]:
        terms = CounterMetricFamily(
            "innet_controller_terms",
            "Terms that a job has begun, and why the one before was over.",
            labels=("job", "cause"),
        )
        leases = CounterMetricFamily(
            "innet_controller_leases_lost",
            "Workers that were silent for too long, and so have left.",
            labels=("job",),
        )
        for name, history in self._controller.jobs.histories().items():
            for cause in Cause:  # also causes at 0: without them, increase() misses the first event
                terms.add_metric([name, cause], history.terms[cause])
            leases.add_metric([name], history.leases_lost)
        yield terms
        yield leases

    def _quotas(self) -> Iterator[Metric]:
        limits = GaugeMetricFamily(
            "innet_controller_owner_quota",
            "The most that an owner of jobs may hold at once; missing without a limit.",
            labels=("owner", "resource"),
        )
        use = GaugeMetricFamily(
            "innet_controller_owner_use",
            "What an owner of jobs holds.",
            labels=("owner", "resource"),
        )
        for each in self._controller.quotas.listed().quotas:
            for resource in ("jobs", "slots", "workers"):
                if each.name != DEFAULT:
                    use.add_metric([each.name, resource], getattr(each, resource))
                if most := getattr(each, f"most_{resource}"):
                    limits.add_metric([each.name, resource], most)
        yield limits
        yield use

    def _expiry(self) -> Metric:
        family = GaugeMetricFamily(
            "innet_controller_certificate_expiry_timestamp_seconds",
            "When the controller's certificate expires, in seconds since 1970.",
        )
        if identity := self._controller.identity:
            # An expired certificate keeps its date, and so its alert.
            with contextlib.suppress(InnetError):
                self._expires = identity.renewed_expiry()
        if self._expires:
            family.add_metric([], self._expires.timestamp())
        return family

    def _drift(self) -> Metric:
        family = CounterMetricFamily(
            "innet_controller_drift",
            "Entries of a switch that were found different from what was written, and mended.",
            labels=("switch",),
        )
        for name, count in self._controller.switches.drifts().items():
            family.add_metric([name], count)
        return family


def _of_jobs(jobs: list[pb.Job]) -> Iterator[Metric]:
    paths = GaugeMetricFamily(
        "innet_controller_job_path", "1 for the path of the job's term.", labels=("job", "path")
    )
    workers = GaugeMetricFamily(
        "innet_controller_job_workers",
        "Workers of a job: joined, invited (no hello yet), or missing.",
        labels=("job", "state"),
    )
    wanted = GaugeMetricFamily(
        "innet_controller_job_quorum", "Contributions that make a result.", labels=("job",)
    )
    slots = GaugeMetricFamily(
        "innet_controller_job_slots", "Slots that a job has; 0 while it waits.", labels=("job",)
    )
    borrowed = GaugeMetricFamily(
        "innet_controller_job_borrowed_slots",
        "Slots that a job has besides its own.",
        labels=("job",),
    )
    lent = GaugeMetricFamily(
        "innet_controller_job_lent_slots",
        "Slots that a job has asked for, and lends to others at present.",
        labels=("job",),
    )
    for job in jobs:
        for path, name in PATHS.items():
            paths.add_metric([job.name, name], job.path == path)
        joined, known = len(job.joined), len(job.members)
        workers.add_metric([job.name, "joined"], joined)
        workers.add_metric([job.name, "invited"], known - joined)
        workers.add_metric([job.name, "missing"], job.workers - known)
        wanted.add_metric([job.name], job.quorum)
        slots.add_metric([job.name], job.slots)
        borrowed.add_metric([job.name], max(0, job.slots - job.min_slots))
        lent.add_metric([job.name], job.asked_slots - job.slots if job.slots else 0)
    yield from (paths, workers, wanted, slots, borrowed, lent)


def _contributions(jobs: list[pb.Job]) -> Metric:
    family = CounterMetricFamily(
        "innet_controller_job_contributions",
        "Contributions that reached a cell of the job, by what the switch made of them.",
        labels=("job", "outcome"),
    )
    for job in jobs:
        if job.HasField("counters"):
            for field in pb.Counters.DESCRIPTOR.fields:
                family.add_metric([job.name, field.name], getattr(job.counters, field.name))
    return family


def _of_switches(switches: list[pb.Switch]) -> Iterator[Metric]:
    reachable = GaugeMetricFamily(
        "innet_controller_switch_reachable",
        "1 if the controller reaches the switch over P4Runtime, 0 otherwise.",
        labels=("switch",),
    )
    drained = GaugeMetricFamily(
        "innet_controller_switch_drained",
        "1 if the switch is drained, 0 otherwise.",
        labels=("switch",),
    )
    slots = GaugeMetricFamily(
        "innet_controller_switch_slots", "Slots of a switch.", labels=("switch",)
    )
    free = GaugeMetricFamily(
        "innet_controller_switch_free_slots", "Slots that no job has.", labels=("switch",)
    )
    for switch in switches:
        reachable.add_metric([switch.name], switch.reachable)
        drained.add_metric([switch.name], switch.drained)
        slots.add_metric([switch.name], switch.slots)
        free.add_metric([switch.name], switch.free_slots)
    yield from (reachable, drained, slots, free)


def _dropped(switches: list[pb.Switch]) -> Metric:
    family = CounterMetricFamily(
        "innet_controller_switch_port_dropped_packets",
        "innet packets that the program did not let in, by the port they came in at.",
        labels=("switch", "port", "reason"),
    )
    for switch in switches:
        for counters in switch.port_counters:
            for reason in _PORT_COUNTERS:
                labels = [switch.name, str(counters.port), reason]
                family.add_metric(labels, getattr(counters, reason))
    return family


def _ports_up(switches: list[pb.Switch]) -> Metric:
    family = GaugeMetricFamily(
        "innet_controller_switch_port_up",
        "0 if innet-switch reports that the port is down, 1 otherwise.",
        labels=("switch", "port"),
    )
    for switch in switches:
        for each in switch.port_counters:
            family.add_metric([switch.name, str(each.port)], not each.down)
    return family
