"""A rack on this machine: an embedded switch, a controller, one job, and cables in shared memory."""

import contextlib
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass

from innet.local.ports import Cable, free_cables, port_options, shared_cables
from innet.local.processes import command, serving
from innet.machine import environment as names
from innet.machine.scratch import scratch_folder
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connected, translated

_MOST_CORES = 4  # more of them did not make sums faster


@dataclass(frozen=True)
class Rack:
    """A running rack. `links` has one link specification for each worker, or several joined with +."""

    controller: str
    job: str
    token: str
    links: tuple[str, ...]
    switch: subprocess.Popen[str]

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment for :func:`innet.join`; a worker picks its link by ``LOCAL_RANK``."""
        return {
            names.CONTROLLER: self.controller,
            names.JOB: self.job,
            names.TOKEN: self.token,
            names.LINK: " ".join(self.links),
            names.TLS: "",  # no TLS: everything runs on this machine
            # A group of a rack is there to use the switch, although one node has all its ranks.
            names.LOCAL_SUM: os.environ.get(names.LOCAL_SUM) or "0",
        }

    def describe_job(self) -> pb.Job:
        """Return the job, with the switch's counters."""
        with connected(self.controller, None) as stub, translated("show the job"):
            job: pb.Job = stub.GetJob(pb.GetJobRequest(name=self.job))
            return job


@contextlib.contextmanager
def local_rack(
    workers: int,
    lanes: int = 64,
    slots: int = 128,
    cables: int = 1,
    *,
    udp: bool = False,
    cores: int | None = None,
) -> Iterator[Rack]:
    """Run a rack with one job over all `workers`, and `cables` cables to each of them.

    The cables are in shared memory, or made of `udp`. The switch runs on so many `cores`, by default on
    the :func:`spare_cores`. Ends every process that it has started when
    the block is left. Raises InnetError.
    """
    with scratch_folder() as folder:
        count = workers * cables
        all_cables = free_cables(count) if udp else shared_cables(count, folder)
        with _running(all_cables, lanes, slots, workers, cores or spare_cores(workers)) as rack:
            yield rack


def spare_cores(workers: int) -> int:
    """Return how many cores a switch can use beside its workers: from 1 to 4."""
    return max(1, min(_MOST_CORES, len(os.sched_getaffinity(0)) - workers))


@contextlib.contextmanager
def _running(
    all_cables: list[Cable], lanes: int, slots: int, workers: int, cores: int
) -> Iterator[Rack]:
    interfaces = port_options(each.interface for each in all_cables)
    run_switch = [*command("innet.switch.cli"), "--no-p4", "--cores", str(cores)]
    run_switch += ["--grpc-server-addr", "127.0.0.1:0"]
    run_controller = [*command("innet.cli"), "controller", "--address", "127.0.0.1:0"]
    with (
        serving("P4Runtime", [*run_switch, *interfaces]) as (switch, p4runtime),
        serving("controller", run_controller) as (_, address),
    ):
        with connected(address, None) as stub, translated("set up the rack"):
            stub.AddSwitch(
                pb.AddSwitchRequest(
                    name="tor",
                    grpc_address=p4runtime,
                    ports=range(1, len(all_cables) + 1),
                    lanes=lanes,
                )
            )
            created = stub.CreateJob(
                pb.CreateJobRequest(name="demo", switch="tor", workers=workers, slots=slots)
            )
        links = [each.link for each in all_cables]
        each = len(links) // workers
        own = ["+".join(links[first : first + each]) for first in range(0, len(links), each)]
        yield Rack(address, "demo", created.token, tuple(own), switch)
