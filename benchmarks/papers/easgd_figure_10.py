"""Figure 10 of You, Buluç and Demmel (SC17): one message for all layers, or one for each layer.

::

    python -m benchmarks.papers.easgd_figure_10 --output build/figure-10

The benchmark trains with synchronous SGD on four emulated hosts with links of 20 Mbit/s: in a tree
as in the paper, in a ring, and through the switch. The network has eight layers, as AlexNet has,
and 35 KB of parameters. In the paper the two runs have different seeds. Here both have the same
seed and reach the same result.
"""

from dataclasses import replace
from pathlib import Path

import typer

from benchmarks.papers.common import Net, Run, Spec, by_label, median, read, run, write
from benchmarks.papers.report import Add, Markdown, Output, Quick, Seed, Show, Table, show

PACKINGS = ("packed", "layers")
OVERS = ("tree", "ring", "switch")
MODEL = "mlp-32-7"


def main(
    output: Output,
    seed: Seed = 1,
    add: Add = False,
    show_only: Show = False,
    markdown: Markdown = False,
    quick: Quick = False,
) -> None:
    """Run all trainings, and write the measurements."""
    net = Net.quick() if quick else Net()
    runs = read(output) if add or show_only else []
    if not show_only:
        common = Spec("d-sync", "", model=MODEL, seed=seed, steps=3 if quick else 200, rate=0.1)
        runs += run(
            [
                replace(common, label=f"{over}, {packing}", over=over, options={"packing": packing})
                for over in OVERS
                for packing in PACKINGS
            ],
            net,
        )
        write(output, runs, net)
    _draw(runs, output / "figure.png")
    show([table(runs)], markdown=markdown, quick=quick)


def table(runs: list[Run]) -> Table:
    """Return the medians over the seeds."""
    labels = by_label(runs)
    rows = []
    for over in OVERS:
        packed, layers = (labels[f"{over}, {packing}"] for packing in PACKINGS)
        steps = [median(each, "step") * 1e3 for each in (packed, layers)]
        right = [median(each, "accuracy") for each in (packed, layers)]
        rows.append([
            over, *(f"{each:.1f}" for each in steps), f"{steps[1] / steps[0]:.2f}",
            *(f"{each:.3f}" for each in right),
        ])  # fmt: skip
    headings = [
        "", "packed, ms a step", "layer by layer, ms a step", "times", "packed, accuracy",
        "layer by layer, accuracy",
    ]  # fmt: skip
    return Table(headings, rows)


def _draw(runs: list[Run], path: Path) -> None:
    """Draw the accuracy over seconds, of the first seed."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 4), layout="constrained")
    axes = figure.subplots()
    for label, each in by_label(runs).items():
        style = "-" if label.endswith(PACKINGS[0]) else "--"
        axes.plot(*zip(*each[0].curve, strict=True), style, label=label)
    axes.set_xlabel("seconds")
    axes.set_ylabel("test accuracy")
    axes.legend(fontsize="small")
    figure.savefig(path, dpi=70)


if __name__ == "__main__":
    typer.run(main)
