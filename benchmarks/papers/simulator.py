"""All-reduces between 8 and 16 emulated hosts, simulated and measured: the error of the simulator.

::

    python -m benchmarks.papers.simulator --output build/simulator

The networks are a rack and racks below a spine, with slower links, other traffic, and workers that
come late. The simulator gets these from the setting:

* the rates, the bucket and the other traffic

and these from measurements that contain no sum:

* the delay of a link, from the barrier, which is a packet each way
* the control traffic, from the counters of an idle link: heartbeats share the slow links
* the start of each worker, from the same clock that takes the time

So a start that this machine's processors delay is no error of the simulator. A packet that they
delay afterwards is one. Processors can only delay packets. So the table also has the error of the
fastest repetition, and the packets that hosts repeated.
"""

import json
import os
import statistics
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import typer

from benchmarks.papers.common import emulate_topology, machine
from benchmarks.papers.report import Markdown, Output, Quick, Show, Table, read_result, show
from innet.model.all_reduce import SlotParameters
from innet.model.scenario import Level, Scenario, SimulatedLink
from innet.model.simulate import simulate_collective

CHUNKS = (64, 128, 256)
"""Packets of the all-reduces."""
BURST = 15_000.0
"""Bytes that an emulated link carries at once after a rest (innet/emulation/network.py)."""
CONTROL_BYTES = 300
"""Bytes of a heartbeat's frame, and of what answers it."""
OTHER_PACKETS = 3
OTHER_BYTES = 1042
"""Packets of a burst of other traffic, and the bytes of their frames (simulator_host.py)."""
_MBIT = 1e6
_REPEATS = 5


@dataclass(frozen=True)
class Setting:
    """A network of racks with so many hosts each; several racks are below a spine.

    Rates are in Mbit/s. The first host's link may be slow, and its worker `late` seconds late. Every
    host sends other traffic to the next, which takes the share `background` of its link.
    """

    name: str
    hosts: int = 8
    racks: int = 1
    rate: float = 2.0
    uplink: float = 0.0
    slow: float = 0.0
    late: float = 0.0
    background: float = 0.0
    slots: int = 128

    @property
    def workers(self) -> int:
        """Return the number of hosts."""
        return self.hosts * self.racks

    def topology(self) -> dict[str, Any]:
        """Return the network as docs/topologies.md describes it."""
        tors = [self._tor(number) for number in range(self.racks)]
        racks: list[dict[str, Any]] = [
            {"switch": each["name"], "hosts": self.hosts} for each in tors
        ]
        if self.slow:
            racks[0]["hosts"] = self.hosts - 1
            first = {"switch": "tor0", "hosts": 1, "link": {"rate": _rate(self.slow)}}
            racks.insert(0, first)
        return {
            "link": {"rate": _rate(self.rate), "queue": "2000ms"},
            "slots": self.slots,
            "switches": [*([{"name": "spine"}] if self.racks > 1 else []), *tors],
            "racks": racks,
        }

    def _tor(self, number: int) -> dict[str, Any]:
        """Return a rack's switch, below the spine if there is one."""
        uplink = {"to": "spine", "link": {"rate": _rate(self.uplink or self.rate)}}
        return {"name": f"tor{number}", "uplinks": [uplink] if self.racks > 1 else []}

    def scenario(
        self, delay: float, control: float, chunks: int, starts: Sequence[float]
    ) -> Scenario:
        """Return the scenario for the simulator.

        `delay` is that of a link, in seconds. `control` is the control traffic on a worker's link, in
        bits per second. A rack's uplink carries that of all its workers.
        """
        slots = SlotParameters(self.slots)
        # The others wait for the slow host's link all the time, so all links may as well be slow.
        rate = (self.slow or self.rate) * _MBIT
        line = SimulatedLink(rate, delay, burst=BURST)
        below = replace(
            line, background=self.background + control / rate,
            background_burst=OTHER_PACKETS * OTHER_BYTES if self.background else CONTROL_BYTES,
        )  # fmt: skip
        rate = (self.uplink or self.rate) * _MBIT
        share = self.hosts * control / rate
        uplink = replace(line, rate=rate, background=share, background_burst=CONTROL_BYTES)
        tree = (Level(below, self.racks), Level(uplink)) if self.racks > 1 else (Level(below),)
        size = 4.0 * slots.lanes * chunks
        return Scenario(self.workers, size, tree, slots, tuple(starts))


def _rate(mbit: float) -> str:
    return f"{mbit:g}mbit"


SETTINGS = (
    Setting("one rack"),
    Setting("one rack, a worker 100 ms late", late=0.1),
    Setting("one rack, one link half as fast", slow=1.0),
    # With a large window, a host's other traffic would wait behind it, and reach the next one later.
    Setting("one rack, 16 slots", slots=16),
    Setting("one rack, 16 slots, 30 % other traffic", slots=16, background=0.3),
    Setting("2 racks of 4", hosts=4, racks=2),
    Setting("4 racks of 4, uplinks half as fast", hosts=4, racks=4, uplink=1.0),
    Setting("one rack of 16", hosts=16),
)


@dataclass(frozen=True)
class Row:
    """A setting with its seconds, simulated and measured, in each repetition."""

    setting: str
    hosts: int
    chunks: int
    simulated: Sequence[float]
    measured: Sequence[float]
    repeated: Sequence[float]
    """Packets that the hosts repeated, as a share of those that they need."""
    load: float
    """Processes that wanted to run on this machine, the mean of a minute."""

    @property
    def error(self) -> float:
        """Return the simulator's error as a share of the measured time, both as medians."""
        return statistics.median(self.simulated) / statistics.median(self.measured) - 1

    @property
    def fastest_error(self) -> float:
        """Return the error in the repetition that took the least time."""
        simulated, measured = min(
            zip(self.simulated, self.measured, strict=True), key=lambda times: times[1]
        )
        return simulated / measured - 1


def measured(setting: Setting, chunks: Sequence[int], repeats: int) -> list[Row]:
    """Emulate a setting, and simulate each of its all-reduces."""
    with tempfile.TemporaryDirectory() as folder:
        given = {
            "chunks": list(chunks), "repeats": repeats, "late": setting.late, "slots": setting.slots,
            "period": _period(setting), "rest": 8 * BURST / (0.5 * _lowest(setting) * _MBIT),
        }  # fmt: skip
        arguments = [json.dumps(given), folder]
        emulate_topology(setting.topology(), "benchmarks.papers.simulator_host", arguments)
        files = sorted(Path(folder).glob("*.json"), key=lambda each: int(each.stem))
        hosts = [json.loads(each.read_text()) for each in files]
    levels = 2 if setting.racks > 1 else 1
    trips = [ended - started for started, ended, _ in _times([each["barrier"] for each in hosts])]
    delay = statistics.median(trips) / (2 * levels)
    control = statistics.median(each["control"] for each in hosts)
    return [
        _row(setting, delay, control, count, [each["sums"][str(count)] for each in hosts])
        for count in chunks
    ]


def _lowest(setting: Setting) -> float:
    """Return the rate of the slowest link, in Mbit/s."""
    return min(each for each in (setting.rate, setting.uplink, setting.slow) if each)


def _period(setting: Setting) -> float:
    """Return the seconds between two bursts of other traffic; 0 without any."""
    share = setting.background * setting.rate * _MBIT
    return 8 * OTHER_PACKETS * OTHER_BYTES / share if share else 0.0


def _times(notes: Sequence[Sequence[Sequence[float]]]) -> list[tuple[float, float, float]]:
    """Return the last start, the last end and the repeated packets of each repetition.

    The notes are of shape (hosts, repetitions, 3).
    """
    return [
        (
            max(start for start, *_ in each),
            max(end for _, end, _ in each),
            sum(repeated for *_, repeated in each),
        )
        for each in zip(*notes, strict=True)
    ]


def _row(
    setting: Setting,
    delay: float,
    control: float,
    chunks: int,
    notes: Sequence[Sequence[Sequence[float]]],
) -> Row:
    """Simulate each repetition with the starts that it had."""
    simulated, took = [], []
    for each, (_, end, _) in zip(zip(*notes, strict=True), _times(notes), strict=True):
        first = min(start for start, *_ in each)
        scenario = setting.scenario(delay, control, chunks, [start - first for start, *_ in each])
        simulated.append(simulate_collective(scenario, "all-reduce").seconds)
        took.append(end - first)
    repeated = [packets / (chunks * setting.workers) for *_, packets in _times(notes)]
    load = os.getloadavg()[0]
    return Row(setting.name, setting.workers, chunks, simulated, took, repeated, load)


def main(
    output: Output, show_only: Show = False, markdown: Markdown = False, quick: Quick = False
) -> None:
    """Measure, simulate, and write both after each setting."""
    file = output / "result.json"
    if not show_only:
        output.mkdir(parents=True, exist_ok=True)
        rows: list[Row] = []
        for setting in [replace(SETTINGS[0], hosts=2)] if quick else SETTINGS:
            rows += measured(setting, CHUNKS[:1] if quick else CHUNKS, 1 if quick else _REPEATS)
            result = {"machine": machine(), "rows": [asdict(row) for row in rows]}
            file.write_text(json.dumps(result, indent=1) + "\n")
    found = read_result(file)
    show([table([Row(**each) for each in found["rows"]])], markdown=markdown, quick=quick)


def table(rows: Sequence[Row]) -> Table:
    """Return the table, with the median and the greatest errors at the end."""
    cells = [
        [
            row.setting, str(row.hosts), str(row.chunks),
            f"{statistics.median(row.simulated) * 1e3:.0f}",
            f"{statistics.median(row.measured) * 1e3:.0f}",
            f"{row.error:+.1%}", f"{row.fastest_error:+.1%}",
            f"{statistics.median(row.repeated):.1%}", f"{row.load:.0f}",
        ]
        for row in rows
    ]  # fmt: skip
    middles = [
        f"{statistics.median(errors):.1%}, {max(errors):.1%}"
        for errors in (
            [abs(row.error) for row in rows],
            [abs(row.fastest_error) for row in rows],
        )
    ]
    last = ["size of the error, median and greatest", "", "", "", "", *middles, "", ""]
    headings = [
        "network", "hosts", "chunks", "simulated, ms", "measured, ms", "error", "error of the fastest",
        "repeated", "load",
    ]  # fmt: skip
    return Table(headings, [*cells, last])


if __name__ == "__main__":
    typer.run(main)
