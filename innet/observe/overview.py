"""The jobs and switches of a controller at one moment."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from innet.errors import ControllerUnreachable, NotFound
from innet.observe.sample import Sample
from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.rpc.client import CONNECT_WITHIN, connected, translated
from innet.rpc.group_ranks import in_group

_AGAIN_WITHIN = 1.0  # seconds: the last tables stay on the screen meanwhile
_ANSWERS_WITHIN = 10.0  # seconds: the controller waits for a switch for 5 s


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


class Overviews:
    """The overviews of a controller, over a connection that is made again if it breaks.

    So the overviews go on after a stand-by controller has taken over. Raises the errors of
    :func:`innet.rpc.client.connected` and of :func:`read_overview`.
    """

    def __init__(self, address: str, tls_folder: Path | None, job: str) -> None:
        self._address, self._tls_folder, self._job = address, tls_folder, job
        self._connection = ExitStack()
        self._stub = self._connected(CONNECT_WITHIN)

    def __call__(self) -> Overview:
        """Return the overview of this moment."""
        try:
            self._stub = self._stub or self._connected(_AGAIN_WITHIN)
            return read_overview(self._stub, self._job)
        except ControllerUnreachable:
            self.close()
            raise

    def close(self) -> None:
        """Close the connection."""
        self._stub = None
        self._connection.close()

    def _connected(self, timeout: float) -> rpc.ControllerStub | None:
        made = connected(self._address, self._tls_folder, timeout)
        return self._connection.enter_context(made)


def read_overview(stub: rpc.ControllerStub, job: str = "") -> Overview:
    """Read from the controller all that the tables show.

    Raises NotFound if there is no such job, or a ControllerError.
    """
    at = time.monotonic()
    switches = dict(_switches(stub))
    listed = pb.ListJobsResponse() if job else _list(stub)
    jobs = [_job(stub, job)] if job else _jobs(stub, listed)
    samples = tuple(_sample(asked_at, each, switches) for asked_at, each in jobs)
    return Overview(at, samples, tuple(switches.values()), bool(job), listed.left_out)


def read_without_counters(stub: rpc.ControllerStub) -> Overview:
    """Read all that the controller knows without asking switches, which costs it little.

    Switches and jobs have no counters. Raises ControllerError.
    """
    with translated("read the switches and jobs"):
        listed = stub.ListSwitches(pb.ListSwitchesRequest()).switches
        at = time.monotonic()
        jobs = [*map(in_group, stub.ListJobs(pb.ListJobsRequest(detailed=True)).jobs)]
    switches = {each.name: each for each in listed}
    samples = tuple(_sample(at, each, switches) for each in jobs)
    return Overview(at, samples, tuple(listed))


def _sample(at: float, job: pb.Job, switches: Mapping[str, pb.Switch]) -> Sample:
    names = {each.switch for each in job.tree} - {job.switch}
    others = (switches[name] for name in sorted(names & switches.keys()))
    return Sample(at, job, switches.get(job.switch, pb.Switch()), tuple(others))


def _switches(stub: rpc.ControllerStub) -> Iterator[tuple[str, pb.Switch]]:
    with translated("read the switches"):
        listed = stub.ListSwitches(pb.ListSwitchesRequest(), timeout=_ANSWERS_WITHIN)
        names = [each.name for each in listed.switches]
    for name in names:
        # It may have been removed since it was listed.
        with contextlib.suppress(NotFound), translated(f"read the switch {name!r}"):
            yield name, stub.GetSwitch(pb.GetSwitchRequest(name=name), timeout=_ANSWERS_WITHIN)


def _list(stub: rpc.ControllerStub) -> pb.ListJobsResponse:
    with translated("read the jobs"):
        found: pb.ListJobsResponse = stub.ListJobs(pb.ListJobsRequest(), timeout=_ANSWERS_WITHIN)
    return found


def _jobs(stub: rpc.ControllerStub, listed: pb.ListJobsResponse) -> Iterator[tuple[float, pb.Job]]:
    for job in listed.jobs:
        try:
            yield _job(stub, job.name)
        except NotFound:
            continue  # deleted since it was listed


def _job(stub: rpc.ControllerStub, name: str) -> tuple[float, pb.Job]:
    """Return a job, and the time of the question: the workers' silence counts up to then."""
    at = time.monotonic()
    with translated(f"read the job {name!r}"):
        job = stub.GetJob(pb.GetJobRequest(name=name), timeout=_ANSWERS_WITHIN)
        return at, in_group(job)
