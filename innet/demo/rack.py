"""A rack on one machine: an embedded switch, a controller, one job, and cables made of UDP."""

import contextlib
import ctypes
import os
import random
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import IO

from innet import environment as names
from innet.commands import Stopped
from innet.controller import innet_pb2 as pb
from innet.controller.client import connect, translated
from innet.errors import InnetError

_PR_SET_PDEATHSIG = 1
_STOP_WITHIN = 10.0
_EPHEMERAL = Path("/proc/sys/net/ipv4/ip_local_port_range")
_LOWEST_PORT = 10_000
_SHARE = 256
_CHOOSING = threading.Lock()
_LIBC = ctypes.CDLL(None)


class Interrupts:
    """A handler of Ctrl-C (KeyboardInterrupt) and SIGTERM (Stopped), except around a fork.

    During a fork Python runs hooks that swallow exceptions: one raised there would be printed and
    lost.
    """

    def __init__(self) -> None:
        self._came: BaseException | None = None
        self._held = False

    def catch(self) -> None:
        """Handle both signals from now on."""
        for number in (signal.SIGINT, signal.SIGTERM):
            signal.signal(number, self._take)

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """Keep a signal that arrives within the block for :meth:`check`."""
        self._held = True
        try:
            yield
        finally:
            self._held = False

    def check(self) -> None:
        """Raise KeyboardInterrupt or Stopped if a signal was kept."""
        if self._came:
            raise self._came

    def _take(self, number: int, _: object) -> None:
        self._came = KeyboardInterrupt() if number == signal.SIGINT else Stopped(number)
        if not self._held:
            raise self._came


INTERRUPTS = Interrupts()
"""The instance of this process: a process has one handler for each signal."""


@dataclass(frozen=True)
class Rack:
    """A running rack. `links` has one link specification for each worker, or several joined with +."""

    controller: str
    job: str
    token: str
    links: tuple[str, ...]
    switch: "subprocess.Popen[str]"

    @property
    def environment(self) -> dict[str, str]:
        """Return the environment for :func:`innet.join`; a worker picks its link by ``LOCAL_RANK``."""
        return {
            names.CONTROLLER: self.controller,
            names.JOB: self.job,
            names.TOKEN: self.token,
            names.LINK: " ".join(self.links),
            names.TLS: "",  # no TLS: everything runs on this machine
        }

    def describe_job(self) -> pb.Job:
        """Return the job, with the switch's counters."""
        channel, stub = connect(self.controller)
        with contextlib.closing(channel), translated("show the job"):
            job: pb.Job = stub.GetJob(pb.GetJobRequest(name=self.job))
            return job


@contextlib.contextmanager
def local_rack(workers: int, lanes: int = 64, slots: int = 128, cables: int = 1) -> Iterator[Rack]:
    """Run a rack with one job over all `workers`, and `cables` cables to each of them.

    Ends every process that it has started when the block is left. Raises InnetError.
    """
    ends = workers * cables
    ports = free_udp_ports(2 * ends)
    outer, inner = ports[:ends], ports[ends:]
    interfaces = [
        f"-i{number}@udp:127.0.0.1:{switch}/127.0.0.1:{host}"
        for number, (switch, host) in enumerate(zip(outer, inner, strict=True), start=1)
    ]
    links = [
        f"udp:127.0.0.1:{host}/127.0.0.1:{switch}"
        for switch, host in zip(outer, inner, strict=True)
    ]
    arguments = ["--no-p4", "--grpc-server-addr", "127.0.0.1:0", *interfaces]
    with (
        process([*command("innet.switch.cli"), *arguments]) as (switch, p4runtime),
        process([*command("innet.cli"), "controller", "--address", "127.0.0.1:0"]) as (_, address),
    ):
        channel, stub = connect(address)
        with contextlib.closing(channel), translated("set up the rack"):
            stub.AddSwitch(
                pb.AddSwitchRequest(
                    name="tor",
                    grpc_address=p4runtime,
                    ports=range(1, ends + 1),
                    lanes=lanes,
                )
            )
            created = stub.CreateJob(
                pb.CreateJobRequest(name="demo", switch="tor", workers=workers, slots=slots)
            )
        own = ["+".join(links[first : first + cables]) for first in range(0, ends, cables)]
        yield Rack(address, "demo", created.token, tuple(own), switch)


@contextlib.contextmanager
def process(arguments: Sequence[str]) -> Iterator[tuple["subprocess.Popen[str]", str]]:
    """Start a server process that prints ``NAME ADDRESS`` when ready; yield both process and address."""
    with spawned(arguments) as running:
        line = _stdout(running).readline()
        if not line:
            _, problem = running.communicate()
            raise InnetError(f"{arguments[2]} did not start:\n{problem.strip()}")
        yield running, line.split()[1]


@contextlib.contextmanager
def spawned(
    arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> Iterator["subprocess.Popen[str]"]:
    """Start a process with piped output; it ends with the block, or with this process."""
    with INTERRUPTS.held():
        running = subprocess.Popen(
            arguments,
            env={**os.environ, **(environment or {})},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,  # only this process gets Ctrl-C, and then ends the others
            preexec_fn=partial(end_with_parent, os.getpid()),  # noqa: PLW1509 - system calls only
        )
    with running:
        try:
            INTERRUPTS.check()
            yield running
        finally:
            stop(running)


def stop(running: "subprocess.Popen[str]") -> None:
    """End a process with SIGTERM, and with SIGKILL if it does not react."""
    running.terminate()
    try:
        running.wait(_STOP_WITHIN)
    except subprocess.TimeoutExpired:
        running.kill()


def command(module: str) -> list[str]:
    """Return a command that runs a module's ``main`` with this interpreter."""
    return [sys.executable, "-c", f"from {module} import main; main()"]


def free_udp_ports(count: int) -> list[int]:
    """Return UDP ports of the loopback interface that are free at the moment."""
    return _free_ports(socket.SOCK_DGRAM, count)


def free_tcp_port() -> int:
    """Return a TCP port of the loopback interface that is free at the moment."""
    return _free_ports(socket.SOCK_STREAM, 1)[0]


def _free_ports(kind: socket.SocketKind, count: int) -> list[int]:
    free: list[int] = []
    with _CHOOSING:
        while len(free) < count:
            port = next(_own_ports(os.getpid()))
            with socket.socket(socket.AF_INET, kind) as probe, contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                free.append(port)
    return free


@cache
def _own_ports(_: int) -> Iterator[int]:
    """Yield ports of this process, each of them once before any comes again.

    As long as the process runs, no other process gets its ports from here. So nobody takes a port
    between our choice and the moment when our caller binds it. Raises InnetError.
    """
    # The kernel assigns ports of this range to sockets that name none.
    low, high = (int(end) for end in _EPHEMERAL.read_text().split())
    ports = [*range(_LOWEST_PORT, low), *range(high + 1, 1 << 16)]
    shares = [ports[start : start + _SHARE] for start in range(0, len(ports), _SHARE)]
    owned: dict[int, socket.socket] = {}
    while True:
        for share in random.SystemRandom().sample(shares, len(shares)):
            if share[0] in owned or _claim(share[0], owned):
                yield from share
        if not owned:
            raise InnetError("other processes of innet have taken all ports of this machine")


def _claim(share: int, owned: dict[int, socket.socket]) -> bool:
    """Claim a share of the ports, unless it is another process's. The claim ends with the process."""
    claim = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    try:
        claim.bind(f"\0innet-ports-{share}")  # a name without a file, which one socket can have
    except OSError:
        claim.close()
        return False
    owned[share] = claim
    return True


def end_with_parent(parent: int) -> None:
    """Ask the kernel to send this freshly forked process SIGTERM when its parent dies."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent:  # the parent died before the request
        os.kill(os.getpid(), signal.SIGTERM)


def _stdout(running: "subprocess.Popen[str]") -> IO[str]:
    if running.stdout is None:
        raise AssertionError
    return running.stdout
