"""FSDP2 on eight hosts with links of 100 Mbit/s: steps a second through the switch and over Gloo.

Run as root, with Mininet installed::

    python -m benchmarks.fsdp --json fsdp.json

A transformer of 3.2 million parameters learns sequences of symbols. Every step gathers all parameters
twice, and reduce-scatters all gradients. The cases have the same data, parameters and optimizer.
"""

import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass

from rich.console import Console
from rich.table import Table

from benchmarks.emulated.fsdp import Case
from benchmarks.emulated.network import Network, emulate
from benchmarks.emulated.report import Timed, command, slowest

HOSTS, MBIT = 8, 1_000_000


@dataclass(frozen=True)
class Outcome(Timed):
    """The result of a case: the slowest host's time of each step, and the mean loss of each."""

    losses: Sequence[float]
    parameters: int


def training(console: Console, quick: bool) -> Sequence[Outcome]:
    """Train over Gloo, through the switch, and through the switch with narrow numbers."""
    layers, steps = (1, 2) if quick else (4, 10)
    cases = [
        Case("Gloo", layers, steps),
        Case("Gloo", layers, steps, narrow=True),
        Case("innet int32", layers, steps),
        Case("innet int16", layers, steps, narrow=True),
    ]
    program = [sys.executable, "-m", "benchmarks.emulated.fsdp"]
    network = Network(1, HOSTS, 100 * MBIT, slots=128)
    noted = emulate(console, network, program, {"cases": [asdict(case) for case in cases]})
    found = [
        Outcome(
            case,
            slowest(hosts),
            hosts[0]["losses"],
            hosts[0]["parameters"],
        )
        for case, hosts in zip(cases, zip(*noted, strict=True), strict=True)
    ]
    table = Table(
        "over", "parameters as", "step, s", "steps a second over Gloo's", "loss at the end"
    )
    table.title = f"FSDP2, {HOSTS} hosts, 100 Mbit/s, {found[0].parameters:,} parameters"
    for each in found:
        table.add_row(
            each.case.over, "bfloat16" if each.case.narrow else "float32", f"{each.step_s:.2f}",
            f"{found[0].step_s / each.step_s:.2f}", f"{each.losses[-1]:.3f}",
        )  # fmt: skip
    console.print(table)
    return found


if __name__ == "__main__":
    command({"training": training}, "Train with FSDP2 through the switch and over Gloo.")
