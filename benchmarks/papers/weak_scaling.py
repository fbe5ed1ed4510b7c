"""Weak scaling, as in table 4 of You, Buluç and Demmel (SC17): measured to 8 hosts, simulated to 4352.

::

    python -m benchmarks.papers.weak_scaling --output build/weak-scaling

Every worker's step has the same batch, for any number of workers. Efficiency is the time of a step
alone over the time of a step between all workers.

*Measured* are steps of Sync EASGD3 on emulated hosts with links of 2 Mbit/s, through the switch and
in a ring. All hosts compute on this machine's processors. The links are so slow that communication
takes the time, and efficiency is relative to the step of 2 workers.

*Simulated* are the paper's networks, with the seconds per step of one node in table 4, over the 10
Gb/s Ethernet of table 2. Sums in a tree of switches are simulated packet by packet; the tree and
the ring are those of docs/models.md. With Sync EASGD2 nothing is hidden. With Sync EASGD3
everything is hidden that fits beside the computation.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import typer

from benchmarks.papers.common import Net, Spec, machine, run
from benchmarks.papers.report import Markdown, Output, Quick, Show, Table, show
from innet.model import all_reduce, iteration
from innet.model.all_reduce import SlotParameters
from innet.model.links import SC17_TABLE_2
from innet.model.scenario import Scenario, SimulatedLink, switch_tree
from innet.model.simulate import simulate

WORKERS = (1, 2, 4, 8, 16, 32, 64, 4352)
"""The paper's 68 to 4352 cores are 1 to 64 nodes. The last entry has a worker for each core."""
RACK = 32


@dataclass(frozen=True)
class Model:
    """A network of the paper: bytes, seconds of a step at one node, efficiencies of table 4."""

    name: str
    size: float
    step: float
    paper: dict[int, float]


MODELS = (
    Model(
        "GoogleNet", 4 * 6.8e6, 1533 / 300,
        {1: 1.0, 2: 0.964, 4: 0.953, 8: 0.934, 16: 0.940, 32: 0.923, 64: 0.916},
    ),
    Model(
        "VGG-19", 575e6, 1318 / 80,
        {1: 1.0, 2: 0.915, 4: 0.890, 8: 0.865, 16: 0.807, 32: 0.785, 64: 0.802},
    ),
)  # fmt: skip


@dataclass(frozen=True)
class Row:
    """Efficiencies for a number of workers, from 0 to 1: with nothing hidden, and with overlap."""

    model: str
    workers: int
    switch: float
    tree: float
    ring: float
    overlapped: Sequence[float]
    paper: float | None


NETS = tuple(Net(workers, rate="2mbit") for workers in (2, 4, 8))
"""The networks of emulated hosts."""


def simulated(model: Model) -> list[Row]:
    """Return the efficiencies over a link of table 2, from the simulated and computed sums."""
    link = SC17_TABLE_2["ne020"]
    line, slots = SimulatedLink(8 / link.beta, link.alpha), SlotParameters()
    through: dict[int, float] = {}
    rows = []
    for workers in WORKERS:
        racks = -(-workers // RACK)
        # Equal workers and racks take as long as one, so only the depth of the tree matters.
        depth = 1 if racks == 1 else 2
        if workers > 1 and depth not in through:
            scenario = Scenario(workers, model.size, switch_tree(line, [racks]), slots)
            through[depth] = simulate(scenario).seconds
        seconds = (0.0, 0.0, 0.0)
        if workers > 1:
            formulas = (all_reduce.tree, all_reduce.ring)
            tree, ring = (formula(workers, model.size, link) for formula in formulas)
            seconds = (through[depth], tree, ring)
        alone = (model.step / iteration.synchronous(1, 0.0, model.step, each) for each in seconds)
        hidden = (
            model.step / iteration.elastic_overlapped(1, 0.0, model.step, each) for each in seconds
        )
        paper = model.paper.get(workers)
        rows.append(Row(model.name, workers, *alone, overlapped=[*hidden], paper=paper))
    return rows


def measured(nets: Sequence[Net], steps: int) -> dict[str, dict[int, float]]:
    """Return the seconds of a step, over the ring and through the switch."""
    found: dict[str, dict[int, float]] = {"switch": {}, "ring": {}}
    for net in nets:
        specs = [
            Spec("sync-easgd-3", over, over=over, model="mlp-64", steps=steps, looks=1, batch=8)
            for over in found
        ]
        for each in run(specs, net):
            found[each.label][net.workers] = each.step
    return found


def main(
    output: Output, show_only: Show = False, markdown: Markdown = False, quick: Quick = False
) -> None:
    """Measure, simulate, and write both."""
    file = output / "result.json"
    if not show_only:
        steps = measured([Net.quick()] if quick else NETS, steps=3 if quick else 20)
        rows = [row for model in MODELS[: 1 if quick else 2] for row in simulated(model)]
        output.mkdir(parents=True, exist_ok=True)
        result = {"machine": machine(), "steps": steps, "simulated": [asdict(row) for row in rows]}
        file.write_text(json.dumps(result, indent=1) + "\n")
    found = json.loads(file.read_text())
    times = {
        over: {int(workers): seconds for workers, seconds in each.items()}
        for over, each in found["steps"].items()
    }
    rows = [Row(**each) for each in found["simulated"]]
    _draw(times, rows, output / "figure.png")
    show([on_hosts(times), in_models(rows)], markdown=markdown, quick=quick)


def on_hosts(times: dict[str, dict[int, float]]) -> Table:
    """Return the measurements, with the efficiency over two hosts' step."""
    headings = [text for over in times for text in (f"{over}, ms a step", "efficiency")]
    rows = [
        [str(workers)]
        + [
            text
            for each in times.values()
            for text in (f"{each[workers] * 1e3:.0f}", f"{each[2] / each[workers]:.0%}")
        ]
        for workers in next(iter(times.values()))
    ]
    return Table(["hosts", *headings], rows)


def in_models(rows: Sequence[Row]) -> Table:
    """Return the simulations and formulas. The overlapped column is the worst of the three."""
    headings = ["", "nodes", "switches", "tree", "ring", "any, overlapped", "paper"]
    cells = [
        [row.model, str(row.workers)]
        + [f"{each:.1%}" for each in (row.switch, row.tree, row.ring, min(row.overlapped))]
        + [f"{row.paper:.1%}" if row.paper else ""]
        for row in rows
    ]
    return Table(headings, cells)


def _draw(times: dict[str, dict[int, float]], rows: Sequence[Row], path: Path) -> None:
    """Draw efficiencies over nodes: the measured ones, and each model's beside the paper's."""
    from matplotlib.figure import Figure

    colors = {"switch": "C0", "tree": "C1", "ring": "C2"}
    models = list(dict.fromkeys(row.model for row in rows))
    figure = Figure(figsize=(4 * (1 + len(models)), 3.5), layout="constrained")
    first, *others = figure.subplots(1, 1 + len(models))
    for over, each in times.items():
        first.plot(
            list(each),
            [each[2] / seconds for seconds in each.values()],
            "o-",
            color=colors[over],
            label=over,
        )
    first.set_title("measured, emulated hosts")
    for axes, model in zip(others, models, strict=True):
        mine = [row for row in rows if row.model == model]
        nodes = [row.workers for row in mine]
        for column, color in colors.items():
            values = [getattr(row, column) for row in mine]
            axes.plot(nodes, values, "o-", color=color, label=column)
        papers = [(row.workers, row.paper) for row in mine if row.paper]
        axes.plot(*zip(*papers, strict=True), "x:", color="grey", label="paper, table 4")
        axes.set_title(f"{model}, simulated")
    for axes in (first, *others):
        axes.set_xscale("log", base=2)
        axes.set_ylim(0, 1.1)
        axes.set_xlabel("nodes")
        axes.legend(fontsize="small")
    first.set_ylabel("efficiency")
    figure.savefig(path, dpi=70)


if __name__ == "__main__":
    typer.run(main)
