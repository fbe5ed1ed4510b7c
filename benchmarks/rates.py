"""Sums in one switch beside Gloo's ring, from 100 Mbit/s to links without a cap, with offloads.

Run as root, with Mininet installed::

    python -m benchmarks.rates --json rates.json --plot rates.png
    python -m benchmarks.rates --rate 1gbit --hosts 4 --dtype int8 --json rates.json

The options choose cases, and can be repeated. Cases that a JSON file already has and that are not
measured now stay there, so a long comparison can be made in several short runs. All peers of a network
are measured in turns in the same run. The figures are medians.

All hosts and the switch share the machine's processors. The column "limit" names them where they were
busy all the time, and the link where it was full.
"""

import itertools
import json
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.emulated.network import Case, Network, Outcome, machine, measure
from benchmarks.options import Json
from innet.wire.frames import USUAL_MTU

MIB = 1 << 20
RATES = {"100mbit": 10**8, "1gbit": 10**9, "2.5gbit": 25 * 10**8, "10gbit": 10**10, "none": 0}
"""The links' rates in bits per second; 0 means no cap."""
HOSTS = (2, 4, 8)
MTUS = (USUAL_MTU, 9000)
DTYPES = ("int32", "int16", "int8")
RINGS = ("Gloo", "Gloo bf16")
OVER = (*RINGS, *(f"innet {dtype}" for dtype in DTYPES))
WINDOWS = {USUAL_MTU: (256, 256), 9000: (1024, 64)}
"""The lanes and slots of each MTU. As many bytes are in flight with either."""
TURNS = 3
_FULL, _BUSY = 0.9, 0.9  # shares from which on a link or the processors are the limit


def network(rate: str, hosts: int, mtu: int) -> Network:
    """Return a rack with links of this rate, or without a cap."""
    lanes, slots = WINDOWS[mtu]
    return Network(1, hosts, RATES[rate], slots=slots, lanes=lanes)


def compare(
    console: Console, where: Network, over: Sequence[str], nbytes: int, steps: int
) -> list[Outcome]:
    """Measure all peers in turns in one emulation, and return the outcome of each."""
    cases = [Case(each, nbytes, steps) for _ in range(TURNS) for each in over]
    found = measure(console, where, cases)
    return [_together(found[first :: len(over)]) for first in range(len(over))]


def _together(turns: Sequence[Outcome]) -> Outcome:
    """Return the outcome of a peer from those of its turns."""
    steps = [seconds for turn in turns for seconds in turn.steps_s]
    means = {
        name: statistics.mean(getattr(turn, name) for turn in turns)
        for name in ("processor_s", "switch_s", "busy", "up_bytes", "down_bytes")
    }
    case = replace(turns[0].case, steps=len(steps))
    return replace(turns[0], case=case, steps_s=steps, step_s=statistics.median(steps), **means)


def limit(outcome: Mapping[str, Any]) -> str:
    """Return what limited a case: the processors, the link, or neither."""
    if outcome["busy"] >= _BUSY:
        return "processors"
    return "link" if outcome["frame_share"] >= _FULL else ""


def show(console: Console, outcomes: Sequence[Mapping[str, Any]]) -> None:
    """Print a table of outcomes, as their JSON has them."""
    table = Table(
        "link", "hosts", "MTU", "over", "step, ms", "times as fast as Gloo", "frames of the link",
        "processor time of a host, ms", "of the switch, ms", "limit",
    )  # fmt: skip
    rings = {_place(each): each["step_s"] for each in outcomes if each["case"]["over"] == "Gloo"}
    for each in outcomes:
        where, ring = each["network"], rings.get(_place(each))
        table.add_row(
            _rate_text(where["rate"]), str(where["hosts"]), str(_mtu(where)), each["case"]["over"],
            f"{1e3 * each['step_s']:.1f}", f"{ring / each['step_s']:.2f}" if ring else "",
            f"{each['frame_share']:.2f}" if where["rate"] else "",
            f"{1e3 * each['processor_s']:.1f}", f"{1e3 * each['switch_s']:.1f}", limit(each),
        )  # fmt: skip
    console.print(table)


def draw(outcomes: Sequence[Mapping[str, Any]], file: Path) -> None:
    """Draw the step's time against the rate, a panel for each number of hosts."""
    from matplotlib.figure import Figure

    usual = [each for each in outcomes if _mtu(each["network"]) == USUAL_MTU]
    panels = sorted({each["network"]["hosts"] for each in usual})
    figure = Figure(figsize=(4 * len(panels), 4), layout="constrained")
    axes = figure.subplots(1, len(panels), sharey=True, squeeze=False)[0]
    places = {rate: at for at, rate in enumerate(RATES.values())}
    for axis, hosts in zip(axes, panels, strict=True):
        for over in OVER:
            points = sorted(
                (places[each["network"]["rate"]], 1e3 * each["step_s"])
                for each in usual
                if each["network"]["hosts"] == hosts and each["case"]["over"] == over
            )
            if points:
                style = "--" if over.startswith("Gloo") else "-"
                axis.plot(*zip(*points, strict=True), style, marker="o", label=over)
        axis.set_xticks(range(len(RATES)), [_rate_text(rate) for rate in places], rotation=30)
        axis.set_yscale("log")
        axis.set_title(f"{hosts} hosts")
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("all-reduce of 16 MiB, ms")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="outside lower center", ncols=len(OVER))
    figure.savefig(file, dpi=80)


def _place(outcome: Mapping[str, Any]) -> tuple[int, int, int]:
    where = outcome["network"]
    return where["rate"] or 1 << 62, where["hosts"], _mtu(where)


def _mtu(where: Mapping[str, Any]) -> int:
    return next(mtu for mtu, (lanes, _) in WINDOWS.items() if lanes == where["lanes"])


def _rate_text(rate: int) -> str:
    return (
        f"{rate / 1e9:g} Gbit/s" if rate >= 1e9 else f"{rate / 1e6:g} Mbit/s" if rate else "no cap"
    )


def merged(
    before: Iterable[Mapping[str, Any]], now: Iterable[Mapping[str, Any]]
) -> list[Mapping[str, Any]]:
    """Return the outcomes of all cases in order, the new ones in place of the old."""
    cases = {(_place(each), OVER.index(each["case"]["over"])): each for each in (*before, *now)}
    return [cases[key] for key in sorted(cases)]


def main(
    rate: Annotated[
        list[str] | None, typer.Option(help=f"The links' rates: {', '.join(RATES)} (all).")
    ] = None,
    hosts: Annotated[
        list[int] | None, typer.Option(help="Numbers of hosts: 2, 4, 8 (all).")
    ] = None,
    mtu: Annotated[list[int] | None, typer.Option(help="MTUs: 1500, 9000 (both).")] = None,
    dtype: Annotated[
        list[str] | None, typer.Option(help=f"The switch's integers: {', '.join(DTYPES)} (all).")
    ] = None,
    steps: Annotated[int, typer.Option(help="The number of all-reduces in a turn.")] = 7,
    quick: Annotated[bool, typer.Option("--quick", help="Check that it works.")] = False,
    output: Json = None,
    plot: Annotated[Path | None, typer.Option(help="Draw the outcomes to this file.")] = None,
    measures: Annotated[
        bool, typer.Option("--measure/--no-measure", help="Measure, or only draw the JSON file.")
    ] = True,
) -> None:
    """Compare sums in one switch with Gloo's ring, at several rates."""
    console = Console(width=None if Console().is_terminal else 140)
    figures: dict[str, Any] = {"machine": machine(), "rates": []}
    if output and output.exists():
        figures = json.loads(output.read_text())
    over = [*RINGS, *(f"innet {each}" for each in dtype or DTYPES)]
    found: list[Mapping[str, Any]] = []
    wanted = itertools.product(rate or RATES, hosts or HOSTS, mtu or MTUS) if measures else ()
    for where in itertools.starmap(network, wanted):
        outcomes = compare(console, where, over, MIB if quick else 16 * MIB, 1 if quick else steps)
        found += [each.figures() for each in outcomes]
        figures["rates"] = merged(figures["rates"], found)
        if output:
            output.write_text(json.dumps(figures, indent=1) + "\n")
    show(console, merged([], found))
    if plot:
        draw(figures["rates"], plot)


if __name__ == "__main__":
    typer.run(main)
