"""The jobs and switches of a controller at one moment."""

import contextlib
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
    """All jobs, or one job in detail, and the switches, at one moment."""

    at: float
    samples: tuple[Sample, ...]
    switches: tuple[pb.Switch, ...]
    detailed: bool = False


def read_overview(stub: rpc.ControllerStub, job: str = "") -> Overview:
    """Read all that the tables show from the controller.

    Raises NotFound if there is no such job, or another ControllerError.
    """
    at = time.monotonic()
    switches = dict(_switches(stub))
    jobs = [_job(stub, job)] if job else list(_jobs(stub))
    samples = tuple(_sample(at, each, switches) for each in jobs)
    return Overview(at, samples, tuple(switches.values()), bool(job))


def read_without_counters(stub: rpc.ControllerStub) -> Overview:
    """Read all that the controller knows without asking switches, which costs it little.

    Switches and jobs have no counters. Raises ControllerError.
    """
    at = time.monotonic()
    with translated("read the switches and jobs"):
        listed = stub.ListSwitches(pb.ListSwitchesRequest()).switches
        jobs = stub.ListJobs(pb.ListJobsRequest(detailed=True)).jobs
    switches = {each.name: each for each in listed}
    samples = tuple(_sample(at, each, switches) for each in jobs)
    return Overview(at, samples, tuple(listed))


def _sample(at: float, job: pb.Job, switches: Mapping[str, pb.Switch]) -> Sample:
    names = {each.switch for each in job.tree} - {job.switch}
    others = (switches[name] for name in sorted(names & switches.keys()))
    return Sample(at, job, switches.get(job.switch, pb.Switch()), tuple(others))


def _switches(stub: rpc.ControllerStub) -> Iterator[tuple[str, pb.Switch]]:
    with translated("read the switches"):
        names = [each.name for each in stub.ListSwitches(pb.ListSwitchesRequest()).switches]
    for name in names:
        # It may have been removed since it was listed.
        with contextlib.suppress(NotFound), translated(f"read the switch {name!r}"):
            yield name, stub.GetSwitch(pb.GetSwitchRequest(name=name))


def _jobs(stub: rpc.ControllerStub) -> Iterator[pb.Job]:
    with translated("read the jobs"):
        listed = stub.ListJobs(pb.ListJobsRequest()).jobs
    for job in listed:
        try:
            yield _job(stub, job.name)
        except NotFound:
            continue  # deleted since it was listed


def _job(stub: rpc.ControllerStub, name: str) -> pb.Job:
    with translated(f"read the job {name!r}"):
        found: pb.Job = stub.GetJob(pb.GetJobRequest(name=name))
    return found
