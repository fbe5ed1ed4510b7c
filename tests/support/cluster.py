"""A rack as an operator runs it: switch, controller and workers are processes that can be killed.

A killed process can be started again with the same command, at the same addresses.
"""

import contextlib
import itertools
import json
import signal
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from forked import Script, ranks
from mortal import Mortal
from waiting import WITHIN

from innet.local.ports import free_tcp_port, port_options, shared_cables
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect, translated

STEPS = Path(__file__).with_name("steps.py")


class Worker:
    """A training process, and its output so far."""

    def __init__(self, rank: int, script: Script) -> None:
        self.rank = rank
        self.steps: list[dict[str, Any]] = []
        self.end: dict[str, Any] = {}
        self._said = threading.Condition()
        self._process = script
        self._problem = ""
        self._running = True
        self._readers = [threading.Thread(target=each) for each in (self._read, self._read_errors)]
        for reader in self._readers:
            reader.start()

    def wait_for_step(self, number: int) -> None:
        """Return when the step is done."""
        with self._said:
            self._said.wait_for(lambda: self.done > number or not self._running, WITHIN)
        assert self.done > number, f"worker {self.rank} is at step {self.done}: {self._problem}"

    def wait_for_path(self, path: str) -> None:
        """Return when the last step was summed on this path."""
        with self._said:
            found = self._said.wait_for(lambda: self.steps[-1]["path"] == path, WITHIN)
        assert found, f"worker {self.rank} is at step {self.done}, by {self.steps[-1]}"

    def wait_for_end(self) -> str:
        """Return the parameters' digest at the end."""
        with self._said:
            self._said.wait_for(lambda: not self._running, WITHIN)
        assert self.end, f"worker {self.rank} is at step {self.done}: {self._problem}"
        return str(self.end["parameters"])

    @property
    def done(self) -> int:
        """Return the number of finished steps."""
        return len(self.steps)

    @property
    def digests(self) -> dict[int, str]:
        """Return the parameters' digests after some of the steps."""
        return {each["step"]: each["parameters"] for each in self.steps if each["parameters"]}

    def longest_step(self, since: float, until: float) -> float:
        """Return the longest time between two finished steps that overlaps the interval."""
        times = [each["at"] for each in self.steps]
        pairs = itertools.pairwise(times)
        return max(after - before for before, after in pairs if after > since and before < until)

    def signal(self, number: signal.Signals) -> None:
        """Send it a signal."""
        self._process.signal(number)

    def kill(self) -> None:
        """Kill it as ``kill -9`` does."""
        self._process.kill()
        for reader in self._readers:
            reader.join()

    def _read(self) -> None:
        with self._process.stdout as lines:
            for line in lines:
                said = json.loads(line)
                with self._said:
                    if "end" in said:
                        self.end = said
                    else:
                        self.steps.append(said)
                    self._said.notify_all()
        with self._said:
            self._running = False
            self._said.notify_all()

    def _read_errors(self) -> None:
        with self._process.stderr as lines:
            self._problem = lines.read()


@dataclass
class Cluster:
    """A switch, a controller, and a job for each training."""

    switch: Mortal
    controller: Mortal
    address: str
    links: list[str]
    _jobs: list[str] = field(default_factory=list)

    @property
    def waiting_for(self) -> list[int]:
        """Return the ranks that all others of the last job wait for."""
        channel, stub = connect(self.address)
        with contextlib.closing(channel):
            return [*stub.GetJob(pb.GetJobRequest(name=self._jobs[-1])).waiting_for]

    @contextlib.contextmanager
    def training(self, steps: int, *, group: bool, **job: int) -> Iterator[list[Worker]]:
        """Train with one worker per port, in a job of their own. `job` are fields of its request."""
        arguments = [str(steps), *(["group"] if group else [])]
        with self.running(STEPS, arguments, **job) as workers:
            yield workers

    @contextlib.contextmanager
    def running(self, script: Path, arguments: list[str], **job: int) -> Iterator[list[Worker]]:
        """Run a script with one worker per port, in a job of their own."""
        name = f"training-{len(self._jobs)}"
        self._jobs.append(name)
        count = len(self.links)
        request = pb.CreateJobRequest(name=name, switch="tor", workers=count, slots=64, **job)
        channel, stub = connect(self.address)
        with contextlib.closing(channel), translated("create the job"):
            token = stub.CreateJob(request).token
        environment = {
            "INNET_CONTROLLER": self.address, "INNET_JOB": name, "INNET_TOKEN": token,
            "INNET_LINK": " ".join(self.links), "INNET_TLS": "",
        }  # fmt: skip
        with ranks(script, arguments, count, environment) as running:
            workers = [Worker(rank, script) for rank, script in enumerate(running)]
            try:
                yield workers
            finally:
                for worker in workers:
                    worker.kill()


@contextlib.contextmanager
def cluster(workers: int, folder: Path) -> Iterator[Cluster]:
    """Start switch and controller. The controller keeps its state in the folder."""
    cables = shared_cables(workers, folder)
    p4runtime, address = (f"127.0.0.1:{free_tcp_port()}" for _ in range(2))
    run_switch = ["innet-switch", "--no-p4", "--grpc-server-addr", p4runtime]
    run_controller = ["innet", "controller", "--address", address]
    with contextlib.ExitStack() as stack:
        interfaces = port_options(each.interface for each in cables)
        switch = Mortal(*run_switch, *interfaces, log=folder / "switch.log")
        stack.callback(switch.kill)
        state = ["--state", str(folder / "state")]
        controller = Mortal(*run_controller, *state, log=folder / "controller.log")
        stack.callback(controller.kill)
        channel, stub = connect(address)
        request = pb.AddSwitchRequest(
            name="tor", grpc_address=p4runtime, ports=range(1, workers + 1)
        )
        with contextlib.closing(channel), translated("add the switch"):
            stub.AddSwitch(request)
        yield Cluster(switch, controller, address, [each.link for each in cables])
