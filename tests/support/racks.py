"""Whole racks for tests: a switch as a process, its controller in this one, agents at its ports."""

import contextlib
import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
from switches import Switch, running_switch
from waiting import WITHIN

from innet.controller.server import ControllerServer
from innet.controller.state.registry import Policy
from innet.host.agent import Agent
from innet.host.join import join
from innet.host.transport import Timeouts
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect, translated

if TYPE_CHECKING:
    from concurrent.futures import Future


TIMEOUTS = Timeouts(switch=20.0, workers=WITHIN)


@dataclass(frozen=True)
class Rack:
    """A running rack. `links` are those of its free ports, `tokens` those of its jobs."""

    switch: Switch
    controller: str
    stub: Any
    links: list[str]
    tokens: dict[str, str] = field(default_factory=dict)
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @property
    def free_slots(self) -> int:
        """Return the number of the switch's slots that no job has."""
        [switch] = self.stub.ListSwitches(pb.ListSwitchesRequest()).switches
        return switch.free_slots

    @contextlib.contextmanager
    def job(self, workers: int, slots: int = 32, **more: Any) -> Iterator[str]:
        """Create a job, which is deleted in the end unless it was before. Yield its name.

        `more` are fields of the request.
        """
        name = f"job-{next(self._numbers)}"
        request = pb.CreateJobRequest(name=name, switch="tor", workers=workers, slots=slots, **more)
        with translated("create the job"):
            self.tokens[name] = self.stub.CreateJob(request).token
        yield name
        if name in [job.name for job in self.stub.ListJobs(pb.ListJobsRequest()).jobs]:
            self.delete(name)

    def delete(self, job: str) -> None:
        """Delete a job."""
        with translated("delete the job"):
            self.stub.DeleteJob(pb.DeleteJobRequest(name=job))

    def show(self, job: str) -> pb.Job:
        """Return a job, with the switch's counters."""
        with translated("show the job"):
            return self.stub.GetJob(pb.GetJobRequest(name=job))

    def join(self, job: str, rank: int, link: str = "", **more: Any) -> Agent:
        """Join as a worker, by default at the free port with the rank's number.

        `more` are arguments of :func:`innet.host.join.join`.
        """
        more = {"token": self.tokens.get(job, ""), "timeouts": TIMEOUTS, **more}
        return join(self.controller, job, rank, link or self.links[rank], **more)

    @contextlib.contextmanager
    def cables(self, count: int) -> Iterator[list[str]]:
        """Reserve some ports and yield their links."""
        taken = [self.links.pop() for _ in range(count)]
        try:
            yield taken
        finally:
            self.links.extend(taken)

    def environments(self, ranks: int, **more: str) -> list[dict[str, str]]:
        """Return the variables of the ranks of a process group, which share all free ports.

        The ranks use the switch, although they are all on one node. `more` are variables of all ranks.
        """
        links = ",".join("+".join(self.links[rank::ranks]) for rank in range(ranks))
        common = {
            "INNET_CONTROLLER": self.controller, "INNET_LINK": links, "INNET_LOCAL_SUM": "0", **more,
        }  # fmt: skip
        return [{**common, "LOCAL_RANK": str(rank)} for rank in range(ranks)]

    @contextlib.contextmanager
    def workers(self, count: int, slots: int = 32, **more: Any) -> Iterator[list[Agent]]:
        """Yield all agents of a job of their own. `more` are fields of the job's request."""
        with (
            self.job(count, slots, **more) as job,
            self.cables(count) as links,
            contextlib.ExitStack() as stack,
        ):
            yield [
                stack.enter_context(self.join(job, rank, link)) for rank, link in enumerate(links)
            ]


@contextlib.contextmanager
def rack(ports: int, lanes: int = 64, **more: Any) -> Iterator[Rack]:
    """Start a switch, ``tor``, and a controller that is in charge of it.

    `more` are arguments of :class:`ControllerServer`. The default lease outlasts a busy machine.
    """
    with contextlib.ExitStack() as stack:
        switch = stack.enter_context(running_switch(ports))
        server = ControllerServer("127.0.0.1:0", **{"policy": Policy(lease_s=WITHIN), **more})
        stack.callback(server.close)
        address = f"127.0.0.1:{server.port}"
        channel, stub = connect(address)
        stack.callback(channel.close)
        request = pb.AddSwitchRequest(
            name="tor", grpc_address=switch.address, ports=range(1, ports + 1), lanes=lanes
        )
        with translated("add the switch"):
            stub.AddSwitch(request)
        yield Rack(switch, address, stub, free_cables(switch))


def free_cables(switch: Switch) -> list[str]:
    """Close the far ends of the switch's cables. Return them as links for agents."""
    links = []
    for host in switch.hosts:
        (near_ip, near_port), (far_ip, far_port) = host.getsockname(), host.getpeername()
        links.append(f"udp:{near_ip}:{near_port}/{far_ip}:{far_port}")
        host.close()
    return links


def means(agents: Sequence[Agent], *vectors: Any) -> list[Any]:
    """Return every worker's result: all reduce at once, each its own one of `vectors`."""
    running = [agent.submit(vector) for agent, vector in zip(agents, vectors, strict=True)]
    return [future.result(WITHIN) for future in running]


def problem(future: "Future[Any]") -> BaseException:
    """Return the error that an all-reduce ends with. It has to end with one."""
    found = future.exception(WITHIN)
    assert found, "the all-reduce has finished"
    return found


def random_vectors(seed: int, count: int, elements: int) -> list[np.ndarray]:
    """Return standard normal float32 vectors, the same for the same seed."""
    return list(np.random.default_rng(seed).standard_normal((count, elements), np.float32))
