"""Machines in network namespaces of their own, joined by a management network and by cables."""

import contextlib
import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from preforked import forked_programs
from waiting import WITHIN

from topologies import namespaces

_BIN = str(Path(sys.executable).parent)


class Machines:
    """Machines that a test adds by their names. All of them see the same folder.

    Their commands run in bash, with innet's commands on the PATH and none of innet's settings.
    """

    def __init__(self, folder: Path, stack: contextlib.ExitStack) -> None:
        self._folder, self._stack = folder, stack
        self._prefix = f"innet-{secrets.token_hex(4)}"
        self._management = self._namespace("management")
        _ip("-n", self._management, "link", "add", "bridge", "type", "bridge")
        _ip("-n", self._management, "link", "set", "bridge", "up")
        self._count = 0

    def add(self, name: str, address: str) -> None:
        """Make a machine with an address in the management network, at ``eth0``."""
        self._namespace(name)
        self._count += 1
        end = f"port{self._count}"
        self._veth(self._at(name), "eth0", self._management, end)
        _ip("-n", self._management, "link", "set", end, "master", "bridge")
        self.set_address(name, "eth0", address)

    def cable(self, machine: str, interface: str, other: str, other_interface: str) -> None:
        """Join two machines."""
        self._veth(self._at(machine), interface, self._at(other), other_interface)

    def set_address(self, machine: str, interface: str, address: str) -> None:
        """Give an interface an address of a subnet with 24 bits."""
        _ip("-n", self._at(machine), "address", "add", f"{address}/24", "dev", interface)

    def start(
        self, machine: str, script: str, output: int | IO[str] = subprocess.PIPE
    ) -> "subprocess.Popen[str]":
        """Start a script on a machine. It is killed with the test if it still runs then."""
        inherited = {k: v for k, v in os.environ.items() if not k.startswith(("INNET_", "GLOO_"))}
        path = f"{_trainings()}:{_BIN}:{os.environ['PATH']}"
        process = subprocess.Popen(
            [*namespaces.inside(self._at(machine)), "bash", "-euo", "pipefail", "-c", script],
            env={**inherited, "PATH": path, "OMP_NUM_THREADS": "1"},
            cwd=self._folder, text=True, stdout=output, stderr=subprocess.STDOUT,
            start_new_session=True,
        )  # fmt: skip
        self._stack.callback(kill, process)
        return process

    def run(self, machine: str, script: str) -> str:
        """Run a script on a machine, which has to succeed. Return its output."""
        return finished(self.start(machine, script))

    def serve(
        self, machine: str, script: str, seen_from: str, address: str
    ) -> "subprocess.Popen[str]":
        """Start a server, and return when another machine can connect to its address, HOST:PORT."""
        log = self._folder / f"{machine}.log"
        with log.open("a") as output:
            server = self.start(machine, script, output)
        host, port = address.split(":")
        connect = f"until (: < /dev/tcp/{host}/{port}) 2> /dev/null; do sleep 0.1; done"
        waiting = self.start(seen_from, connect)
        with contextlib.suppress(subprocess.TimeoutExpired):
            waiting.wait(WITHIN)
        if waiting.returncode != 0 or server.poll() is not None:
            kill(server)
            raise AssertionError(f"{machine} does not serve: {log.read_text()}")
        return server

    def _at(self, name: str) -> str:
        return f"{self._prefix}-{name.replace(' ', '-')}"

    def _namespace(self, name: str) -> str:
        namespace = self._at(name)
        _ip("netns", "add", namespace)
        self._stack.callback(_ip, "netns", "delete", namespace)
        _ip("-n", namespace, "link", "set", "lo", "up")
        return namespace

    def _veth(self, one: str, interface: str, other: str, other_interface: str) -> None:
        peer = ("peer", "name", other_interface, "netns", other)
        _ip("-n", one, "link", "add", interface, "type", "veth", *peer)
        for namespace, end in ((one, interface), (other, other_interface)):
            # Without an IPv6 address no unrequested packets are sent.
            _ip("-n", namespace, "link", "set", end, "addrgenmode", "none", "up")


@contextlib.contextmanager
def machines(folder: Path) -> Iterator[Machines]:
    """Make machines for a test, and remove them at its end, with all their processes."""
    with contextlib.ExitStack() as stack:
        yield Machines(folder, stack)


def _trainings() -> Path:
    """Return the folder of programs that import PyTorch and start soon."""
    return forked_programs(names=("python", "torchrun"))


def finished(process: "subprocess.Popen[str]") -> str:
    """Return a process's output to its end. The process has to succeed."""
    try:
        said, _ = process.communicate(timeout=WITHIN)
    except subprocess.TimeoutExpired as waited:
        raise AssertionError(f"it goes on and on: {(waited.stdout or b'').decode()}") from None
    assert process.returncode == 0, said
    return said


def kill(process: "subprocess.Popen[str]") -> None:
    """End a process and all that it has started, as ``kill -9`` does."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdout:
        process.stdout.close()


def _ip(*arguments: str) -> None:
    subprocess.run(["ip", *arguments], check=True)
