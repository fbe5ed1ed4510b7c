"""Plots of predictions, drawn with matplotlib."""

from pathlib import Path

from innet.errors import UsageError
from innet.model.predict import ALGORITHMS, Prediction

_STYLES = {"in the network": "-", "ring": "--", "tree": ":", "server": "-."}


def efficiencies(found: dict[int, list[Prediction]], path: Path) -> None:
    """Draw the efficiency over workers, a line for each algorithm and transport. Raises UsageError."""
    try:
        from matplotlib.figure import Figure
    except ModuleNotFoundError as problem:
        raise UsageError(
            f"plots need {problem.name}, which comes with: pip install 'innet[experiments]'"
        ) from None
    lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for each in found.values():
        for one in each:
            kind = "in the network" if one.transport in {"switch", "hierarchy"} else one.transport
            lines.setdefault((one.algorithm, kind), []).append((one.workers, one.efficiency))
    colours = {name: f"C{number}" for number, name in enumerate(ALGORITHMS)}
    figure = Figure(figsize=(9, 5), layout="constrained")
    axes = figure.subplots()
    for (algorithm, kind), points in sorted(lines.items()):
        axes.plot(
            *zip(*points, strict=True), _STYLES[kind], color=colours[algorithm], marker=".",
            alpha=0.7, label=f"{algorithm}, {kind}",
        )  # fmt: skip
    axes.set_xscale("log", base=2)
    axes.set_xlabel("workers")
    axes.set_ylabel("scaling efficiency")
    axes.set_ylim(0, 1.05)
    figure.legend(loc="outside right upper", fontsize="small")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as problem:
        raise UsageError(f"cannot draw into {path}: {problem}") from None
