"""The common part of the papers' experiments: trainings in an emulated cluster, and their results.

Every worker is a process on a host of its own, behind a link with a limited rate
(docs/topologies.md). So communication takes as long as the link needs. The hosts run `worker`.
Needs root and Mininet.
"""

import importlib.metadata
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from innet.errors import InnetError

INNET = Path(sys.executable).with_name("innet")
_WITHIN = 350.0


@dataclass(frozen=True)
class Net:
    """A rack of hosts. Queues are deep enough to drop nothing, since a loss would cost a timeout.

    With a `server_rate` there is one more host, the first, whose link has that rate.
    """

    workers: int = 4
    rate: str = "20mbit"
    slots: int = 128
    queue: str = "500ms"
    server_rate: str = ""

    @classmethod
    def quick(cls, *, server: bool = False) -> "Net":
        """Return the smallest network, for `--quick`; with a server if settings may need one."""
        rate = "100mbit"
        return cls(workers=2, rate=rate, server_rate=rate if server else "")

    @property
    def racks(self) -> list[dict[str, Any]]:
        """Return the racks as a topology has them (docs/topologies.md)."""
        workers = {"switch": "tor", "hosts": self.workers}
        if not self.server_rate:
            return [workers]
        return [{"switch": "tor", "hosts": 1, "link": {"rate": self.server_rate}}, workers]


@dataclass(frozen=True)
class Spec:
    """The settings of one training."""

    algorithm: str
    label: str
    over: str = "ring"
    """``ring``, ``tree``, ``switch``; ``server``, a parameter server on a host of its own;
    ``pbox``, the same with `innet pbox serve`; or ``pbox-sharded``, one of these on every worker's
    host.
    """
    codec: str = ""
    """The codec of a ring or of the messages to and from a server, or the switch's quantizer."""
    options: dict[str, Any] = field(default_factory=dict)
    begin: bool = True
    """Whether the loop calls `begin` at the start of an iteration."""
    steps: int = 200
    batch: int = 32
    model: str = "cnn"
    """``cnn``, or ``mlp-WIDTH-HIDDEN``, a perceptron with HIDDEN hidden layers, by default two."""
    sample_ms: float = 0.0
    """Milliseconds of a forward and backward pass per sample on the host's emulated device. The
    worker waits so long, however fast the machine is. 0: the pass takes as long as this machine
    needs.
    """
    server_rate: str = ""
    """The rate of the link of the server's host, if it differs from the others."""
    rate: float = 0.2
    momentum: float = 0.0
    looks: int = 30
    """The number of times that the accuracy is measured."""
    seed: int = 1


@dataclass(frozen=True)
class Run:
    """The measurements of worker 0: seconds in all, and accuracy on the test set over seconds."""

    label: str
    accuracy: float
    seconds: float
    median_step: float
    """The median seconds of a step. A few steps disturbed by the machine do not change it."""
    forward: float
    backward: float
    updating: float
    waiting: float
    """Seconds of communication that nothing hides."""
    busy: float
    """Seconds of a ring's communication thread, hidden or not."""
    compressing: float
    """The part of `busy` that is spent in the codec."""
    curve: list[tuple[float, float]]
    spec: dict[str, Any]

    @property
    def step(self) -> float:
        """Return the mean seconds per step."""
        return self.seconds / int(self.spec["steps"])

    def reached(self, goal: float) -> float | None:
        """Return the seconds until the accuracy was `goal` at two looks in a row, or None."""
        right = [accuracy >= goal for _, accuracy in self.curve]
        for (at, _), now, then in zip(self.curve, right, [*right[1:], True], strict=True):
            if now and then:
                return at
        return None


def run(specs: Sequence[Spec], net: Net) -> list[Run]:
    """Run all trainings, in one emulation for each rate of a server's link. Raises InnetError.

    Trainings without a server have an emulation without a server's host. If the net has a
    `server_rate`, all trainings run in that one network. In a training without a server, the
    server's host is one more worker.
    """
    found: list[Run] = []
    for rate in sorted({_server_rate(spec, net) for spec in specs}, reverse=True):
        chosen = [spec for spec in specs if _server_rate(spec, net) == rate]
        found += _run(chosen, replace(net, server_rate=rate))
    return sorted(found, key=lambda each: [spec.label for spec in specs].index(each.label))


def _server_rate(spec: Spec, net: Net) -> str:
    """Return the link rate of the host for a server, or an empty string if there is none."""
    if net.server_rate:
        return net.server_rate
    return (spec.server_rate or net.rate) if spec.over in ("server", "pbox") else ""


def _run(specs: Sequence[Spec], net: Net) -> list[Run]:
    """Run the trainings one after the other, in one emulation."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        (folder / "specs.json").write_text(json.dumps([asdict(spec) for spec in specs]))
        emulate(net, "benchmarks.papers.worker", [folder / "specs.json", folder / "runs.json"])
        lines = (folder / "runs.json").read_text().splitlines()
    return [Run(**json.loads(line)) for line in lines]


def emulate(net: Net, module: str, arguments: Sequence[object]) -> None:
    """Run a module on every host of an emulated rack. Raises InnetError."""
    topology = {
        "link": {"rate": net.rate, "queue": net.queue},
        "slots": net.slots,
        "switches": [{"name": "tor"}],
        "racks": net.racks,
    }
    emulate_topology(topology, module, arguments)


def emulate_topology(topology: dict[str, Any], module: str, arguments: Sequence[object]) -> None:
    """Run a module on every host of a topology (docs/topologies.md). Raises InnetError."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "rack.yaml"
        file.write_text(yaml.safe_dump(topology))
        command = [sys.executable, "-m", module, *map(str, arguments)]
        done = subprocess.run(
            [INNET, "emulate", str(file), "--", *command],
            capture_output=True, text=True, check=False, timeout=_WITHIN,
        )  # fmt: skip
    if done.returncode:
        raise InnetError(f"the emulation failed:\n{done.stdout[-4000:]}{done.stderr[-4000:]}")


def median(runs: Sequence[Run], what: str) -> float:
    """Return the median of one quantity, over the seeds."""
    return statistics.median(float(getattr(each, what)) for each in runs)


def by_label(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """Return the runs of every setting, one for each seed."""
    found: dict[str, list[Run]] = {}
    for each in runs:
        found.setdefault(each.label, []).append(each)
    return found


def read(output: Path) -> list[Run]:
    """Return the runs of earlier parts of an experiment, if there are any."""
    file = output / "result.json"
    return [Run(**each) for each in json.loads(file.read_text())["runs"]] if file.exists() else []


def write(output: Path, runs: Sequence[Run], net: Net) -> None:
    """Write the runs and a description of the network and the machine."""
    output.mkdir(parents=True, exist_ok=True)
    result = {"machine": machine(), "net": asdict(net), "runs": [asdict(each) for each in runs]}
    (output / "result.json").write_text(json.dumps(result, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """Return a description of the machine, which the figures depend on."""
    return {
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
    }
