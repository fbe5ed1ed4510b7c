"""The jobs and switches of a controller at one moment."""

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from innet.errors import NotFound
from innet.observe.sample import Sample
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc.client import translated


@dataclass(frozen=True)
class Overview:
    """All jobs, or one job in detail, and the switches, at one moment.

    `left_out` is the number of jobs that the caller may not see.
    """

    at: float
    samples: tuple[Sample, ...]
    switches: tuple[pb.Switch, ...]
    detailed: bool = False
    left_out: int = 0


def read_overview(stub: rpc.ControllerStub, job: str = "") -> Overview:
    """Read all that the tables show from the controller.

    Raises NotFound if there is no such job, or another ControllerError.
    """
    at = time.monotonic()
    switches = dict(_switches(stub))
    listed = pb.ListJobsResponse() if job else _list(stub)
    jobs = [_job(stub, job)] if job else list(_jobs(stub, listed))
    samples = tuple(_sample(at, each, switches) for each in jobs)
    return Overview(at, samples, tuple(switches.values()), bool(job), listed.left_out)


def _sample(at: float, job: pb.Job, switches: Mapping[str, pb.Switch]) -> Sample:
    names = {each.switch for each in job.tree} - {job.switch}
    others = (switches[name] for name in sorted(names & switches.keys()))
    return Sample(at, job, switches.get(job.switch, pb.Switch()), tuple(others))


def _switches(stub: rpc.ControllerStub) -> Iterator[tuple[str, pb.Switch]]:
    with translated("read the switches"):
        for listed in stub.ListSwitches(pb.ListSwitchesRequest()).switches:
            yield listed.name, stub.GetSwitch(pb.GetSwitchRequest(name=listed.name))


def _list(stub: rpc.ControllerStub) -> pb.ListJobsResponse:
    with translated("read the jobs"):
        found: pb.ListJobsResponse = stub.ListJobs(pb.ListJobsRequest())
    return found


def _jobs(stub: rpc.ControllerStub, listed: pb.ListJobsResponse) -> Iterator[pb.Job]:
    for job in listed.jobs:
        try:
            yield _job(stub, job.name)
        except NotFound:
            continue  # deleted since it was listed


def _job(stub: rpc.ControllerStub, name: str) -> pb.Job:
    with translated(f"read the job {name!r}"):
        found: pb.Job = stub.GetJob(pb.GetJobRequest(name=name))
    return found
