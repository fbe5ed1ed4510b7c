"""Figure 3 of PHub and PBox (Luo et al., 2018): training over kinds of parameter servers.

::

    python -m benchmarks.papers.phub_figure_3 --output build/phub-figure-3

Four emulated hosts with links of 20 Mbit/s train three networks synchronously. The paper has eight
hosts, GPUs, and ImageNet's networks. As in the paper, samples per second are compared with those of
sharded servers on the workers' own hosts. The paper's sharded servers are MXNet's. Here all servers
are innet's, so the differences come only from their places and their links. A PBox has an interface
for each worker, so its link has the rate of all workers' links together. Devices are emulated: a
pass takes a given time per sample, whatever else this machine does.
"""

from dataclasses import replace
from pathlib import Path
from typing import Any

import typer

from benchmarks.papers.common import Net, Run, Spec, by_label, median, read, run, write
from benchmarks.papers.report import Markdown, Output, Quick, Seed, Show, Table, show

NETWORKS: dict[str, dict[str, Any]] = {
    "36 KB, 0.5 ms": {"model": "mlp-64", "sample_ms": 0.5},
    "103 KB, 1 ms": {"model": "cnn", "sample_ms": 1.0},
    "180 KB, 0.5 ms": {"model": "mlp-180", "sample_ms": 0.5},
}
"""Bytes of gradients, and milliseconds per sample on the device."""
BASELINE = "sharded servers"


def kinds(net: Net) -> dict[str, Spec]:
    """Return the bars of the figure. The last one is section 3 of the paper, sums in the switch."""
    mbit = int(net.rate.removesuffix("mbit")) * net.workers
    return {
        BASELINE: Spec("ps-sync", "", over="pbox-sharded"),
        "one server": Spec("ps-sync", "", over="pbox"),
        "PBox": Spec("ps-sync", "", over="pbox", server_rate=f"{mbit}mbit"),
        "switch": Spec("d-sync", "", over="switch"),
    }


def main(
    output: Output,
    seed: Seed = 1,
    show_only: Show = False,
    markdown: Markdown = False,
    quick: Quick = False,
) -> None:
    """Train all three networks over each kind of server, and write the measurements."""
    net = Net.quick(server=True) if quick else Net()
    runs = read(output) if show_only else []
    if not show_only:
        specs = [
            replace(spec, label=f"{kind}, {name}", seed=seed, steps=3 if quick else 40, **network)
            for name, network in list(NETWORKS.items())[: 1 if quick else None]
            for kind, spec in kinds(net).items()
        ]
        runs = run(specs, net)
        write(output, runs, net)
    _draw(rates(runs), output / "figure.png")
    show([table(rates(runs))], markdown=markdown, quick=quick)


def rates(runs: list[Run]) -> dict[str, dict[str, float]]:
    """Return a worker's samples per second, by network and kind."""
    found: dict[str, dict[str, float]] = {}
    for label, each in by_label(runs).items():
        kind, _, network = label.partition(", ")
        found.setdefault(network, {})[kind] = each[0].spec["batch"] / median(each, "step")
    return found


def table(found: dict[str, dict[str, float]]) -> Table:
    """Return the samples per second, and their ratio to the baseline's."""
    names = list(next(iter(found.values())))
    rows = [
        [
            network,
            *(f"{each[name]:.0f}" for name in names),
            *(f"{each[name] / each[BASELINE]:.2f}" for name in names[1:]),
        ]
        for network, each in found.items()
    ]
    return Table(
        ["size of the network, time per sample", *(f"{name}, samples/s" for name in names)]
        + [f"{name}, times" for name in names[1:]],
        rows,
    )


def _draw(found: dict[str, dict[str, float]], path: Path) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    names = list(next(iter(found.values())))
    width = 0.8 / len(names)
    for place, name in enumerate(names):
        heights = [each[name] / each[BASELINE] for each in found.values()]
        places = [network + (place - (len(names) - 1) / 2) * width for network in range(len(found))]
        axes.bar(places, heights, width, label=name)
    axes.set_xticks(range(len(found)), list(found))
    axes.set_ylabel(f"samples/s, of {BASELINE}'")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=70)


if __name__ == "__main__":
    typer.run(main)
