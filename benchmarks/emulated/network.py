"""Measurements of several kinds of all-reduce in one emulated network.

A `Network` is a rack, or racks below a spine, with links of one rate. `measure` emulates it once
(docs/topologies.md), has every host run `worker` for a list of cases, and gathers the hosts' notes.
The time of a step is that of the slowest host's call, and the time of a case is the median of its
steps. Bytes are those of whole frames, as the kernel counts them at the links' own interfaces.
"""

import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from innet.emulation.requirements import missing
from innet.errors import UsageError
from innet.wire.frames import USUAL_MTU
from innet.wire.records import least_mtu

INNET = Path(sys.executable).with_name("innet")
SERVER = "ps"
"""The host with the central parameter server: at the spine, or in the only rack."""


@dataclass(frozen=True)
class Case:
    """A case: `steps` sums of float32 vectors, by one of :mod:`benchmarks.emulated.peers`."""

    over: str
    nbytes: int
    steps: int


@dataclass(frozen=True)
class Network:
    """`racks` racks of `hosts` hosts; several racks are below a spine. `rate` is in bits per second.

    Each link has that rate both ways, or no cap if it is 0. At both ends it has room for
    `buffer_bytes`, as a switch has for each port: enough for a window of all `slots`, and for TCP's
    window. With a `server` there is one more host for it. The link of the last host with a vector may
    have a `slow_rate` instead.
    The MTU is 9000 bytes if packets with `lanes` lanes need more than the usual one.
    """

    racks: int
    hosts: int
    rate: int
    server: bool = False
    slots: int = 256
    buffer_bytes: int = 512_000
    slow_rate: int = 0
    lanes: int = 256

    @property
    def workers(self) -> int:
        """Return the number of hosts that have a vector."""
        return self.racks * self.hosts

    @property
    def root(self) -> str:
        """Return the name of the switch that completes the sums."""
        return "spine" if self.racks > 1 else "tor1"

    @property
    def uplink(self) -> tuple[str, str] | None:
        """Return the interfaces at both ends of the first rack's link to the spine."""
        if self.racks == 1:
            return None
        return f"tor1-eth{self.hosts + 1}", f"spine-eth{1 + self.server}"  # hosts come first

    def topology(self) -> dict[str, Any]:
        """Return the topology as `innet emulate` reads it."""
        tors = [f"tor{number}" for number in range(1, self.racks + 1)]
        above = [{"name": "spine"}] if self.racks > 1 else []
        parents = ["spine"] if self.racks > 1 else []
        racks: list[dict[str, Any]] = [{"switch": tor, "hosts": self.hosts} for tor in tors]
        if self.slow_rate:
            racks[-1]["hosts"] -= 1
            racks.append({"switch": tors[-1], "hosts": 1, "link": self._link(self.slow_rate)})
        served = [{"switch": self.root, "hosts": [SERVER]}] if self.server else []
        return {
            "link": self._link(self.rate),
            "slots": self.slots,
            "lanes": self.lanes,
            "mtu": USUAL_MTU if least_mtu(self.lanes) <= USUAL_MTU else 9000,
            "switches": [*above, *({"name": tor, "uplinks": [*parents]} for tor in tors)],
            "racks": [*racks, *served],
        }

    def _link(self, rate: int) -> dict[str, str]:
        if not rate:
            return {}
        return {"rate": f"{rate}bit", "queue": f"{self.buffer_bytes * 8e3 / rate:.3f}ms"}


@dataclass(frozen=True)
class Outcome:
    """The result of a case. Bytes are means per step. Those of the uplink are 0 if there is none.

    `processor_s` is the processor time of a host's process per step, a mean over the hosts. `switch_s` is
    that of the switch to which the first host is attached. `busy` is the share of all processors' time.
    """

    network: Network
    case: Case
    step_s: float
    steps_s: Sequence[float]
    processor_s: float
    up_bytes: float  # the mean over the hosts
    down_bytes: float
    uplink_up_bytes: float  # from the first rack to the spine
    uplink_down_bytes: float
    switch_s: float = 0.0
    busy: float = 0.0

    @property
    def link_share(self) -> float:
        """Return the vector's bytes over the bytes that a host's link could have carried in the time.

        The vector counts as float32 even with a narrower quantizer, so the result may be above 1.
        """
        return self._share(self.case.nbytes)

    @property
    def frame_share(self) -> float:
        """Return the frames' bytes over the bytes that a host's link could have carried one way."""
        return self._share(max(self.up_bytes, self.down_bytes))

    @property
    def uplink_share(self) -> float:
        """Return the share of the rack's link to the spine, in the fuller direction."""
        fuller = max(self.uplink_up_bytes, self.uplink_down_bytes)
        return self._share(fuller)

    def _share(self, nbytes: float) -> float:
        """Return a share of what a link can carry in a step; 0 where links have no cap."""
        rate = self.network.rate
        return nbytes * 8 / (self.step_s * rate) if rate else 0.0

    def figures(self) -> dict[str, Any]:
        """Return the outcome as JSON has it."""
        shares = {"link_share": self.link_share, "frame_share": self.frame_share}
        return {**asdict(self), **shares}


def measure(console: Console, network: Network, cases: Sequence[Case]) -> list[Outcome]:
    """Emulate a network and run the cases in it, with progress messages. Ctrl-C ends everything."""
    task = {"network": asdict(network), "cases": [asdict(case) for case in cases]}
    noted = emulate(console, network, [sys.executable, "-m", "benchmarks.emulated.worker"], task)
    return [
        _outcome(network, case, of_hosts)
        for case, of_hosts in zip(cases, zip(*noted, strict=True), strict=True)
    ]


def emulate(
    console: Console, network: Network, program: Sequence[str], task: dict[str, Any]
) -> list[Any]:
    """Emulate a network, and run a program on every host. Return the notes of those with a vector.

    The program gets a folder as its argument. It finds `task` there, in the file ``task.json``, and
    leaves its notes in ``RANK.json``. Raises UsageError if the machine lacks something.
    """
    if why := missing():
        raise UsageError(why)
    console.print(
        f"{network.racks} x {network.hosts} hosts, {network.rate / 1e6:g} Mbit/s", style="dim"
    )
    with tempfile.TemporaryDirectory(prefix="innet-benchmark-") as name:
        folder = Path(name)
        file = folder / "topology.yaml"
        file.write_text(yaml.safe_dump(network.topology()))
        (folder / "task.json").write_text(json.dumps(task))
        _emulate(console, [str(INNET), "emulate", str(file), "--", *program, str(folder)])
        return [
            json.loads((folder / f"{rank}.json").read_text()) for rank in range(network.workers)
        ]


def machine() -> dict[str, Any]:
    """Return a description of the machine."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    models = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return {"processor": models[0] if models else "unknown", "cores": os.cpu_count()}


def _outcome(network: Network, case: Case, of_hosts: Sequence[dict[str, Any]]) -> Outcome:
    steps = [max(each) for each in zip(*(host["seconds"] for host in of_hosts), strict=True)]
    uplink = of_hosts[0]["uplink"] or (0, 0)
    return Outcome(
        network, case, statistics.median(steps), steps,
        statistics.mean(host["processor"] for host in of_hosts) / case.steps,
        statistics.mean(host["link"][0] for host in of_hosts) / case.steps,
        statistics.mean(host["link"][1] for host in of_hosts) / case.steps,
        uplink[0] / case.steps, uplink[1] / case.steps,
        of_hosts[0]["switch"] / case.steps, of_hosts[0]["busy"],
    )  # fmt: skip


def _emulate(console: Console, command: Sequence[str]) -> None:
    """Run an emulation, and show the output of its first host."""
    said = []
    with _sigterm_as_ctrl_c(), subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
    ) as process:  # fmt: skip
        try:
            for line in process.stdout or ():
                said.append(line)
                host, _, what = line.partition("|")
                if host.strip() == "h1":
                    console.print(what.rstrip(), style="dim", highlight=False, markup=False)
        except BaseException:
            process.terminate()  # so that `innet emulate` removes its network
            raise
    if process.returncode:
        raise SystemExit("".join(said))


@contextlib.contextmanager
def _sigterm_as_ctrl_c() -> Iterator[None]:
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
