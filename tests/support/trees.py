"""Trees of real switches, joined by cables made of UDP, with a controller in charge of them all.

Faults can be added to a cable between two switches, as to those of workers.
"""

import contextlib
import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import callers
import numpy as np
from mortal import Mortal
from racks import TIMEOUTS, WITHIN
from waiting import until

from innet.controller.server import ControllerServer
from innet.host.agent import Agent
from innet.host.join import join
from innet.local.faults import Faults, Wiring, faulty
from innet.local.ports import free_cables, free_tcp_port, port_options
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect, translated

if TYPE_CHECKING:
    from concurrent.futures import Future


@dataclass
class Plan:
    """The cables: `cables[switch]` by port from 1 on, and `links[switch]` for the switch's workers."""

    cables: dict[str, list[str]] = field(default_factory=dict)
    links: dict[str, list[str]] = field(default_factory=dict)
    uplinks: dict[str, list[pb.Uplink]] = field(default_factory=dict)

    @classmethod
    def of(cls, hosts: Mapping[str, int], parents: Mapping[str, Sequence[str]]) -> "Plan":
        """Plan for `hosts[switch]` workers at each switch. A switch's parents have to come before it."""
        count = sum(hosts.values()) + sum(map(len, parents.values()))
        free = iter(free_cables(count))
        plan = cls()
        for name, places in hosts.items():
            cables = [next(free) for _ in range(places)]
            plan.cables[name] = [each.interface for each in cables]
            plan.links[name] = [each.link for each in cables]
            plan.uplinks[name] = []
            for parent in parents.get(name, ()):
                cable = next(free)
                plan.cables[name].append(cable.interface)
                plan.cables[parent].append(cable.link)
                ports = len(plan.cables[name]), len(plan.cables[parent])
                plan.uplinks[name].append(
                    pb.Uplink(parent=parent, port=ports[0], parent_port=ports[1])
                )
        return plan


_SERVER = ("innet", "pbox", "rack-server")


class TreeSwitch(Mortal):
    """One of the switches, or a parameter server in its place."""

    def __init__(
        self, cables: Sequence[str], command: Sequence[str] = ("innet-switch", "--no-p4")
    ) -> None:
        self.address = f"127.0.0.1:{free_tcp_port()}"
        ports = port_options(cables)
        super().__init__(*command, "--grpc-server-addr", self.address, *ports)


@dataclass(frozen=True)
class Forest:
    """Running switches, by name, with their controller and cables."""

    controller: str
    stub: Any
    plan: Plan
    switches: dict[str, TreeSwitch]
    wiring: Wiring | None
    _server: list[ControllerServer]
    _numbers: "itertools.count[int]" = field(default_factory=itertools.count)

    @contextlib.contextmanager
    def job(self, top: str, workers: int, **more: Any) -> Iterator[tuple[str, str]]:
        """Create a job on a switch and all below it. Yields its name and its token."""
        name = f"job-{next(self._numbers)}"
        request = pb.CreateJobRequest(
            name=name, switch=top, workers=workers, **{"slots": 32, **more}
        )
        with translated("create the job"):
            token = self.stub.CreateJob(request).token
        try:
            yield name, token
        finally:
            self.stub.DeleteJob(pb.DeleteJobRequest(name=name))

    @contextlib.contextmanager
    def worker(self, job: str, token: str, rank: int, at: str, **more: Any) -> Iterator[Agent]:
        """Yield a worker at a free place of a switch."""
        more, link = {"timeouts": TIMEOUTS, **more}, self.plan.links[at].pop()
        try:
            with join(self.controller, job, rank, link, token=token, **more) as agent:
                yield agent
        finally:
            self.plan.links[at].append(link)

    @contextlib.contextmanager
    def workers(self, top: str, at: Sequence[str], **more: Any) -> Iterator[list[Agent]]:
        """Yield all workers of a separate job, at these switches."""
        with contextlib.ExitStack() as stack:
            name, token = stack.enter_context(self.job(top, len(at), **more))
            yield [
                stack.enter_context(self.worker(name, token, rank, where))
                for rank, where in enumerate(at)
            ]

    def show(self, job: str = "") -> pb.Job:
        """Return a job, by default the last one."""
        [*_, last] = [each.name for each in self.stub.ListJobs(pb.ListJobsRequest()).jobs]
        with translated("show the job"):
            shown: pb.Job = self.stub.GetJob(pb.GetJobRequest(name=job or last))
            return shown

    def add(self, name: str, **more: Any) -> pb.Switch:
        """Put the controller in charge of a switch."""
        cables, switch = self.plan.cables[name], self.switches[name]
        fields = {
            "grpc_address": switch.address,
            "ports": range(1, len(cables) + 1),
            "uplinks": self.plan.uplinks[name],
        }
        with translated("add the switch"):
            return self.stub.AddSwitch(pb.AddSwitchRequest(name=name, **{**fields, **more}))

    def switch(self, name: str) -> pb.Switch:
        """Return the controller's view of a switch."""
        with translated("show the switch"):
            shown: pb.Switch = self.stub.GetSwitch(pb.GetSwitchRequest(name=name))
            return shown

    def until_in_another_term(self, term: int) -> None:
        """Wait until the last job sums in the switches in another term."""

        def is_in_it() -> bool:
            job = self.show()
            return job.term != term and job.path == pb.PATH_SWITCH

        until(is_in_it)

    def restart_controller(self, **more: Any) -> None:
        """End the controller, and start another at its address. `more` are its arguments."""
        self._server.pop().close()
        self._server.append(ControllerServer(self.controller, **more))
        # The channel may have found nobody meanwhile. Then it would fail at once for a while.
        self.stub.ListSwitches(pb.ListSwitchesRequest(), timeout=WITHIN, wait_for_ready=True)

    def remove(self, name: str) -> None:
        """Let the controller let go of a switch."""
        with translated("remove the switch"):
            self.stub.RemoveSwitch(pb.RemoveSwitchRequest(name=name))


@contextlib.contextmanager
def forest(
    hosts: Mapping[str, int],
    parents: Mapping[str, Sequence[str]],
    faults: Faults | None = None,
    seed: int = 0,
    *,
    add: bool = True,
    servers: Sequence[str] = (),
    memory: float = 0.1,
    cores: int = 1,
    captures: Path | None = None,
    **more: Any,
) -> Iterator[Forest]:
    """Start the switches and a controller. `faults` are those of the cables between switches.

    The wiring's cables are those of the switches' uplinks, in order. `servers` are the names of
    parameter servers, with `memory` GiB and `cores` each. `captures` is a folder, in which each
    switch captures its ports' frames in a folder with its name. `more` are arguments of
    :class:`ControllerServer`.
    """
    plan = Plan.of(hosts, parents)
    with contextlib.ExitStack() as stack:
        wiring = None
        if faults:
            ends = [(name, link.port - 1) for name, each in plan.uplinks.items() for link in each]
            inner = [plan.cables[name][port] for name, port in ends]
            wiring = stack.enter_context(faulty(inner, seed, faults, faults))
            for (name, port), cable in zip(ends, wiring.links, strict=True):
                plan.cables[name][port] = cable
        with ThreadPoolExecutor() as pool:
            serving = (*_SERVER, "--memory", str(memory), "--cores", str(cores))
            commands = [
                serving
                if name in servers
                else ("innet-switch", "--no-p4", *_capturing(captures, name))
                for name in plan.cables
            ]
            made = pool.map(TreeSwitch, plan.cables.values(), commands)
            switches = dict(zip(plan.cables, made, strict=True))
        for switch in switches.values():
            stack.callback(switch.stop)
        server = [ControllerServer("127.0.0.1:0", **more)]
        stack.callback(lambda: server[0].close())  # noqa: PLW0108 - it may be another by then
        address = f"127.0.0.1:{server[0].port}"
        channel, stub = connect(address)
        stack.callback(channel.close)
        trees = Forest(address, stub, plan, switches, wiring, server)
        for name in plan.cables if add else ():
            trees.add(name)
        yield trees


def _capturing(captures: Path | None, name: str) -> list[str]:
    if not captures:
        return []
    (captures / name).mkdir()
    return [f"--pcap={captures / name}"]


def sums(agents: Sequence[Agent], vectors: Sequence[np.ndarray]) -> list[np.ndarray]:
    """Return every worker's result of a sum of integers."""
    return finish(submit(agents, vectors))


def submit(agents: Sequence[Agent], vectors: Sequence[np.ndarray]) -> "list[Future[Any]]":
    """Have all agents begin a sum. They overwrite inputs and results as soon as they are allowed to."""
    pairs = zip(agents, vectors, strict=True)
    return [callers.submit(agent, vector, "sum") for agent, vector in pairs]


def finish(running: "list[Future[Any]]") -> list[np.ndarray]:
    """Return the results of all running sums."""
    return [each.result(WITHIN) for each in running]


def integers(seed: int, workers: int, elements: int) -> np.ndarray:
    """Return (workers, elements) int32 that need all of their bits, but whose sums still fit."""
    bound = (1 << 31) // workers
    chance = np.random.default_rng(seed)
    return chance.integers(-bound + 1, bound, (workers, elements), np.int32)
