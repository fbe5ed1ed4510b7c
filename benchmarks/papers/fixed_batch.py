"""Scalability at a fixed overall batch, as Arnold's "Introduction to Distributed Deep Learning" asks.

::

    python -m benchmarks.papers.fixed_batch --output build/fixed-batch --part scaling
    python -m benchmarks.papers.fixed_batch --output build/fixed-batch --part algorithms --add

Each of R workers has a batch of 128 / R, so every step has 128 samples, and speedups are in
seconds. *Scaling* trains with 1 to 8 hosts: synchronous SGD over a parameter server, a tree, a ring
and the switch, and Pipe-SGD. *Algorithms* trains with 4 hosts and the article's synchronous and
asynchronous algorithms. Links have 20 Mbit/s. Devices are emulated: a pass takes 2 ms per sample,
whatever else this machine does. Otherwise 8 hosts would share its processors.
"""

import math
import statistics
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.papers.common import Net, Run, Spec, by_label, median, read, run, write
from benchmarks.papers.report import Add, Markdown, Output, Quick, Seed, Show, Table, show

BATCH = 128
SAMPLE_MS = 2.0
WORKERS = (1, 2, 4, 8)
STEPS = {"scaling": 40, "algorithms": 80}
RATE = 0.15
GOAL = 0.85
SCALING = {
    "parameter server": Spec("ps-sync", "", over="server"),
    "tree": Spec("d-sync", "", over="tree"),
    "ring": Spec("d-sync", "", over="ring"),
    "switch": Spec("d-sync", "", over="switch"),
    "Pipe-SGD, switch": Spec("pipe-sgd", "", over="switch"),
}
ALGORITHMS = {
    "synchronous": Spec("ps-sync", "", over="server"),
    "backup worker": Spec("backup-workers", "", over="server", options={"backups": 1}),
    "n-softsync, n = 2": Spec("softsync-sgd", "", over="server", options={"n": 2}),
    "asynchronous": Spec("async-sgd", "", over="server"),
    "asynchronous, staleness-aware": Spec(
        "async-sgd", "", over="server", options={"staleness_aware": True}
    ),
    "local, k = 4": Spec("local-sgd", "", over="switch", options={"k": 4}),
}
_ALONE = "1 worker"


def main(
    output: Output,
    seed: Seed = 1,
    part: Annotated[str, typer.Option(help="scaling, algorithms or all.")] = "all",
    add: Add = False,
    show_only: Show = False,
    markdown: Markdown = False,
    quick: Quick = False,
) -> None:
    """Run all trainings, and write the measurements."""
    runs = read(output) if add or show_only else []
    if not show_only:
        for net, specs in (quick_trainings if quick else trainings)(part):
            runs += run([replace(each, seed=seed) for each in specs], net)
            write(output, runs, net)
    if any(label not in ALGORITHMS for label in by_label(runs)):
        _draw(runs, output / "figure.png")
    show([scaling(runs), algorithms(runs)], markdown=markdown, quick=quick)


def trainings(part: str) -> list[tuple[Net, list[Spec]]]:
    """Return the networks and the trainings in each."""
    found = []
    if part in ("scaling", "all"):
        found += [(Net(workers), _scaled(workers)) for workers in WORKERS]
    if part in ("algorithms", "all"):
        found.append((Net(4), _algorithms(4)))
    return found


def quick_trainings(part: str) -> list[tuple[Net, list[Spec]]]:
    """Return the same trainings in small: one worker alone, and all others together."""
    alone, others = replace(Net.quick(), workers=1), Net.quick(server=True)
    found: dict[Net, list[Spec]] = {}
    if part in ("scaling", "all"):
        found = {alone: _scaled(1), others: _scaled(2)}
    if part in ("algorithms", "all"):
        found.setdefault(others, []).extend(_algorithms(2))
    return [
        (net, [replace(spec, steps=4, sample_ms=0.1) for spec in specs])
        for net, specs in found.items()
    ]


def _scaled(workers: int) -> list[Spec]:
    """Return the settings for this many workers. For one worker there is one, as it uses no network."""
    specs = {f"{workers} {over}": spec for over, spec in SCALING.items()}
    return _specs("scaling", {_ALONE: SCALING["ring"]} if workers == 1 else specs, workers)


def _algorithms(workers: int) -> list[Spec]:
    return _specs("algorithms", ALGORITHMS, workers)


def _specs(part: str, named: Mapping[str, Spec], workers: int) -> list[Spec]:
    steps, batch = STEPS[part], BATCH // workers
    return [
        replace(spec, label=label, steps=steps, batch=batch, sample_ms=SAMPLE_MS, rate=RATE)
        for label, spec in named.items()
    ]


def scaling(runs: list[Run]) -> Table:
    """Return the milliseconds of a step, and the speedup over one worker."""
    steps = {label: median(each, "step") * 1e3 for label, each in by_label(runs).items()}
    rows = []
    for workers in WORKERS[1:]:
        found = [steps.get(f"{workers} {over}", math.nan) for over in SCALING]
        if any(map(math.isfinite, found)):
            alone = steps[_ALONE]
            cells = (f"{each:.0f} ({alone / each:.2f})" for each in found)
            rows.append([str(workers), str(BATCH // workers), *cells])
    return Table(["workers", "batch of each", *(f"{over}, ms a step" for over in SCALING)], rows)


def algorithms(runs: list[Run]) -> Table:
    """Return each worker's steps and seconds to the goal."""
    rows = []
    for label, each in by_label(runs).items():
        if label in ALGORITHMS:
            reached = [one.reached(GOAL) for one in each]
            took = statistics.median(math.inf if one is None else one for one in reached)
            step = median(each, "step")
            there = math.isfinite(took)
            rows.append([
                label, f"{median(each, 'accuracy'):.3f}", f"{step * 1e3:.0f}",
                f"{took / step:.0f}" if there else "", f"{took:.1f}" if there else "",
            ])  # fmt: skip
    return Table(
        ["", "accuracy", "ms a step", f"steps to {GOAL}", f"seconds to {GOAL}"],
        rows,
    )


def _draw(runs: list[Run], path: Path) -> None:
    """Draw the speedup over workers, and the accuracy over seconds with the most workers."""
    from matplotlib.figure import Figure

    labels = by_label(runs)
    alone = median(labels[_ALONE], "step")
    counts = [each for each in WORKERS if each == 1 or f"{each} ring" in labels]
    figure = Figure(figsize=(10, 4), layout="constrained")
    speedups, curves = figure.subplots(1, 2)
    for over in SCALING:
        points = [alone / median(labels[f"{each} {over}"], "step") for each in counts[1:]]
        speedups.plot(counts, [1.0, *points], "o-", label=over)
        last = labels[f"{counts[-1]} {over}"][0]
        curves.plot(*zip(*last.curve, strict=True), label=last.label)
    speedups.plot(counts, counts, ":", color="grey", label="linear")
    curves.plot(*zip(*labels[_ALONE][0].curve, strict=True), ":", color="grey", label=_ALONE)
    speedups.set_xlabel(f"workers, of one batch of {BATCH}")
    speedups.set_ylabel("speedup")
    curves.set_xlabel("seconds")
    curves.set_ylabel("test accuracy")
    for axes in (speedups, curves):
        axes.legend(fontsize="small")
    figure.savefig(path, dpi=70)


if __name__ == "__main__":
    typer.run(main)
