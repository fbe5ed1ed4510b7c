"""A drawing of how much of each link was in use over time."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.backend_bases import FigureCanvasBase
from matplotlib.figure import Figure

from innet.emulation.plan import PlannedLink
from innet.emulation.traffic import TrafficSeries
from innet.errors import UsageError

_MEGABIT = 1e6 / 8


def check_format(path: Path) -> None:
    """Raise UsageError if the file's name sets no known format. Without a suffix it is a PNG file."""
    known = FigureCanvasBase.get_supported_filetypes()
    if path.suffix and path.suffix[1:].lower() not in known:
        raise UsageError(f"cannot draw to {path}: name a PNG, SVG or PDF file")


def draw(samples: TrafficSeries, links: Sequence[PlannedLink], path: Path) -> None:
    """Draw two diagrams, one above the other: traffic up the links, and traffic down.

    The file's name sets the format: PNG, SVG or PDF. Raises UsageError.
    """
    figure = Figure(figsize=(9, 6), layout="constrained")
    axes = figure.subplots(2, 1, sharex=True, sharey=True)
    times = np.array(samples.times)
    for axis, direction, counts in (
        (axes[0], "up, towards the root", samples.up_bytes),
        (axes[1], "down", samples.down_bytes),
    ):
        for link in links:
            sent = np.diff(np.array(counts[link.child.interface])) / np.diff(times) / _MEGABIT
            axis.plot(times[1:], sent, label=link.name, linewidth=1.2)
        for rate in sorted({link.spec.rate for link in links if link.spec.rate}):
            axis.axhline(rate / 1e6, color="grey", linestyle=":", linewidth=1)
        axis.set_ylabel(f"{direction}\nMbit/s")
        axis.set_ylim(bottom=0)
    axes[1].set_xlabel("seconds")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside right upper", fontsize="small")
    try:
        figure.savefig(path)
    except (OSError, ValueError) as problem:
        raise UsageError(f"cannot draw to {path}: {problem}") from None
