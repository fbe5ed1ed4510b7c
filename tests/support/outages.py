"""A small cluster of network namespaces: machines with a control network and a data network.

The controller has a machine of its own, without the data network. The switch is in both networks.
"""

import contextlib
import ctypes
import itertools
import os
import signal
import subprocess
from collections.abc import Iterator
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

import pytest
from commands import BIN
from forked import context
from mortal import Mortal
from switches import COMMAND
from waiting import WITHIN

CONTROLLER, SWITCH = "10.88.0.1:9600", "10.88.0.254:9559"
_numbers = itertools.count()
_NEW_NETWORK = 0x40000000
"""CLONE_NEWNET: the namespace to enter is a network's."""

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces: root")


class Shell:
    """A Python process on a machine, which runs one piece of code after the other."""

    def __init__(self, machine: str, **environment: str) -> None:
        self._near, far = context().Pipe()
        self.process = context().Process(target=_interpret, args=(machine, environment, far))
        self.process.start()
        far.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.join()
        self._near.close()

    def start(self, code: str) -> None:
        """Start a piece of code."""
        self._near.send(code)

    def ended(self) -> tuple[str, Any]:
        """Wait until the code is done. Return its error's name or nothing, and the text or `result`."""
        assert self._near.poll(WITHIN), "the code has not ended"
        return self._near.recv()

    def done(self) -> Any:
        """Wait until the code is done, without an error. Return `result`."""
        kind, said = self.ended()
        assert not kind, f"{kind}: {said}"
        return said

    def do(self, code: str) -> Any:
        """Run a piece of code. Return its `result`."""
        self.start(code)
        return self.done()


def _interpret(machine: str, environment: dict[str, str], commands: Connection) -> None:
    with Path("/var/run/netns", machine).open() as namespace:
        assert not ctypes.CDLL(None).setns(namespace.fileno(), _NEW_NETWORK)
    os.environ.update(environment)
    known: dict[str, Any] = {}
    with contextlib.suppress(EOFError):
        while True:
            code = commands.recv()
            known.pop("result", None)
            try:
                exec(code, known)  # noqa: S102 - the test's own code
                said = "", known.get("result")
            except Exception as problem:  # noqa: BLE001 - the test gets it
                said = type(problem).__name__, str(problem)
            commands.send(said)


class Cluster:
    """A controller, a switch, and machines for workers, from 0 on."""

    def __init__(
        self, stack: contextlib.ExitStack, workers: int, folder: Path, lease: float
    ) -> None:
        self._prefix = f"innet-live-{os.getpid()}-{next(_numbers)}"
        self.log = folder / "controller.log"
        self._core = self._namespace(stack, "core")
        for bridge, address in (("ctl", "10.88.0.254/24"), ("data", "10.89.0.254/24")):
            _ip("-n", self._core, "link", "add", bridge, "type", "bridge")
            _ip("-n", self._core, "addr", "add", address, "dev", bridge)
            _ip("-n", self._core, "link", "set", bridge, "up")
        self.controlled = self._namespace(stack, "controller")
        self._wire(self.controlled, "ctl", 1)
        self.machines = [self._namespace(stack, f"worker{rank}") for rank in range(workers)]
        cables, self.links = [], []
        for rank, machine in enumerate(self.machines):
            self._wire(machine, "ctl", 11 + rank)
            self._wire(machine, "data", 11 + rank)
            near, far = (f"10.89.0.{host}:{20001 + rank}" for host in (254, 11 + rank))
            cables.append(f"-i{rank + 1}@udp:{near}/{far}")
            self.links.append(f"udp:{far}/{near}")
        self.switch = Mortal(
            "ip", "netns", "exec", self._core, COMMAND, "--no-p4", "--insecure",
            "--grpc-server-addr", SWITCH, *cables,
        )  # fmt: skip
        stack.callback(self.switch.kill)
        self.controller = Mortal(
            "ip", "netns", "exec", self.controlled, str(BIN / "innet"), "controller", "--address",
            CONTROLLER, "--insecure", "--lease", str(lease), log=self.log,
        )  # fmt: skip
        stack.callback(self.controller.kill)
        self.admin = stack.enter_context(Shell(self.controlled))
        self.admin.do(_ADMIN.format(controller=CONTROLLER, switch=SWITCH, ports=workers))

    def cut(self, machine: str, *networks: str, up: bool = False) -> None:
        """Disconnect a machine from networks at the other end of its cable, or connect it again."""
        for network in networks:
            _ip(
                "-n",
                self._core,
                "link",
                "set",
                self._port(machine, network),
                "up" if up else "down",
            )

    def _port(self, machine: str, network: str) -> str:
        return f"{machine.rpartition('-')[2][:9]}-{network}"

    def _namespace(self, stack: contextlib.ExitStack, name: str) -> str:
        full = f"{self._prefix}-{name}"
        _ip("netns", "add", full)
        stack.callback(_ip, "netns", "del", full)
        _ip("-n", full, "link", "set", "lo", "up")
        return full

    def _wire(self, machine: str, network: str, number: int) -> None:
        port = self._port(machine, network)
        _ip(
            "link",
            "add",
            port,
            "netns",
            self._core,
            "type",
            "veth",
            "peer",
            network,
            "netns",
            machine,
        )
        _ip("-n", self._core, "link", "set", port, "master", network, "up")
        subnet = {"ctl": 88, "data": 89}[network]
        _ip("-n", machine, "addr", "add", f"10.{subnet}.0.{number}/24", "dev", network)
        _ip("-n", machine, "link", "set", network, "up")


_ADMIN = """
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect
_, stub = connect("{controller}")
stub.AddSwitch(pb.AddSwitchRequest(name="tor", grpc_address="{switch}", ports=range(1, {ports} + 1)))
def create(name, workers):
    return stub.CreateJob(pb.CreateJobRequest(name=name, switch="tor", workers=workers, slots=32)).token
def show(name):
    job = stub.GetJob(pb.GetJobRequest(name=name))
    members = [
        dict(disconnected=each.disconnected, unreachable_s=each.unreachable_s) for each in job.members
    ]
    departures = [dict(rank=each.rank, reason=each.reason) for each in job.departures]
    return dict(joined=list(job.joined), members=members, departures=departures)
"""


@contextlib.contextmanager
def cluster(workers: int, folder: Path, lease: float) -> Iterator[Cluster]:
    """Make a cluster, and remove all of it in the end."""
    with contextlib.ExitStack() as stack:
        yield Cluster(stack, workers, folder, lease)


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)


def stopped(shell: Shell) -> None:
    """Stop a process as a debugger does."""
    os.kill(shell.process.pid, signal.SIGSTOP)


def continued(shell: Shell) -> None:
    """Let a stopped process continue."""
    os.kill(shell.process.pid, signal.SIGCONT)
