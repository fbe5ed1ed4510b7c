"""torchft over the switch beside torchft over Gloo, on this machine, in the same processes.

No root is needed. ``make libraries`` installs torchft in an environment of its own::

    python -m benchmarks.torchft --json torchft.json
    python -m benchmarks.torchft --only kills --kills 20

Parts:

* ``kills``: replicas get SIGKILL at random moments. The survivors have to end with the bits of a run
  in which the replicas left at the same steps. The table has the survivors' recovery.
* ``algorithms``: LocalSGD and DiLoCo, with narrow lanes and cables that lose packets.

Rounds over innet and Gloo alternate, so other changes on the machine affect both alike.
"""

import json
import os
import statistics
from collections.abc import Sequence
from dataclasses import asdict
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.emulated.network import machine
from benchmarks.options import Json
from benchmarks.replicas.algorithms import ALGORITHMS, REPLICAS, trained
from benchmarks.replicas.kills import SURVIVORS, Kill, crew
from benchmarks.replicas.start import lighthouses
from innet.errors import InnetError, UsageError
from innet.local.rack import local_rack

VICTIMS = 2
"""The replicas that are killed in one training."""
LANES = 256
LOSS = 0.01
STEPS = 40


def kills(console: Console, number: int) -> dict[str, Any]:
    """Kill replicas, and show how long the survivors took."""
    found: dict[str, list[Kill]] = {"innet": [], "Gloo": []}
    rounds = range(-(-number // VICTIMS))
    with local_rack(SURVIVORS + VICTIMS, LANES) as rack, lighthouses(3 * len(rounds)) as each:
        environments = [{**rack.environment, "INNET_LINK": link} for link in rack.links]
        with crew(environments, each) as replicas:
            for seed in track(rounds, "killing", console=console, transient=True):
                for over, of_kills in found.items():
                    outcome = replicas.killed(over, seed)
                    of_kills.extend(outcome.kills)
                    if over == "innet" and replicas.left(over, outcome) != outcome.digests:
                        raise InnetError(f"after the kills of seed {seed} the bits differ")
    table = Table("over", "kills", "noticed, s", "new group, s", "next step, s", "slowest, s")
    table.title = f"{SURVIVORS} survivors, medians; load {os.getloadavg()[0]:.1f}"
    for over, of_kills in found.items():
        table.add_row(
            over, str(len(of_kills)),
            _median([kill.noticed for kill in of_kills if kill.noticed is not None]),
            _median([kill.configured for kill in of_kills], digits=2),
            _median([kill.recovered for kill in of_kills]),
            f"{max(kill.recovered for kill in of_kills):.1f}",
        )  # fmt: skip
    console.print(table)
    return {over: [asdict(kill) for kill in of_kills] for over, of_kills in found.items()}


def algorithms(console: Console, steps: int) -> list[dict[str, Any]]:
    """Train with LocalSGD and DiLoCo."""
    results = []
    with local_rack(REPLICAS, udp=True) as rack, lighthouses(4 * len(ALGORITHMS)) as each:
        results += trained(rack, each, "int32", LOSS, steps)
        for quantizer in ("int8", "int8+stochastic"):
            results += trained(rack, each, quantizer, LOSS, steps, ["innet"])
    table = Table("algorithm", "over", "lanes", "packets lost", "loss")
    table.title = f"2 replicas, {steps} rounds of 5 steps, {LOSS:.0%} of packets lost each way"
    for result in sorted(results, key=lambda result: (result.algorithm, result.over)):
        lost, loss = str(result.lost), f"{result.loss:.4f}"
        table.add_row(result.algorithm, result.over, result.quantizer, lost, loss)
        if len(set(result.digests)) > 1:
            raise InnetError(f"the replicas of {result} differ")
    console.print(table)
    return [asdict(each) for each in results]


def main(
    only: Annotated[str, typer.Option(help="kills or algorithms; by default both.")] = "",
    number: Annotated[int, typer.Option("--kills", help="The number of kills.")] = 20,
    steps: Annotated[int, typer.Option(help="Rounds of LocalSGD and DiLoCo.")] = STEPS,
    output: Json = None,
) -> None:
    """Measure torchft over the switch and over Gloo."""
    if only not in ("", "kills", "algorithms"):
        raise UsageError(f"no part {only}: there are kills, algorithms")
    console = Console(width=None if Console().is_terminal else 120)
    found: dict[str, Any] = {"machine": machine()}
    if only != "algorithms":
        found["kills"] = kills(console, number)
    if only != "kills":
        found["algorithms"] = algorithms(console, steps)
    if output:
        output.write_text(json.dumps(found, indent=1) + "\n")


def _median(values: Sequence[float], digits: int = 1) -> str:
    return f"{statistics.median(values):.{digits}f}" if values else ""


if __name__ == "__main__":
    typer.run(main)
