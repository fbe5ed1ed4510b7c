"""DiLoCo of torchft beside DistributedDataParallel, over the switch and over Gloo, at 20 Mbit/s.

Run as root, with Mininet installed. ``make libraries`` installs torchft in an environment of its own::

    python -m benchmarks.diloco --json diloco.json

Four hosts of an emulated rack train the same network to the same loss. The table has the seconds
and the bytes of a host's link until then, as medians over seeds.
"""

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.emulated.network import Network, emulate, machine
from benchmarks.options import Json
from benchmarks.replicas.settings import Learning
from benchmarks.replicas.start import digits_file, interpreter
from innet.errors import InnetError

HOSTS, MBIT = 4, 20
LOSS = 0.05
DDP = Learning("DDP", width=320, rate=0.1)
DILOCO = Learning("DiLoCo", width=320, sync_every=20)
LOOK_EVERY = 5
"""Steps of DistributedDataParallel between two looks at the loss. DiLoCo's are at its syncs."""


@dataclass(frozen=True)
class Case:
    """A training of `steps` sums. The loss is computed after every `look_every` steps of a replica."""

    label: str
    over: str
    learning: Learning
    steps: int
    look_every: int
    seed: int


@dataclass(frozen=True)
class Reached:
    """The sums, seconds and bytes on a host's link until the loss was reached."""

    sums: int
    seconds: float
    up_bytes: float
    down_bytes: float


def cases(seed: int, steps: int) -> list[Case]:
    """Return the compared trainings."""
    ways = ("innet int32", "innet int8+stochastic", "Gloo")
    return [
        *(Case(f"DDP, {over}", over, DDP, steps, LOOK_EVERY, seed) for over in ways),
        *(
            Case(f"DiLoCo, {over}", over, DILOCO, max(1, steps // 10), DILOCO.sync_every, seed)
            for over in ways
        ),
    ]


def reached(case: Case, notes: Sequence[dict[str, Any]], loss: float) -> Reached:
    """Return what the hosts needed to reach a loss. Raises InnetError."""
    if len({each["digest"] for each in notes}) > 1:
        raise InnetError(f"the hosts of {case.label} have different parameters")
    sums = case.look_every // case.learning.sync_every
    for number, looks in enumerate(zip(*(each["curve"] for each in notes), strict=True), start=1):
        if looks[0][3] <= loss:
            return Reached(
                number * sums, max(look[0] for look in looks),
                statistics.mean(look[1] for look in looks),
                statistics.mean(look[2] for look in looks),
            )  # fmt: skip
    raise InnetError(f"{case.label} has not reached a loss of {loss}: it needs more steps")


def main(
    seeds: Annotated[int, typer.Option(help="Repetitions, with other networks and batches.")] = 3,
    steps: Annotated[int, typer.Option(help="Steps of DDP; DiLoCo has a tenth of the sums.")] = 120,
    loss: Annotated[float, typer.Option(help="The loss to reach, over all digits.")] = LOSS,
    output: Json = None,
) -> None:
    """Compare DiLoCo and DistributedDataParallel in an emulated rack."""
    console = Console(width=None if Console().is_terminal else 120)
    run = [case for seed in range(1, seeds + 1) for case in cases(seed, steps)]
    with digits_file() as digits:
        task = {"digits": digits, "cases": [asdict(case) for case in run]}
        os.environ.setdefault("RUST_LOG", "warn")  # torchft reports every step otherwise
        program = [interpreter(), "-m", "benchmarks.replicas.host"]
        noted = emulate(console, Network(1, HOSTS, MBIT * 1_000_000), program, task)
    found: dict[str, list[Reached]] = {}
    for number, case in enumerate(run):
        outcome = reached(case, [host[number] for host in noted], loss)
        found.setdefault(case.label, []).append(outcome)
    table = Table("training", "sums", "seconds", "MB up", "MB down")
    table.title = f"{HOSTS} hosts, {MBIT} Mbit/s, to a loss of {loss:g}; medians of {seeds}"
    for label, outcomes in found.items():
        table.add_row(
            label,
            f"{statistics.median(each.sums for each in outcomes):g}",
            f"{statistics.median(each.seconds for each in outcomes):.1f}",
            f"{statistics.median(each.up_bytes for each in outcomes) / 1e6:.2f}",
            f"{statistics.median(each.down_bytes for each in outcomes) / 1e6:.2f}",
        )
    console.print(table)
    if output:
        figures = {label: [asdict(each) for each in outcomes] for label, outcomes in found.items()}
        output.write_text(json.dumps({"machine": machine(), "reached": figures}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
