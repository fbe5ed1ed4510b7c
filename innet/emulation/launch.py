"""A command on every host, with the environment that torchrun would give it."""

import contextlib
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import IO

from innet.emulation.plan import Plan
from innet.machine import environment as names
from innet.terminal.signals import INTERRUPTS

MASTER_PORT = 29_500
SWITCH_INTERFACE = "SWITCH_IFNAME"
"""The variable with the name of the interface at the switch's end of a host's link."""
_STOP_WITHIN_S, _LOOK_EVERY_S = 5.0, 0.05

LineHandler = Callable[[str, str], None]
"""A function that takes a host's name and a line of its output."""


def environment(plan: Plan, rank: int, controller: str, job: str, token: str) -> dict[str, str]:
    """Return the environment of the process of this rank: torchrun's variables and innet's."""
    host = plan.hosts[rank]
    return {
        "RANK": str(rank),
        "LOCAL_RANK": "0",
        "WORLD_SIZE": str(len(plan.hosts)),
        "LOCAL_WORLD_SIZE": "1",
        "GROUP_RANK": str(rank),
        "MASTER_ADDR": plan.hosts[0].address.ip,
        "MASTER_PORT": str(MASTER_PORT),
        "GLOO_SOCKET_IFNAME": host.interface,
        "TP_SOCKET_IFNAME": host.interface,
        SWITCH_INTERFACE: plan.port_of(host).interface,
        "OMP_NUM_THREADS": os.environ.get("OMP_NUM_THREADS", "1"),  # as torchrun does
        names.CONTROLLER: controller,
        names.JOB: job,
        names.TOKEN: token,
        names.LINK: "host",
        names.TLS: "",
    }


@dataclass(frozen=True)
class HostExit:
    """The exit of a host's process: its code as in `subprocess`, or None if it was stopped."""

    host: str
    code: int | None

    @property
    def failed(self) -> bool:
        """Return whether the process failed. A process that was stopped has not failed."""
        return bool(self.code)

    def __str__(self) -> str:
        if self.code is None:
            return "stopped"
        if self.code < 0:
            known = {each.value: each.name for each in signal.Signals}
            return f"killed by {known.get(-self.code, f'signal {-self.code}')}"  # some have no name
        return f"exit code {self.code}"


class HostProcesses:
    """Processes, one on every host. `pids` maps each node to the id of a process in its namespace."""

    def __init__(self, pids: Mapping[str, int], handle_line: LineHandler) -> None:
        self._pids = pids
        self._handle_line = handle_line
        self._running: dict[str, subprocess.Popen[str]] = {}
        self._started: list[tuple[subprocess.Popen[str], threading.Thread]] = []

    def start(self, host: str, command: Sequence[str], environment: Mapping[str, str]) -> None:
        """Run a command on a host. The caller has to call :meth:`stop` in the end."""
        with INTERRUPTS.held():
            process = subprocess.Popen(
                # -d starts a new session, so one signal ends the command and all that it has started.
                ["mnexec", "-da", str(self._pids[host]), *command],
                env={**os.environ, **environment},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
                errors="replace",
            )
            self._running[host] = process
        reader = threading.Thread(target=self._read, args=(host, process), daemon=True)
        self._started.append((process, reader))
        reader.start()
        INTERRUPTS.check()

    def exits(self) -> Iterator[HostExit | None]:
        """Yield each process's exit, and regularly None, so that the caller can do other things.

        Processes that one has left behind may write on: :meth:`stop` ends them.
        """
        while self._running:
            for host, process in [*self._running.items()]:
                if (code := process.poll()) is not None:
                    del self._running[host]
                    yield HostExit(host, code)
            yield None
            time.sleep(_LOOK_EVERY_S)

    def stop(self) -> list[HostExit]:
        """End running processes with SIGTERM, and SIGKILL if necessary. Return their exits."""
        stopped = [HostExit(host, None) for host in self._running]
        deadline = time.monotonic() + _STOP_WITHIN_S
        for process in self._running.values():
            _signal(process, signal.SIGTERM)
        for process in self._running.values():
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(max(0, deadline - time.monotonic()))
        self._running.clear()
        for process, reader in self._started:
            _signal(process, signal.SIGKILL)  # and those that it has started and left behind
            process.wait()
            reader.join(_STOP_WITHIN_S)
        return stopped

    def _read(self, host: str, process: "subprocess.Popen[str]") -> None:
        out: IO[str] = process.stdout  # type: ignore[assignment]
        with out:
            for line in out:
                self._handle_line(host, line.rstrip("\n"))


def _signal(process: "subprocess.Popen[str]", number: signal.Signals) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, number)
