"""What the controller says about a job and its switch: at one moment, and at two."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property

from innet.controller import innet_pb2 as pb
from innet.controller import innet_pb2_grpc as rpc
from innet.controller.client import translated

PORT_COUNTERS = ("refused", "corrupted", "spoofed")


_PATIENCE = 2
"""Leases for which heartbeats are waited for: one comes every third of a lease."""


@dataclass(frozen=True)
class Sample:
    """A job and its switch at one moment; `at` in seconds, of any clock that only goes forward."""

    at: float
    job: pb.Job
    switch: pb.Switch

    @cached_property
    def members(self) -> Mapping[int, pb.WorkerStatus]:
        """The job's workers, by rank."""
        return {member.rank: member for member in self.job.members}

    @cached_property
    def ports(self) -> Mapping[int, pb.PortCounters]:
        """What the switch has counted, by port."""
        return {counters.port: counters for counters in self.switch.port_counters}

    def heard_at(self, rank: int) -> float:
        """When the controller had the worker's last heartbeat, on the sample's clock."""
        return self.at - float(self.members[rank].silent_s)


@dataclass(frozen=True)
class View:
    """Two moments of one job: what grows between them is going on, what does not is history."""

    before: Sample
    now: Sample

    @property
    def seconds(self) -> float:
        """The time between the two moments."""
        return self.now.at - self.before.at

    def port_growth(self, port: int, counter: str) -> int:
        """By how much one of `PORT_COUNTERS` has grown; a counter that began anew counts from 0."""
        now, before = (
            int(getattr(sample.ports.get(port), counter, 0)) for sample in (self.now, self.before)
        )
        return now - before if now >= before else now

    def job_growth(self, counter: str) -> int:
        """By how much one of the job's counters has grown."""
        now, before = (
            int(getattr(sample.job.counters, counter)) for sample in (self.now, self.before)
        )
        return now - before if now >= before else now

    def tree_growth(self, switch: str, counter: str) -> int:
        """By how much one of the job's counters at one of several switches has grown."""
        now, before = (
            sum(
                int(getattr(each.counters, counter))
                for each in at.job.tree
                if each.switch == switch
            )
            for at in (self.now, self.before)
        )
        return now - before if now >= before else now

    def growth(self, rank: int, counter: str) -> int:
        """By how much one of a worker's own counters has grown from heartbeat to heartbeat."""
        if rank not in self.before.members or rank not in self.now.members:
            return 0
        now, before = (
            int(getattr(sample.members[rank].progress, counter))
            for sample in (self.now, self.before)
        )
        return now - before if now >= before else now


def take(stub: rpc.ControllerStub, job: str) -> Sample:
    """A sample of one job. Raises NotFound, or another ControllerError."""
    with translated(f"look at the job {job!r}"):
        found = stub.GetJob(pb.GetJobRequest(name=job))
        switch = stub.GetSwitch(pb.GetSwitchRequest(name=found.switch))
    return Sample(time.monotonic(), found, switch)


def watch(
    take_one: Callable[[], Sample],
    interval: float,
    sleep: Callable[[float], None] = time.sleep,
) -> View:
    """Two samples, at least `interval` seconds apart.

    Workers report in heartbeats: the second sample is taken again until every worker that was let in
    has sent one since the first, or for two of the workers' leases.
    """
    first = take_one()
    while True:
        sleep(interval)
        now = take_one()
        admitted = [rank for rank, each in now.members.items() if each.HasField("address")]
        reported = all(now.heard_at(rank) > first.at for rank in admitted)
        patience = _PATIENCE * first.job.worker_lease_s
        if reported or now.at - first.at + interval > patience:
            return View(first, now)
