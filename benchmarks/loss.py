"""The cost of packet loss: the goodput of an all-reduce over cables of bounded rate.

No root is needed::

    python -m benchmarks.loss

The benchmark runs a rack on this machine. Its cables have a bounded rate each way, and lose packets
at random in both directions. Goodput is the bytes of one worker's vector over the time from its
submission to the last worker's result. The table has the median of several rounds.
"""

import contextlib
import json
import platform
import statistics
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.options import Json
from innet.host.agent import Agent
from innet.host.join import join
from innet.local.faults import Faults, Line, Wiring, faulty
from innet.local.rack import local_rack

LOSSES = (0.0, 0.001, 0.01, 0.05)


@dataclass(frozen=True)
class Outcome:
    """The measurements at one rate of loss: goodputs in bytes per second, one for each round."""

    loss: float
    goodputs: list[float]
    retransmissions: int
    lost: int
    crowded_out: int

    @property
    def median(self) -> float:
        """Return the median goodput."""
        return statistics.median(self.goodputs)


@contextlib.contextmanager
def workers(
    count: int, lanes: int, slots: int, line: Line, seed: int
) -> Iterator[tuple[list[Agent], Wiring]]:
    """Yield the agents of one job, behind cables of bounded rate."""
    with contextlib.ExitStack() as stack:
        rack = stack.enter_context(local_rack(count, lanes, slots, udp=True))
        wiring = stack.enter_context(faulty(rack.links, seed, line=line))
        yield (
            [
                stack.enter_context(join(rack.controller, rack.job, rank, link, token=rack.token))
                for rank, link in enumerate(wiring.links)
            ],
            wiring,
        )


def measure(
    agents: list[Agent], wiring: Wiring, loss: float, elements: int, rounds: int
) -> Outcome:
    """Make `rounds` all-reduces at one rate of loss."""
    wiring.chance(Faults(drop=loss))
    vectors = np.random.default_rng(1).standard_normal((len(agents), elements), np.float32)
    before = wiring.total(), sum(agent.traffic.retransmissions for agent in agents)
    goodputs = []
    for _ in range(rounds):
        started = time.perf_counter()
        for future in [agent.submit(mine) for agent, mine in zip(agents, vectors, strict=True)]:
            future.result()
        goodputs.append(vectors[0].nbytes / (time.perf_counter() - started))
    after = wiring.total()
    return Outcome(
        loss,
        goodputs,
        sum(agent.traffic.retransmissions for agent in agents) - before[1],
        after.dropped - before[0].dropped,
        after.crowded_out - before[0].crowded_out,
    )


def main(
    mbits: Annotated[float, typer.Option(help="Rate of a cable each way, in Mbit/s.")] = 100.0,
    queue: Annotated[int, typer.Option(help="Bytes that may wait at either end.")] = 200_000,
    count: Annotated[int, typer.Option("--workers", help="The number of workers.")] = 2,
    lanes: Annotated[int, typer.Option(help="Integers in a packet.")] = 256,
    slots: Annotated[int, typer.Option(help="Slots of the job.")] = 128,
    elements: Annotated[int, typer.Option(help="Elements of the vector.")] = 2_000_000,
    rounds: Annotated[int, typer.Option(help="Rounds at each rate of loss.")] = 5,
    seed: Annotated[int, typer.Option(help="Seed of the lost packets.")] = 1,
    output: Json = None,
) -> None:
    """Measure the goodput of an all-reduce under packet loss."""
    console = Console()
    line = Line(rate=mbits * 1e6 / 8, queue=queue)
    with workers(count, lanes, slots, line, seed) as (agents, wiring):
        measure(agents, wiring, 0.0, elements, 1)  # lets timers and window settle
        found = [
            measure(agents, wiring, loss, elements, rounds)
            for loss in track(LOSSES, "measuring", console=console, transient=True)
        ]
    base = found[0].median
    table = Table(
        "loss each way", "goodput, Mbit/s", "of the lossless", "sent again", "lost", "no room",
        title=f"{count} workers, cables of {mbits:g} Mbit/s, {elements:,} float32, {lanes} lanes, "
        f"{slots} slots; median of {rounds}; {platform.processor() or platform.machine()}",
    )  # fmt: skip
    for each in found:
        table.add_row(
            f"{each.loss:.1%}", f"{each.median * 8 / 1e6:.1f}", f"{each.median / base:.0%}",
            f"{each.retransmissions:,}", f"{each.lost:,}", f"{each.crowded_out:,}",
        )  # fmt: skip
    console.print(table)
    if output:
        settings = {"mbits": mbits, "queue": queue, "workers": count, "lanes": lanes,
                    "slots": slots, "elements": elements, "rounds": rounds, "seed": seed}  # fmt: skip
        results = [{**asdict(each), "ratio": each.median / base} for each in found]
        output.write_text(json.dumps({"settings": settings, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
