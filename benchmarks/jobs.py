"""The effect of one job on another: throughput beside a stuck job and beside a flooding station.

No root is needed::

    python -m benchmarks.jobs

Two jobs share a switch on this machine. The first one's all-reduces are timed in three situations:
alone, while a worker of the second job is stuck and the others wait for it, and while a station at
another port sends packets that the switch must refuse, as fast as it can. Rounds of the three
alternate, so other changes on the machine affect all alike.
"""

import contextlib
import json
import platform
import statistics
import threading
import time
from collections.abc import Iterator
from typing import Annotated

import numpy as np
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.options import Json
from innet.host.agent import Agent
from innet.host.join import join
from innet.host.link import Link, open_link
from innet.local.rack import Rack, local_rack
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect
from innet.wire.frames import Address
from innet.wire.layout import Kind
from innet.wire.records import blank

LANES = 256
SITUATIONS = ("alone", "beside a stuck job", "beside a flood")


def timed(agents: list[Agent], vectors: np.ndarray, all_reduces: int) -> float:
    """Return the bytes of one worker's vector that are reduced in a second."""
    started = time.perf_counter()
    for _ in range(all_reduces):
        for future in [agent.submit(mine) for agent, mine in zip(agents, vectors, strict=True)]:
            future.result()
    return float(all_reduces * vectors[0].nbytes / (time.perf_counter() - started))


@contextlib.contextmanager
def job(rack: Rack, name: str, links: tuple[str, ...]) -> Iterator[list[Agent]]:
    """Yield the agents of a separate job."""
    channel, stub = connect(rack.controller)
    with contextlib.closing(channel), contextlib.ExitStack() as stack:
        request = pb.CreateJobRequest(name=name, switch="tor", workers=len(links))
        token = stub.CreateJob(request).token
        stack.callback(stub.DeleteJob, pb.DeleteJobRequest(name=name))
        yield [
            stack.enter_context(join(rack.controller, name, rank, link, token=token))
            for rank, link in enumerate(links)
        ]


@contextlib.contextmanager
def stuck(rack: Rack, links: tuple[str, ...], vector: np.ndarray) -> Iterator[None]:
    """Run a job in which all workers but one wait for that one."""
    with job(rack, "stuck", links) as agents:
        waiting = [agent.submit(vector) for agent in agents[1:]]
        while any(list(agent.progress().missing) != [0] for agent in agents[1:]):
            time.sleep(0.01)  # until the switch has reported that worker 0 is missing
        yield
        late = agents[0].submit(vector)
        for each in [*waiting, late]:
            each.result()


@contextlib.contextmanager
def flood(link: Link, packets: int) -> Iterator[None]:
    """Send contributions that belong to no job, as many as the sender's core can make."""
    batch = blank(packets, LANES, Kind.CONTRIBUTION, link.encapsulation)
    ended = threading.Event()

    def send() -> None:
        while not ended.is_set():
            link.send(batch)

    sender = threading.Thread(target=send)
    sender.start()
    try:
        yield
    finally:
        ended.set()
        sender.join()


def main(
    elements: Annotated[int, typer.Option(help="Elements of the vector.")] = 500_000,
    all_reduces: Annotated[int, typer.Option(help="All-reduces in a round.")] = 20,
    rounds: Annotated[int, typer.Option(help="Rounds of each situation.")] = 7,
    output: Json = None,
) -> None:
    """Measure how much a job's throughput suffers from another job."""
    console = Console()
    vectors = np.random.default_rng(1).standard_normal((2, elements), np.float32)
    found: dict[str, list[float]] = {each: [] for each in SITUATIONS}
    with local_rack(6, LANES) as rack, job(rack, "measured", rack.links[:2]) as agents:
        noise = open_link(rack.links[5], Address("02:00:00:00:00:fe", "10.255.255.254"), LANES)
        timed(agents, vectors, all_reduces)  # lets timers and window settle
        for _ in track(range(rounds), "measuring", console=console, transient=True):
            found["alone"].append(timed(agents, vectors, all_reduces))
            with stuck(rack, rack.links[2:5], vectors[0]):
                found["beside a stuck job"].append(timed(agents, vectors, all_reduces))
            with flood(noise, packets=64):
                found["beside a flood"].append(timed(agents, vectors, all_reduces))
        noise.close()
    medians = {name: statistics.median(rates) for name, rates in found.items()}
    table = Table(
        "a job of 2 workers", "goodput, MB/s", "of alone",
        title=f"{elements:,} float32, {LANES} lanes; median of {rounds}; "
        f"{platform.processor() or platform.machine()}",
    )  # fmt: skip
    for name, median in medians.items():
        table.add_row(name, f"{median / 1e6:.1f}", f"{median / medians['alone']:.1%}")
    console.print(table)
    if output:
        output.write_text(json.dumps({"medians": medians, "rounds": found}, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
