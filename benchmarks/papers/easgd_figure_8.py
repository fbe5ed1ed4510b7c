"""Figures 6 and 8 and table 3 of You, Buluç and Demmel (SC17): EASGD and its rivals over time.

::

    python -m benchmarks.papers.easgd_figure_8 --output build/figure-8 --seed 1 --part server
    python -m benchmarks.papers.easgd_figure_8 --output build/figure-8 --seed 1 --part others --add

Four emulated hosts with links of 20 Mbit/s train on scikit-learn's digits, where the paper has four
GPUs and MNIST. The master has a host of its own. The error is that of the centre. In the paper
every point of a line is a training of its own; here a line is one training. "Original EASGD*"
computes in turns, as table 3 calls it. Without the star, workers compute while others have their
turn. The masters of Async SGD, MSGD, EASGD and MEASGD interact with one worker at a time, and
Hogwild's with all at once (sections 1 and 3.2).
"""

import math
import statistics
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.papers.common import Net, Run, Spec, by_label, median, read, run, write
from benchmarks.papers.report import Add, Markdown, Output, Quick, Seed, Show, Table, show

_RATE = 0.3
_IN_TURN: dict[str, Any] = {"options": {"one_at_a_time": True}}
_MOMENTUM = {**_IN_TURN, "momentum": 0.9}
SPECS = (
    Spec("easgd", "Original EASGD*", over="server"),
    Spec("easgd", "Original EASGD", over="server", begin=False),
    Spec("hogwild-sgd", "Hogwild SGD", over="server"),
    Spec("async-sgd", "Async SGD", over="server", **_IN_TURN),
    Spec("async-msgd", "Async MSGD", over="server", **_MOMENTUM),
    Spec("async-easgd", "Async EASGD", over="server", **_IN_TURN),
    Spec("async-measgd", "Async MEASGD", over="server", **_MOMENTUM),
    Spec("hogwild-easgd", "Hogwild EASGD", over="server"),
    Spec("sync-easgd-1", "Sync EASGD1", over="server"),
    Spec("sync-easgd-2", "Sync EASGD2", over="tree"),
    Spec("sync-easgd-3", "Sync EASGD3, tree", over="tree"),
    Spec("sync-easgd-3", "Sync EASGD3, ring", over="ring"),
    Spec("sync-easgd-3", "Sync EASGD3, switch", over="switch"),
)
PAIRS = (
    ("Async SGD", "Async EASGD"),
    ("Async MSGD", "Async MEASGD"),
    ("Hogwild SGD", "Hogwild EASGD"),
    ("Original EASGD", "Sync EASGD3, switch"),
)
"""The pairs of figure 6: an earlier method and the paper's."""


def main(
    output: Output,
    seed: Seed = 1,
    goal: Annotated[float, typer.Option(help="The accuracy to reach.")] = 0.85,
    part: Annotated[str, typer.Option(help="server, others or all: where the centre is.")] = "all",
    rate: Annotated[float, typer.Option(help="Step size; with momentum a tenth of it.")] = _RATE,
    add: Add = False,
    show_only: Show = False,
    markdown: Markdown = False,
    quick: Quick = False,
) -> None:
    """Run all trainings, and write the measurements."""
    net = Net.quick(server=True) if quick else Net()
    runs = read(output) if add or show_only else []
    if not show_only:
        chosen = [s for s in SPECS if part in ("all", "server" if s.over == "server" else "others")]
        steps = 3 if quick else 50
        runs += run(
            [
                replace(each, seed=seed, steps=steps, rate=rate / 10 if each.momentum else rate)
                for each in chosen
            ],
            net,
        )
        write(output, runs, net)
    _draw(runs, output)
    show([table(runs, goal), shares(runs)], markdown=markdown, quick=quick)


def table(runs: list[Run], goal: float) -> Table:
    """Return the medians over the seeds. Speedups are those of the seconds to the goal."""
    each_label = by_label(runs)
    reached = {label: _reached(each, goal) for label, each in each_label.items()}
    rows = []
    for label, each in each_label.items():
        took, step = reached[label], median(each, "step")
        there = math.isfinite(took)
        originals = (reached.get(f"Original EASGD{star}", math.nan) for star in ("*", ""))
        rows.append([
            label, f"{median(each, 'accuracy'):.3f}", f"{took / step:.0f}" if there else "",
            f"{took:.1f}" if there else "",
            *(f"{original / took:.1f}" if there else "" for original in originals),
            f"{step * 1e3:.0f}",
        ])  # fmt: skip
    headings = [
        "", "accuracy", f"steps to {goal}", f"seconds to {goal}", "times Original*",
        "times Original", "ms a step",
    ]  # fmt: skip
    return Table(headings, rows)


def shares(runs: list[Run]) -> Table:
    """Return table 3's breakdown of the time, at worker 0."""
    rows = []
    for label, each in by_label(runs).items():
        parts = [each_part(each) / median(each, "seconds") for each_part in _PARTS.values()]
        rows.append([label, *(f"{part:.0%}" for part in parts)])
    return Table(["", *_PARTS], rows)


_PARTS = {
    "waiting": lambda runs: median(runs, "waiting"),
    "forward and backward": lambda runs: median(runs, "forward") + median(runs, "backward"),
    "update": lambda runs: median(runs, "updating"),
}


def _reached(runs: list[Run], goal: float) -> float:
    """Return the median of the seconds to the goal, or infinity if it was not reached."""
    times = [each.reached(goal) for each in runs]
    return statistics.median(time if time is not None else math.inf for time in times)


def _draw(runs: list[Run], output: Path) -> None:
    """Draw both figures, of the first seed."""
    from matplotlib.figure import Figure

    first = {label: each[0] for label, each in by_label(runs).items()}
    figure = Figure(figsize=(8, 5), layout="constrained")
    axes = figure.subplots()
    for number, (label, each) in enumerate(first.items()):
        axes.plot(*_errors(each), ("-", "--", ":")[number // 5], label=label)
    axes.set_xscale("log")
    axes.set_xlabel("seconds")
    axes.set_ylabel("log10 of the error")
    axes.legend(fontsize="small")
    figure.savefig(output / "figure.png", dpi=70)
    figure = Figure(figsize=(9, 5.5), layout="constrained")
    for axes, pair in zip(figure.subplots(2, 2).flat, PAIRS, strict=True):
        for label in pair:
            if label in first:
                axes.plot(*zip(*first[label].curve, strict=True), label=label)
        axes.set_xlabel("seconds")
        axes.set_ylabel("test accuracy")
        axes.legend(fontsize="small")
    figure.savefig(output / "figure-6.png", dpi=70)


def _errors(each: Run) -> tuple[list[float], list[float]]:
    """Return the seconds and the log10 of the error at each look."""
    at, accuracies = zip(*each.curve, strict=True)
    return list(at), [math.log10(max(1 - right, 1e-3)) for right in accuracies]


if __name__ == "__main__":
    typer.run(main)
