"""What the papers' experiments have in common: trainings, in an emulated cluster, and what they took.

Every worker is a process on a host of its own, behind a link whose rate is capped (docs/topologies.md):
communication takes the time that the link takes. `worker` is what runs there. Needs root and Mininet.
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
    """A rack of hosts. Queues are as deep as it takes to drop nothing: a loss would cost a timeout.

    With a `server_rate` there is one more, the first, whose link has that rate.
    """

    workers: int = 4
    rate: str = "20mbit"
    slots: int = 128
    queue: str = "500ms"
    server_rate: str = ""

    @classmethod
    def quick(cls, *, server: bool = False) -> "Net":
        """As few hosts as make a network, for `--quick`; with a server, where settings may need one."""
        rate = "100mbit"
        return cls(workers=2, rate=rate, server_rate=rate if server else "")

    @property
    def racks(self) -> list[dict[str, Any]]:
        """As a topology has them (docs/topologies.md)."""
        workers = {"switch": "tor", "hosts": self.workers}
        if not self.server_rate:
            return [workers]
        return [{"switch": "tor", "hosts": 1, "link": {"rate": self.server_rate}}, workers]


@dataclass(frozen=True)
class Spec:
    """One training."""

    algorithm: str
    label: str
    over: str = "ring"
    """``ring``, ``tree``, ``switch``; ``server``, a parameter server on a host of its own; ``pbox``, the
    same with `innet pbox serve`; or ``pbox-sharded``, one of these on every worker's host."""
    codec: str = ""
    """A ring's codec, or that of the way to a server and back, or the switch's quantizer."""
    options: dict[str, Any] = field(default_factory=dict)
    begin: bool = True
    """Whether the loop says when an iteration begins."""
    steps: int = 200
    batch: int = 32
    model: str = "cnn"
    """``cnn``, or ``mlp-WIDTH-HIDDEN``, a perceptron with so many hidden layers, by default two."""
    sample_ms: float = 0.0
    """What a forward and backward pass takes a sample on the host's device, which is emulated: the worker
    waits for so long, however fast the machine is. 0: what it takes here."""
    server_rate: str = ""
    """Of the link of the host with the server, if it is not that of the others."""
    rate: float = 0.2
    momentum: float = 0.0
    looks: int = 30
    """How often the accuracy is taken."""
    seed: int = 1


@dataclass(frozen=True)
class Run:
    """What was measured at worker 0: seconds in all, and accuracy on the test set over seconds."""

    label: str
    accuracy: float
    seconds: float
    median_step: float
    """Seconds of a step, of which a few may have had the machine against them."""
    forward: float
    backward: float
    updating: float
    waiting: float
    """For communication that nothing hides."""
    busy: float
    """Of a ring: the communication thread's seconds, hidden or not."""
    compressing: float
    """Those of them in the codec."""
    curve: list[tuple[float, float]]
    spec: dict[str, Any]

    @property
    def step(self) -> float:
        """Seconds a step, the mean."""
        return self.seconds / int(self.spec["steps"])

    def reached(self, goal: float) -> float | None:
        """Seconds until the accuracy was first `goal`, and stayed there for the next look."""
        right = [accuracy >= goal for _, accuracy in self.curve]
        for (at, _), now, then in zip(self.curve, right, [*right[1:], True], strict=True):
            if now and then:
                return at
        return None


def run(specs: Sequence[Spec], net: Net) -> list[Run]:
    """Train all, in an emulation for each rate of a server's link, and one without. Raises InnetError.

    If the net has a `server_rate`, all are trained in that one; where there is no server, its host is one
    more worker.
    """
    found: list[Run] = []
    for rate in sorted({_server_rate(spec, net) for spec in specs}, reverse=True):
        chosen = [spec for spec in specs if _server_rate(spec, net) == rate]
        found += _run(chosen, replace(net, server_rate=rate))
    return sorted(found, key=lambda each: [spec.label for spec in specs].index(each.label))


def _server_rate(spec: Spec, net: Net) -> str:
    """Of the link of the host that is there for a server; empty where there is none."""
    if net.server_rate:
        return net.server_rate
    return (spec.server_rate or net.rate) if spec.over in ("server", "pbox") else ""


def _run(specs: Sequence[Spec], net: Net) -> list[Run]:
    """Train one after the other, in one emulation."""
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
    """Of one quantity, over the seeds."""
    return statistics.median(float(getattr(each, what)) for each in runs)


def by_label(runs: Sequence[Run]) -> dict[str, list[Run]]:
    """The runs of every setting, one for each seed."""
    found: dict[str, list[Run]] = {}
    for each in runs:
        found.setdefault(each.label, []).append(each)
    return found


def read(output: Path) -> list[Run]:
    """What earlier parts of an experiment have measured; nothing if there are none."""
    file = output / "result.json"
    return [Run(**each) for each in json.loads(file.read_text())["runs"]] if file.exists() else []


def write(output: Path, runs: Sequence[Run], net: Net) -> None:
    """What was measured, and on what."""
    output.mkdir(parents=True, exist_ok=True)
    result = {"machine": machine(), "net": asdict(net), "runs": [asdict(each) for each in runs]}
    (output / "result.json").write_text(json.dumps(result, indent=1) + "\n")


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "processors": os.cpu_count(),
        "load": os.getloadavg()[0],
        "python": platform.python_version(),
        "torch": importlib.metadata.version("torch"),
    }
