"""Weak scaling between emulated hosts, as in table 4 of You, Buluç and Demmel (SC17).

::

    python -m benchmarks.papers.weak_scaling --output build/weak-scaling

Every worker's step has the same batch, for any number of workers. These are steps of Sync EASGD3 on
emulated hosts with links of 2 Mbit/s, through the switch and in a ring. All hosts compute on this
machine's processors. The links are so slow that communication takes the time, and efficiency is
relative to the step of 2 workers. `innet model scaling` goes on to thousands of workers.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import typer

from benchmarks.papers.common import Net, Spec, machine, run
from benchmarks.papers.report import Markdown, Output, Quick, Show, Table, read_result, show

NETS = tuple(Net(workers, rate="2mbit") for workers in (2, 4, 8))
"""The networks of emulated hosts."""


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
    """Measure, and write the steps."""
    file = output / "result.json"
    if not show_only:
        steps = measured([Net.quick()] if quick else NETS, steps=3 if quick else 20)
        output.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps({"machine": machine(), "steps": steps}, indent=1) + "\n")
    found = read_result(file)
    times = {
        over: {int(workers): seconds for workers, seconds in each.items()}
        for over, each in found["steps"].items()
    }
    _draw(times, output / "figure.png")
    show([on_hosts(times)], markdown=markdown, quick=quick)


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


def _draw(times: dict[str, dict[int, float]], path: Path) -> None:
    """Draw efficiencies over hosts."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(4, 3.5), layout="constrained")
    axes = figure.subplots()
    for over, each in times.items():
        efficiency = [each[2] / seconds for seconds in each.values()]
        axes.plot(list(each), efficiency, "o-", label=over)
    axes.set_xscale("log", base=2)
    axes.set_ylim(0, 1.1)
    axes.set_xlabel("hosts")
    axes.set_ylabel("efficiency")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=70)


if __name__ == "__main__":
    typer.run(main)
