"""Predictions of the timing models beside measurements on emulated hosts.

::

    python -m benchmarks.papers.validation --output build/validation

First the emulation is *calibrated* with all-reduces of up to 64 KiB over the ring and the switch,
with parameters sent to a server and back, with the codecs, and with a step that communicates
nothing. From these `innet.model.fit` finds α, β, γ and S of a link for each transport. Then the
formulas of docs/models.md predict a training step of a model of 100 KB and more, and the step is
measured.

The simulator is given the rate and the bucket of the links from the topology. For the delay it gets
half of the round trip of one chunk. Then all-reduces of other sizes are simulated and measured.
"""

import json
import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.papers.common import Net, Run, Spec, emulate, machine, run
from benchmarks.papers.report import Markdown, Output, Quick, Show, Table, read_result, show
from innet.model import all_reduce, iteration
from innet.model.all_reduce import SlotParameters
from innet.model.fit import fit
from innet.model.links import LinkModel
from innet.model.scenario import Level, Scenario, SimulatedLink
from innet.model.simulate import simulate

SIZES = (16_384, 32_768, 65_536)
"""Bytes of the vectors to which α, β, γ and S are fitted."""
CHUNKS = (1, 4, 16, 32, 64, 128, 256)
"""Packets of the simulated all-reduces."""
CODECS = {"": 1.0, "T": 1 / 2, "Q": 1 / 4}
"""The factor by which a codec changes the bytes."""
BURST = 15_000.0
"""Bytes that an emulated link carries at once after a rest (innet/emulation/network.py)."""
_MBIT = 1e6
_REPEATS = 9
_NEAR = 0.2
"""The limit up to which a prediction counts as close."""


@dataclass(frozen=True)
class Row:
    """A setting with its predicted and measured seconds."""

    kind: str
    setting: str
    predicted: float
    measured: float

    @property
    def error(self) -> float:
        """Return the prediction's error as a share of the measured time."""
        return self.predicted / self.measured - 1


def settings(steps: int) -> list[Spec]:
    """Return the settings that are measured and predicted."""
    names = {"d-sync": "D-Sync", "pipe-sgd": "Pipe-SGD"}
    model = Spec("d-sync", "", steps=steps, looks=1)
    rings = [
        replace(model, algorithm=each, label=f"{name}, ring {codec}".strip(), codec=codec)
        for each, name in names.items()
        for codec in CODECS
    ]
    switches = [
        replace(model, algorithm=each, label=f"{name}, switch", over="switch")
        for each, name in names.items()
    ]
    elastic = [
        replace(model, algorithm="sync-easgd-3", label=f"Sync EASGD3, {over}", over=over)
        for over in ("ring", "switch")
    ]
    larger = [
        replace(each, label=f"{each.label}, 180 KB", model="mlp-180")
        for each in (rings[0], rings[3], switches[0], switches[1])
    ]
    server = replace(model, algorithm="ps-sync", label="PS-Sync", over="server", steps=steps // 2)
    return [server, *rings, *switches, *elastic, *larger]


def predicted(spec: Spec, given: dict[str, Any], links: dict[str, LinkModel], net: Net) -> float:
    """Return the predicted seconds of a step."""
    alone = given["steps"][spec.model]
    size, share = 4.0 * alone["parameters"], CODECS[spec.codec]
    if spec.over == "server":
        # The server has one link: all gradients come, then all parameters go, and both count.
        communicate = all_reduce.server(net.workers, size, links["server"])
    elif spec.over == "ring":
        communicate = all_reduce.ring(net.workers, share * size, links["ring"])
        communicate += given["codecs"][spec.codec] * size if spec.codec else 0.0
    else:
        communicate = size * links["switch"].beta + links["switch"].alpha
    models: dict[str, Callable[..., float]] = {
        "ps-sync": iteration.synchronous,
        "d-sync": iteration.synchronous,
        "pipe-sgd": iteration.pipelined,
        "sync-easgd-3": iteration.elastic_overlapped,
    }
    return models[spec.algorithm](1, alone["update"], alone["compute"], communicate)


def fitted(given: dict[str, Any], workers: int) -> dict[str, LinkModel]:
    """Return the links from the calibration: of the ring, the server, and the switch."""
    rings = [{"transport": "ring", "workers": workers, **each} for each in given["ring"]]
    servers = [{"transport": "server", "workers": workers, **each} for each in given["server"]]
    return {
        "ring": fit({"all_reduces": rings}).link,
        "server": fit({"all_reduces": servers}).link,
        "switch": fit({"transfers": given["switch"]}).link,
    }


def calibrate(net: Net, parts: Sequence[str], repeats: int) -> dict[str, Any]:
    """Return the measurements of one emulation: medians of the slowest host's seconds."""
    with tempfile.TemporaryDirectory() as folder:
        emulate(net, "benchmarks.papers.calibration", [",".join(parts), repeats, folder])
        found = [json.loads(each.read_text()) for each in Path(folder).glob("*.json")]
    medians: dict[str, Any] = _slowest(found)
    return medians


def _slowest(found: Sequence[Any]) -> Any:
    """Replace each list of the hosts' repetitions by the median of the slowest. Keep all else."""
    first = found[0]
    if isinstance(first, dict):
        return {key: _slowest([each[key] for each in found]) for key in first}
    if isinstance(first, list) and first and isinstance(first[0], dict):
        return [_slowest(each) for each in zip(*found, strict=True)]
    if isinstance(first, list):
        return statistics.median(max(each) for each in zip(*found, strict=True))
    return first


def simulated(net: Net, measured: Sequence[dict[str, Any]]) -> list[Row]:
    """Return integer all-reduces through the switch, simulated and measured."""
    seconds = {each["chunks"]: each["seconds"] for each in measured}
    rate = float(net.rate.removesuffix("mbit")) * _MBIT
    line = SimulatedLink(rate, seconds[1] / 2, burst=BURST)
    slots = SlotParameters(slots=net.slots)
    hosts = net.workers + bool(net.server_rate)
    return [
        Row(
            "simulator",
            f"{count} chunks, {hosts} hosts, {net.rate}",
            simulate(Scenario(hosts, 4.0 * slots.lanes * count, (Level(line),), slots)).seconds,
            seconds[count],
        )
        for count in CHUNKS
        if count > 1
    ]


def main(
    output: Output,
    part: Annotated[str, typer.Option(help="formulas, simulator, or both.")] = "both",
    show_only: Show = False,
    markdown: Markdown = False,
    quick: Quick = False,
) -> None:
    """Calibrate, predict and measure."""
    file = output / f"{part}.json"
    if not show_only:
        output.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(measured(part, quick=quick), indent=1) + "\n")
    rows = [Row(**each) for each in read_result(file)["rows"]]
    _draw(rows, output / f"{part}.png")
    show([table(rows)], markdown=markdown, quick=quick)


def measured(part: str, *, quick: bool) -> dict[str, Any]:
    """Return the calibration, and each setting predicted and measured."""
    net = Net.quick(server=True) if quick else Net()
    chunks: dict[Net, Any] = {}
    given: dict[str, Any] = {}
    if quick:
        given = calibrate(net, ["chunks", "links", "server"], repeats=1)
        chunks[net] = given.pop("chunks")
    else:
        if part != "formulas":
            for each in (net, replace(net, workers=8, rate="10mbit")):
                chunks[each] = calibrate(each, ["chunks"], _REPEATS)["chunks"]
        if part != "simulator":
            given = calibrate(net, ["links"], _REPEATS)
            given |= calibrate(replace(net, server_rate=net.rate), ["server"], _REPEATS)
    rows: list[Row] = []
    if part != "formulas":
        rows += [row for each, sums in chunks.items() for row in simulated(each, sums)]
    if part != "simulator":
        rows += formulas(net, given, steps=4 if quick else 30)
    return {"machine": machine(), "calibration": given, "rows": [asdict(row) for row in rows]}


def table(rows: Sequence[Row]) -> Table:
    """Return the table, with the number of rows within 20 % at the end."""
    cells = [
        [
            row.setting,
            f"{row.predicted * 1e3:.1f}",
            f"{row.measured * 1e3:.1f}",
            f"{row.error:+.0%}",
        ]
        for row in rows
    ]
    near = sum(abs(row.error) <= _NEAR for row in rows)
    last = [f"within {_NEAR:.0%}", "", "", f"{near} of {len(rows)}"]
    return Table(["", "predicted, ms", "measured, ms", "error"], [*cells, last])


def _draw(rows: Sequence[Row], path: Path) -> None:
    """Draw predicted over measured times."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(5, 4.5), layout="constrained")
    axes = figure.subplots()
    for kind in dict.fromkeys(row.kind for row in rows):
        points = [(row.measured * 1e3, row.predicted * 1e3) for row in rows if row.kind == kind]
        axes.loglog(*zip(*points, strict=True), "o", label=kind)
    ends = [f([row.measured * 1e3 for row in rows]) for f in (min, max)]
    axes.loglog(ends, ends, color="grey")
    for share in (1 - _NEAR, 1 + _NEAR):
        axes.loglog(ends, [share * end for end in ends], ":", color="grey")
    axes.set_xlabel("measured, ms")
    axes.set_ylabel("predicted, ms")
    axes.legend()
    figure.savefig(path, dpi=70)


def formulas(net: Net, given: dict[str, Any], steps: int) -> list[Row]:
    """Return training steps, predicted from a calibration, and measured."""
    links = fitted(given, net.workers)
    specs = settings(steps)
    measured: dict[str, Run] = {each.label: each for each in run(specs, net)}
    return [
        Row(
            "formula",
            spec.label,
            predicted(spec, given, links, net),
            measured[spec.label].median_step,
        )
        for spec in specs
    ]


if __name__ == "__main__":
    typer.run(main)
