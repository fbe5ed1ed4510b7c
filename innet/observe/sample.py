"""The controller's data about a job and its switches: one sample of it, or two."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc.client import translated
from innet.rpc.group_ranks import in_group

PORT_COUNTERS = ("refused", "corrupted", "spoofed")

_NO_REPORT = pb.Progress()
_OVERDUE = 2.5
"""A worker counts as silent if its last heartbeat is older than this number of heartbeat intervals."""

_MAX_WAIT_S = 5.0
"""The most seconds to wait for heartbeats, in addition to the time between two of them."""


@dataclass(frozen=True)
class Sample:
    """A job and its switches at one moment. `at` is in seconds of any monotonic clock.

    `switch` is the job's own. `others` are the other switches of its tree.
    """

    at: float
    job: pb.Job
    switch: pb.Switch
    others: tuple[pb.Switch, ...] = ()

    @cached_property
    def members(self) -> Mapping[int, pb.WorkerStatus]:
        """Return the job's workers, by rank."""
        return {member.rank: member for member in self.job.members}

    @cached_property
    def switches(self) -> Mapping[str, pb.Switch]:
        """Return all switches of the job, by name."""
        return {self.job.switch: self.switch} | {each.name: each for each in self.others}

    @cached_property
    def ports(self) -> Mapping[tuple[str, int], pb.PortCounters]:
        """Return the switches' port counters, by switch and port."""
        return {
            (name, counters.port): counters
            for name, switch in self.switches.items()
            for counters in switch.port_counters
        }

    @property
    def heartbeat_s(self) -> float:
        """Return the seconds between two heartbeats of a worker."""
        return max(1.0, self.job.heartbeat_s)

    @property
    def overdue_s(self) -> float:
        """Return the seconds without a heartbeat after which a worker counts as silent."""
        return _OVERDUE * self.heartbeat_s

    def report(self, rank: int) -> pb.Progress | None:
        """Return a worker's last report, or None if it is absent, or none has come to this controller."""
        progress = self.members[rank].progress if rank in self.members else _NO_REPORT
        return None if progress == _NO_REPORT else progress

    def heard_at(self, rank: int) -> float:
        """Return the time of the worker's last heartbeat, on the sample's clock."""
        return self.at - float(self.members[rank].silent_s)


@dataclass(frozen=True)
class Observation:
    """Two samples of one job.

    A counter that grows between them is active; one that does not is history.
    """

    before: Sample
    now: Sample

    @property
    def seconds(self) -> float:
        """Return the time between the two samples."""
        return self.now.at - self.before.at

    def port_growth(self, switch: str, port: int, counter: str) -> int:
        """Return by how much one of `PORT_COUNTERS` has grown."""
        return self._growth(counter, lambda sample: sample.ports.get((switch, port)))

    def job_growth(self, counter: str) -> int:
        """Return by how much one of the job's counters has grown."""
        return self._growth(counter, lambda sample: _counters(sample.job))

    def tree_growth(self, switch: str, counter: str) -> int:
        """Return by how much one of the job's counters at a switch of its tree has grown."""

        def there(sample: Sample) -> pb.Counters | None:
            found = (_counters(each) for each in sample.job.tree if each.switch == switch)
            return next(found, None)

        return self._growth(counter, there)

    def worker_growth(self, rank: int, counter: str) -> int:
        """Return by how much one of a worker's own counters has grown from heartbeat to heartbeat."""
        return self._growth(counter, lambda sample: sample.report(rank))

    def _growth(self, counter: str, counters: Callable[[Sample], Any]) -> int:
        """Return by how much a counter has grown. One that has restarted counts from 0.

        Without counters in both samples nothing is known, for example if a switch did not answer.
        """
        now, before = counters(self.now), counters(self.before)
        if now is None or before is None:
            return 0
        growth = int(getattr(now, counter)) - int(getattr(before, counter))
        return growth if growth >= 0 else int(getattr(now, counter))


def _counters(owner: Any) -> pb.Counters | None:
    """Return the counters of a job or of a switch of its tree, or None if they could not be read."""
    return owner.counters if owner.HasField("counters") else None


def sample_job(stub: rpc.ControllerStub, job: str) -> Sample:
    """Sample one job. Raises NotFound or ControllerError."""
    at = time.monotonic()  # the workers' silence counts up to now, however long switches take
    with translated(f"read the job {job!r}"):
        found = in_group(stub.GetJob(pb.GetJobRequest(name=job)))
        names = dict.fromkeys([found.switch, *(each.switch for each in found.tree)])
        first, *others = [stub.GetSwitch(pb.GetSwitchRequest(name=name)) for name in names]
    return Sample(at, found, first, tuple(others))


def sample_twice(
    take_sample: Callable[[], Sample],
    interval: float,
    sleep: Callable[[float], None] = time.sleep,
) -> Observation:
    """Take two samples, at least `interval` seconds apart.

    Workers report in heartbeats. The second sample is repeated until every admitted worker has sent a
    heartbeat since the first sample. This takes at most six seconds, or longer if heartbeats come less
    often than once a second.
    """
    first = take_sample()
    longest = _MAX_WAIT_S + first.heartbeat_s
    while True:
        sleep(interval)
        now = take_sample()
        admitted = [rank for rank, each in now.members.items() if each.HasField("address")]
        reported = all(now.heard_at(rank) > first.at for rank in admitted)
        if reported or now.at - first.at + interval > longest:
            return Observation(first, now)
