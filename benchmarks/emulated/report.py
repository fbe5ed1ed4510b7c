"""Tables and files of outcomes, for all benchmarks in emulated networks."""

import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated, Any, Protocol

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.emulated.network import Outcome, machine
from benchmarks.options import Json
from innet.errors import UsageError


class Measured(Protocol):
    """The outcome of a case."""

    def figures(self) -> dict[str, Any]:
        """Return the outcome as JSON has it."""


@dataclass(frozen=True)
class Timed:
    """The outcome of a case, with the slowest worker's time of each step."""

    case: Any
    steps_s: Sequence[float]

    @property
    def step_s(self) -> float:
        """Return the median time of a step."""
        return statistics.median(self.steps_s)

    def figures(self) -> dict[str, Any]:
        """Return the outcome as JSON has it."""
        return {**asdict(self), "step_s": self.step_s}


def slowest(workers: Sequence[dict[str, Any]]) -> list[float]:
    """Return the slowest worker's time of each step, from the notes of all."""
    return [max(each) for each in zip(*(worker["seconds"] for worker in workers), strict=True)]


Part = Callable[[Console, bool], Sequence[Measured]]
"""A function that measures something, quickly or thoroughly, shows the outcomes, and returns them."""


def command(parts: Mapping[str, Part], what: str) -> None:
    """Run the command line of a benchmark with these parts; `what` is its help text."""

    def main(
        only: Annotated[
            list[str], typer.Option(help=f"One of {', '.join(parts)}; may be repeated.")
        ] = [],  # noqa: B006  (typer copies it)
        quick: Annotated[
            bool,
            typer.Option("--quick", help="Check that it works, with small vectors and few steps."),
        ] = False,
        output: Json = None,
    ) -> None:
        _run(parts, only, output, quick=quick)

    main.__doc__ = what
    typer.run(main)


def _run(
    parts: Mapping[str, Part], only: Sequence[str], output: Path | None, *, quick: bool
) -> None:
    """Run the wanted parts, by default all, and write their outcomes."""
    if unknown := set(only) - set(parts):
        raise UsageError(f"no part {', '.join(unknown)}: there are {', '.join(parts)}")
    console = Console(width=None if Console().is_terminal else 120)
    found = {name: parts[name](console, quick) for name in only or parts}
    if output:
        figures = {
            "machine": machine(),
            **{name: [each.figures() for each in outcomes] for name, outcomes in found.items()},
        }
        output.write_text(json.dumps(figures, indent=2) + "\n")


def compare(
    console: Console, title: str, outcomes: Sequence[Outcome], header: str, ratios: Sequence[float]
) -> None:
    """Print outcomes that differ in the peer that sums, with a ratio for each."""
    table = Table("over", "step, s", header, "vector of the link", "frames of the link")
    table.title = title
    uplinks = any(each.uplink_up_bytes for each in outcomes)
    if uplinks:
        table.add_column("frames of the uplink")
    for each, ratio in zip(outcomes, ratios, strict=True):
        table.add_row(
            each.case.over, f"{each.step_s:.2f}", f"{ratio:.2f}",
            f"{each.link_share:.0%}", f"{each.frame_share:.0%}",
            *([f"{each.uplink_share:.0%}"] if uplinks else []),
        )  # fmt: skip
    console.print(table)
