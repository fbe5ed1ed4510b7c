"""Plots of predictions, drawn with matplotlib."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from innet.errors import UsageError
from innet.machine.extras import needed_for
from innet.model.predict import ALGORITHMS, Prediction
from innet.model.published import SHARP
from innet.model.scaling import EDR, Curve, offloaded

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_STYLES = {"in the network": "-", "ring": "--", "tree": ":", "server": "-."}
_STEPS = {
    "overlapped": ("C2-", "innet, overlapped"),
    "switches": ("C0-", "innet, nothing hidden"),
    "ring": ("C1--", "ring, nothing hidden"),
}
_SIZES = {8: "C0-", 4096: "C1-"}


def check(path: Path) -> None:
    """Raise UsageError if no plot can be drawn into this file. Without a suffix it is a PNG file."""
    known = _figure(1, 1).canvas.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in known:
        raise UsageError(f"cannot draw into {path}: name a PNG, SVG or PDF file")
    if path.is_dir():
        raise UsageError(f"cannot draw into {path}: it is a folder")
    if not path.parent.is_dir():
        raise UsageError(f"cannot draw into {path}: there is no folder {path.parent}")


def efficiencies(found: dict[int, list[Prediction]], path: Path) -> None:
    """Draw the efficiency over workers, a line for each algorithm and transport. Raises UsageError."""
    lines: dict[tuple[str, str], list[tuple[int, float]]] = {}
    for each in found.values():
        for one in each:
            kind = "in the network" if one.transport in {"switch", "hierarchy"} else one.transport
            lines.setdefault((one.algorithm, kind), []).append((one.workers, one.efficiency))
    colours = {name: f"C{number}" for number, name in enumerate(ALGORITHMS)}
    figure = _figure(9, 5)
    axes = figure.subplots()
    for (algorithm, kind), points in sorted(lines.items()):
        axes.plot(
            *zip(*points, strict=True), _STYLES[kind], color=colours[algorithm], marker=".",
            alpha=0.7, label=f"{algorithm}, {kind}",
        )  # fmt: skip
    _label(axes, "scaling efficiency")
    axes.set_ylim(0, 1.05)
    figure.legend(loc="outside right upper", fontsize="small")
    _save(figure, path)


def scaling(curves: Sequence[Curve], path: Path) -> None:
    """Draw weak scaling beside published points, and SHARP's small all-reduces. Raises UsageError."""
    figure = _figure(4.5 * (len(curves) + 1), 4)
    *each, last = figure.subplots(1, len(curves) + 1)
    for axes, curve in zip(each, curves, strict=True):
        _draw_weak(axes, curve)
    most = max(point.workers for curve in curves for point in curve.points)
    _draw_offloaded(last, max(most, *(point.nodes for point in SHARP)))
    _save(figure, path)


def _draw_weak(axes: "Axes", curve: Curve) -> None:
    workers = [point.workers for point in curve.points]
    for kind, (style, label) in _STEPS.items():
        axes.plot(workers, [point.efficiency(kind) for point in curve.points], style, label=label)
    if curve.published:
        points = curve.published.efficiency.items()
        axes.plot(*zip(*points, strict=True), "kx", label="SC17, table 4")
    _label(axes, "weak scaling efficiency")
    axes.set_title(f"{curve.name}, compute times vary by {curve.stragglers.variation:.1%}")
    axes.set_ylim(0, 1.05)
    axes.legend(fontsize="small", loc="lower left")


def _draw_offloaded(axes: "Axes", most: int) -> None:
    workers = np.unique(np.geomspace(2, most, 300).astype(int)).tolist()
    for size, style in _SIZES.items():
        times = [offloaded(each, size, EDR) for each in workers]
        axes.plot(workers, times, style, label=f"innet, {size:,} bytes")
    for point, marker in zip(SHARP, "o^s", strict=True):
        axes.plot(point.nodes, point.speedup, f"k{marker}", label=f"SHARP, {point.vector}")
    _label(axes, "times as fast as on hosts")
    axes.set_title("all-reduces of small vectors")
    axes.set_ylim(bottom=0)
    axes.legend(fontsize="small")


def _label(axes: "Axes", measure: str) -> None:
    axes.set_xscale("log", base=2)
    axes.set_xlabel("workers")
    axes.set_ylabel(measure)


def _figure(width: float, height: float) -> "Figure":
    with needed_for("plots", "experiments"):
        from matplotlib.figure import Figure
    return Figure(figsize=(width, height), layout="constrained")


def _save(figure: "Figure", path: Path) -> None:
    try:
        figure.savefig(path, dpi=80)
    except (OSError, ValueError) as problem:
        raise UsageError(f"cannot draw into {path}: {problem}") from None
