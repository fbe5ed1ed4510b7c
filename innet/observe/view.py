"""The view of a moment: jobs with their rates, switches, and the load of links.

``innet top`` and the web page show it. A :class:`Viewer` makes views from successive readings of the
controller.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property

from innet.observe.diagnosis import held_up
from innet.observe.overview import Overview
from innet.observe.rates import Rates, RateTracker
from innet.observe.sample import PORT_COUNTERS, Observation, Sample
from innet.observe.stalls import STALLED_S
from innet.rpc import innet_pb2 as pb
from innet.rpc.words import PATHS, workers_text
from innet.wire.frames import ENCAPSULATION_BYTES
from innet.wire.records import packet_bytes


@dataclass(frozen=True)
class WorkerView:
    """A worker of a job. Its rates are None until two of its heartbeats have been seen."""

    rank: int
    status: pb.WorkerStatus
    rates: Rates | None

    @property
    def stuck_s(self) -> float:
        """Return the seconds since its last result, or 0 if it is in no exchange."""
        progress = self.status.progress
        return float(progress.stuck_s) if progress.busy else 0.0


@dataclass(frozen=True)
class JobView:
    """A job at two moments. `rates` are None until two heartbeats of a worker have been seen."""

    observation: Observation
    rates: Rates | None
    workers: tuple[WorkerView, ...]

    @property
    def job(self) -> pb.Job:
        """Return the job as it is now."""
        return self.observation.now.job

    @property
    def path(self) -> str:
        """Return the path, and the reason if it is not the switch."""
        path = PATHS[self.job.path]
        return f"{path}: {self.job.reason}" if self.job.reason else path

    @property
    def wait(self) -> str:
        """Return for whom the job waits, or "" if it does not wait for long."""
        if self.job.waiting_s < STALLED_S:
            return ""
        return f"{self.job.waiting_s:.0f} s for {workers_text(self.job.waiting_for)}"

    @property
    def round_trip_s(self) -> float:
        """Return the longest round trip of any worker, in seconds."""
        return max((float(each.status.progress.round_trip_s) for each in self.workers), default=0.0)

    @property
    def stuck_s(self) -> float:
        """Return the longest time for which a worker has had no result, in seconds."""
        return max((each.stuck_s for each in self.workers), default=0.0)

    @cached_property
    def held_up(self) -> list[str]:
        """Return, for every switch of the tree, what holds sums up there, or ""."""
        return held_up(self.observation)

    def uplink_load(self, switch: str, parent: str) -> "Load":
        """Return the load that the job puts on the links between a switch and a parent of it.

        One sum of each chunk goes up, and one result comes down. Parents divide the slots between them.
        The load leaves out repetitions, because their number on these links is not known.
        """
        parents = [up for each in self.job.tree if each.switch == switch for up in each.parents]
        if parent not in parents or not self.rates:
            return Load()
        frame = ENCAPSULATION_BYTES + packet_bytes(self.job.lanes)
        each = self.rates.chunks * frame / len(parents)
        return Load(each, each)


@dataclass(frozen=True)
class CounterReading:
    """A counter, and its growth per second, or None if it is not known."""

    total: int
    per_second: float | None


@dataclass(frozen=True)
class SwitchView:
    """A switch, and the counts of each port that has dropped packets, in the order of PORT_COUNTERS."""

    switch: pb.Switch
    ports: Mapping[int, tuple[CounterReading, ...]]


@dataclass(frozen=True)
class Load:
    """The load of a link in bytes per second of whole frames, towards the top of the tree and back."""

    up: float = 0.0
    down: float = 0.0

    def __add__(self, other: "Load") -> "Load":
        return Load(self.up + other.up, self.down + other.down)


@dataclass(frozen=True)
class View:
    """All jobs, or one job in detail, and the switches. `at` is in seconds of a monotonic clock."""

    at: float
    jobs: tuple[JobView, ...]
    switches: tuple[SwitchView, ...]
    detailed: bool = False
    left_out: int = 0
    """The number of jobs of others, which the reader may not see."""

    def for_owner(self, owner: str) -> "View":
        """Return the view without the jobs of other owners."""
        own = tuple(each for each in self.jobs if each.job.owner == owner)
        return replace(self, jobs=own, left_out=self.left_out + len(self.jobs) - len(own))

    def uplink_load(self, switch: str, parent: str) -> Load:
        """Return the load of the links between a switch and a parent of it."""
        return sum((job.uplink_load(switch, parent) for job in self.jobs), Load())

    def workers_at(self, switch: str) -> Iterator[tuple[JobView, WorkerView]]:
        """Yield the workers that are attached to a switch, with their jobs."""
        for job in self.jobs:
            for worker in job.workers:
                if worker.status.HasField("address") and worker.status.switch == switch:
                    yield job, worker


class Viewer:
    """The maker of views, with the earlier readings that rates need."""

    def __init__(self) -> None:
        self._rates = RateTracker()
        self._before: Overview | None = None

    def see(self, now: Overview) -> View:
        """Return the view of the next reading. Rates are known from the second one on."""
        self._rates.keep({(each.job.name, rank) for each in now.samples for rank in each.members})
        jobs = tuple(self._job(sample) for sample in now.samples)
        switches = tuple(self._switch(each, now.at) for each in now.switches)
        self._before = now
        return View(now.at, jobs, switches, now.detailed, now.left_out)

    def _job(self, sample: Sample) -> JobView:
        self._rates.update(sample)
        name = sample.job.name
        workers = tuple(
            WorkerView(rank, status, self._rates.of_worker(name, rank))
            for rank, status in sorted(sample.members.items())
        )
        samples = self._before.samples if self._before else ()
        before = next((each for each in samples if each.job.name == name), sample)
        return JobView(Observation(before, sample), self._rates.of_job(sample), workers)

    def _switch(self, switch: pb.Switch, at: float) -> SwitchView:
        before = self._counters_before(switch.name)
        seconds = at - self._before.at if self._before else None
        ports = {}
        for port in switch.port_counters:
            counts = [int(getattr(port, name)) for name in PORT_COUNTERS]
            if any(counts):
                earlier = before.get(port.port, port)  # without it, nobody knows what has grown
                ports[port.port] = tuple(
                    _count(count, int(getattr(earlier, name)), seconds)
                    for name, count in zip(PORT_COUNTERS, counts, strict=True)
                )
        return SwitchView(switch, ports)

    def _counters_before(self, name: str) -> dict[int, pb.PortCounters]:
        switches = self._before.switches if self._before else ()
        return {
            port.port: port
            for switch in switches
            if switch.name == name
            for port in switch.port_counters
        }


def _count(total: int, before: int, seconds: float | None) -> CounterReading:
    return CounterReading(total, (total - before) / seconds if seconds else None)
