"""The side that starts replicas: their interpreter, their lighthouse, and their events."""

import contextlib
import functools
import importlib.util
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from benchmarks.replicas.settings import Training
from innet.errors import InnetError, UsageError
from innet.local.processes import serving, spawned

OWN = Path(__file__).parents[2] / ".venv-libs/bin/python"
PROGRAM = "benchmarks.replicas.program"


@dataclass
class Replica:
    """A process for trainings, and the events of the present one."""

    process: subprocess.Popen[str]
    log: Path
    events: list[dict[str, Any]] = field(default_factory=list)

    def prepare(self, training: Training) -> None:
        """Hand a training to the replica. Call :meth:`begin` when all replicas are ready."""
        self.events.clear()
        self._write(json.dumps(asdict(training)))

    def begin(self) -> None:
        """Let the replica train."""
        self._write("begin")

    def leave(self) -> None:
        """Let the replica leave as soon as it has trained."""
        self._write("leave")

    def kill(self) -> None:
        """Kill the replica with SIGKILL."""
        self.process.kill()
        self.process.wait()

    def until(self, name: str, step: int = 0) -> dict[str, Any]:
        """Wait for the next event of this kind, at `step` or later. Raises InnetError."""
        for line in self.process.stdout or ():
            event: dict[str, Any] = json.loads(line)
            self.events.append(event)
            if event["event"] == name and event.get("step", step) >= step:
                return event
        raise InnetError(f"a replica has ended:\n{self.log.read_text()[-4000:]}")

    def all(self, name: str) -> list[dict[str, Any]]:
        """Return the replica's events of a kind."""
        return [event for event in self.events if event["event"] == name]

    def _write(self, line: str) -> None:
        if self.process.stdin:
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()


@functools.cache
def interpreter() -> str:
    """Return the interpreter that has torchft. Raises UsageError."""
    if importlib.util.find_spec("torchft"):
        return sys.executable
    look = "import importlib.util, sys; sys.exit(importlib.util.find_spec('torchft') is None)"
    if OWN.exists() and not subprocess.run([OWN, "-c", look], check=False).returncode:
        return str(OWN)
    raise UsageError("torchft is not installed: run `make libraries`")


@contextlib.contextmanager
def lighthouses(number: int) -> Iterator[Iterator[str]]:
    """Run some of torchft's lighthouses in a process, and yield their addresses. Raises InnetError.

    Each is for one training. Its quorums have at least two replicas, and all that it has heard of in
    the last 5 seconds.
    """
    command = [interpreter(), "-m", PROGRAM, "lighthouses", str(number)]
    with serving("lighthouses", command) as (_, addresses):
        yield iter(addresses.split())


@contextlib.contextmanager
def replica(environment: Mapping[str, str]) -> Iterator[Replica]:
    """Start a process for trainings, which ends with the block."""
    with tempfile.NamedTemporaryFile(
        "w", suffix=".log"
    ) as log:  # a pipe that is full would stop it
        command = [interpreter(), "-m", PROGRAM, "replica"]
        variables = {**environment, "OMP_NUM_THREADS": "1"}
        with spawned(command, variables, stdin=subprocess.PIPE, stderr=log) as process:
            yield Replica(process, Path(log.name))


@contextlib.contextmanager
def digits_file() -> Iterator[str]:
    """Yield a file with the digits as replicas read them."""
    import torch

    from innet.demo.training import digits

    with tempfile.NamedTemporaryFile(suffix=".pt") as file:
        torch.save(digits()[0], file)
        file.flush()
        yield file.name
