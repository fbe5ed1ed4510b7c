"""Figure 4 of Pipe-SGD (Li et al., NeurIPS 2018): PS-Sync, D-Sync and Pipe-SGD, plain, with T and with Q.

::

    python -m benchmarks.papers.pipe_sgd_figure_4 --output build/figure-4 --seed 1
    python -m benchmarks.papers.pipe_sgd_figure_4 --output build/figure-4 --seed 2 --add --part ring
    python -m benchmarks.papers.pipe_sgd_figure_4 --output build/figure-4-devices --sample-ms 0.5

The benchmark shows accuracy over time, and the parts of a step, on four emulated hosts with links
of 20 Mbit/s and scikit-learn's digits. The paper has four GPU nodes, 10 Gb/s Ethernet and larger
models. As in the paper, D-Sync and Pipe-SGD all-reduce in a ring with the codec inside. They also
run through the switch, with int16 and int8 instead of T and Q.

PS-Sync has a fifth host for its server, as in the paper. The paper has T and Q in all-reduces only.
Here PS-Sync has them too: gradients go to the server as codes, and parameters come back as codes of
their differences to the last ones.

With `--sample-ms` hosts have emulated devices of their own: a pass waits until it has taken that
long, and does not share this machine's processors.
"""

import math
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.papers.common import Net, Run, Spec, by_label, median, read, run, write
from benchmarks.papers.report import Add, Markdown, Output, Quick, Seed, Show, Table, show

_NAMES = {"d-sync": "D-Sync", "pipe-sgd": "Pipe-SGD"}
_CODECS = {"plain": "", "T": "+T", "Q": "+Q"}
_SWITCH = {"int32": "", "int16": "+int16", "int8+feedback": "+int8"}
SPECS = (
    *(
        Spec("ps-sync", f"PS-Sync{ending}", over="server", codec=codec)
        for codec, ending in _CODECS.items()
    ),
    *(
        Spec(algorithm, name + ending, over="ring", codec=codec)
        for algorithm, name in _NAMES.items()
        for codec, ending in _CODECS.items()
    ),
    *(
        Spec(algorithm, f"{name}{ending}, switch", over="switch", codec=quantizer)
        for algorithm, name in _NAMES.items()
        for quantizer, ending in _SWITCH.items()
    ),
)
_STEPS = 120
_HEADINGS = (
    "", "accuracy", "seconds", "times D-Sync", "times PS-Sync", "update", "forward", "backward",
    "waiting", "ring", "of it codec",
)  # fmt: skip
_PARTS = ("updating", "forward", "backward", "waiting")


def main(
    output: Output,
    seed: Seed = 1,
    part: Annotated[
        str, typer.Option(help="Settings to run: server, ring, switch or all.")
    ] = "all",
    rate: Annotated[str, typer.Option(help="Rate of the hosts' links.")] = "20mbit",
    sample_ms: Annotated[
        float,
        typer.Option(
            help="Milliseconds of a pass per sample on emulated devices. 0: use this machine."
        ),
    ] = 0.0,
    add: Add = False,
    show_only: Show = False,
    markdown: Markdown = False,
    quick: Quick = False,
) -> None:
    """Run all trainings, and write the measurements."""
    net = Net.quick(server=True) if quick else Net(rate=rate)
    runs = read(output) if add or show_only else []
    if not show_only:
        steps = 3 if quick else _STEPS
        chosen = [spec for spec in SPECS if part in ("all", spec.over)]
        specs = [replace(spec, seed=seed, steps=steps, sample_ms=sample_ms) for spec in chosen]
        runs += run(specs, net)
        write(output, runs, net)
    _draw(runs, output / "figure.png")
    show([table(runs)], markdown=markdown, quick=quick)


def table(runs: list[Run]) -> Table:
    """Return the medians over the seeds, in milliseconds per step."""
    rows = []
    each_label = by_label(runs)
    d_sync, ps_sync = (
        median(each_label[name], "seconds") if name in each_label else math.nan
        for name in ("D-Sync", "PS-Sync")
    )
    for label, each in each_label.items():
        seconds = median(each, "seconds")
        steps = each[0].spec["steps"]
        parts = (median(each, part) / steps * 1e3 for part in _PARTS)
        ring = (median(each, part) / steps * 1e3 for part in ("busy", "compressing"))
        rows.append([
            label, f"{median(each, 'accuracy'):.3f}", f"{seconds:.1f}", f"{d_sync / seconds:.2f}",
            f"{ps_sync / seconds:.2f}", *(f"{part:.1f}" for part in parts),
            *(f"{part:.1f}" if each[0].busy else "" for part in ring),
        ])  # fmt: skip
    return Table(_HEADINGS, rows)


def _draw(runs: list[Run], path: Path) -> None:
    """Draw the curves of the first seed, and bars of the medians."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 4.5), layout="constrained")
    curves, bars = figure.subplots(1, 2)
    each_label = by_label(runs)
    for each in each_label.values():
        style = "--" if each[0].spec["over"] == "switch" else "-"
        curves.plot(*zip(*each[0].curve, strict=True), style, label=each[0].label)
    curves.set_xscale("log")
    curves.set_xlabel("seconds")
    curves.set_ylabel("test accuracy")
    curves.legend(fontsize="x-small")
    below = dict.fromkeys(each_label, 0.0)
    for part in _PARTS:
        heights = {label: median(each, part) for label, each in each_label.items()}
        bars.bar(list(heights), list(heights.values()), bottom=list(below.values()), label=part)
        below = {label: below[label] + height for label, height in heights.items()}
    for place, (label, height) in enumerate(below.items()):
        right = f"{median(each_label[label], 'accuracy'):.3f}"
        bars.annotate(right, (place, height), ha="center", va="bottom", fontsize="xx-small")
    bars.set_ylabel("seconds, computation thread")
    bars.tick_params(axis="x", rotation=90)
    bars.legend(fontsize="small")
    figure.savefig(path, dpi=70)


if __name__ == "__main__":
    typer.run(main)
