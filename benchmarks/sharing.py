"""Slots lent between bursty jobs, beside fixed shares, and beside each job alone with all its slots.

No root is needed::

    python -m benchmarks.sharing

Sixteen jobs of two workers each compute most of the time. They share a switch with a quarter of the slots
that they ask for. Their cables are long, so a job's slots limit its rate, and not the processors of this
machine: a chunk occupies its slot for a round trip. Three situations follow each other:

* **alone**: one job at a time has all the slots that it asks for;
* **fixed shares**: each job has a quarter of them, always;
* **lent**: each job has a few of its own, and borrows up to all that it asks for.

A job computes for the same times in all of them. Every sum is compared with the exact one.
"""

import contextlib
import json
import os
import platform
import statistics
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.bursty_job import WORKERS, Steps
from benchmarks.options import Json
from benchmarks.programs import Program, running
from innet.local.ports import free_udp_ports
from innet.local.processes import command, serving
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect, translated
from innet.rpc.innet_pb2_grpc import ControllerStub

LANES = 64


@dataclass(frozen=True)
class Rack:
    """A switch and its controller. `links` has the links of each job's workers."""

    controller: str
    stub: ControllerStub
    links: list[list[str]]


@dataclass(frozen=True)
class Plan:
    """The slots that a job asks for, the slots that it keeps, and its work."""

    slots: int
    kept: int
    work: Steps


@contextlib.contextmanager
def rack(jobs: int, slots: int, delay_ms: float) -> Iterator[Rack]:
    """Run a switch of which so many slots are free, with long cables for the workers of all jobs."""
    count = jobs * WORKERS
    ports = free_udp_ports(4 * count)
    cables = [ports[4 * each : 4 * each + 4] for each in range(count)]
    ends = [f"127.0.0.1:{switch}/127.0.0.1:{ours}" for ours, switch, _, _ in cables]
    interfaces = [f"-i{number}@udp:{end}" for number, end in enumerate(ends, 1)]
    links = [f"udp:127.0.0.1:{worker}/127.0.0.1:{ours}" for _, _, ours, worker in cables]
    code = "import typer; from benchmarks.delay_line import main; typer.run(main)"
    line = [sys.executable, "-c", code, str(delay_ms), *map(str, ports)]
    run_switch = [*command("innet.switch.cli"), "--no-p4", "--grpc-server-addr", "127.0.0.1:0"]
    run_controller = [*command("innet.cli"), "controller", "--address", "127.0.0.1:0"]
    with (
        serving("line", line),
        serving("P4Runtime", [*run_switch, *interfaces]) as (_, p4runtime),
        serving("controller", run_controller) as (_, address),
    ):
        channel, stub = connect(address)
        with contextlib.closing(channel), translated("set up the rack"):
            switch = stub.AddSwitch(
                pb.AddSwitchRequest(
                    name="tor", grpc_address=p4runtime, ports=range(1, count + 1), lanes=LANES
                )
            )
            _reserve(stub, switch.slots, slots)
            yield Rack(address, stub, [links[n : n + WORKERS] for n in range(0, count, WORKERS)])


def _reserve(stub: ControllerStub, have: int, wanted: int) -> None:
    """Leave so many slots of the switch free for the jobs."""
    size = have // 2
    while have > wanted:
        stub.CreateJob(
            pb.CreateJobRequest(name=f"reserved-{size}", switch="tor", workers=1, slots=size)
        )
        have, size = have - size, size // 2


def run(rack: Rack, plan: Plan, numbers: Sequence[int]) -> list[list[float]]:
    """Run these jobs at the same time. Return each one's times of its steps, in seconds."""
    with contextlib.ExitStack() as stack:
        started = [stack.enter_context(_job(rack, plan, number)) for number in numbers]
        for each in started:
            each.answer()  # the job has joined
        for each in started:
            each.wake()
        times = [each.answer() for each in started]
        for each in started:
            each.wake()
        for each in started:
            each.wait()
        return times


@contextlib.contextmanager
def _job(rack: Rack, plan: Plan, number: int) -> Iterator[Program]:
    name = f"job-{number}"
    created = rack.stub.CreateJob(
        pb.CreateJobRequest(
            name=name, switch="tor", workers=WORKERS, slots=plan.slots, min_slots=plan.kept
        )
    )
    own = {
        "controller": rack.controller, "job": name, "token": created.token,
        "links": rack.links[number], "seed": number,
    }  # fmt: skip
    text = json.dumps({**asdict(plan.work), **own})
    code = (
        "import json, sys; from benchmarks.bursty_job import Steps, main; "
        "main(Steps(**json.loads(sys.argv[1])))"
    )
    arguments = [*command("benchmarks")[:1], "-c", code, text]
    try:
        with running(arguments) as program:
            yield program
    finally:
        rack.stub.DeleteJob(pb.DeleteJobRequest(name=name))


def main(
    jobs: Annotated[int, typer.Option(help="Jobs at the same time.")] = 16,
    asked: Annotated[int, typer.Option(help="Slots that a job asks for.")] = 64,
    kept: Annotated[
        int, typer.Option(help="Slots that a job keeps while it lends the others.")
    ] = 2,
    steps: Annotated[int, typer.Option(help="Steps of every job.")] = 6,
    compute: Annotated[float, typer.Option(help="Seconds of computing in a step.")] = 6.0,
    buckets: Annotated[int, typer.Option(help="All-reduces in a burst.")] = 3,
    elements: Annotated[int, typer.Option(help="Elements of a bucket, int32.")] = 25_600,
    round_trip: Annotated[
        float, typer.Option(help="Round trip of the cables in milliseconds.")
    ] = 20.0,
    alone: Annotated[int, typer.Option(help="Jobs that also run alone, one after the other.")] = 2,
    output: Json = None,
) -> None:
    """Compare the steps of jobs that share slots with those of a job alone."""
    console = Console()
    work = Steps("", "", "", [], steps, compute, buckets, elements, 0)
    everybody = range(jobs)
    loads = [os.getloadavg()[0]]
    with rack(jobs, jobs * asked // 4, round_trip / 2) as made:
        times: dict[str, list[list[float]]] = {"alone": []}
        for number in range(alone):
            times["alone"] += run(made, Plan(asked, asked, work), [number])
        times["fixed shares"] = run(made, Plan(asked // 4, asked // 4, work), everybody)
        times["lent"] = run(made, Plan(asked, kept, work), everybody)
    loads.append(os.getloadavg()[0])
    table = Table(
        "situation", "slots of a job", "mean step, s", "of alone", "worst job", "longest step, s",
        title=f"{jobs} jobs of {WORKERS} workers, {jobs * asked // 4} slots, "
        f"round trip {round_trip:g} ms, {steps} steps of about {compute:g} s of computing; "
        f"{platform.machine()}, load {loads[0]:.1f} to {loads[1]:.1f}",
    )  # fmt: skip
    slots = {"alone": f"{asked}", "fixed shares": f"{asked // 4}", "lent": f"{kept} to {asked}"}
    base = statistics.mean(map(statistics.mean, times["alone"]))
    for name, found in times.items():
        means = [statistics.mean(each) for each in found]
        mean, worst = statistics.mean(means), max(means)
        table.add_row(
            name, slots[name], f"{mean:.2f}", f"{mean / base:.2f}", f"{worst / base:.2f}",
            f"{max(map(max, found)):.2f}",
        )  # fmt: skip
    console.print(table)
    if output:
        output.write_text(json.dumps({"times": times, "loads": loads}, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
