"""A job of hundreds of workers on one machine: light workers through a tree of real switches.

No root is needed::

    python -m benchmarks.swarm                                  # 32 racks of 32 workers below one switch
    python -m benchmarks.swarm --levels 32,4,1                  # the same below 4 switches below a top
    python -m benchmarks.swarm --quick

Every switch is an innet-switch process, and a controller is in charge of them. The workers are light
(:mod:`benchmarks.light_workers`): they join as others do, but share a few processes. Cables lead through
shared memory to workers, and over UDP to other switches. All of them lose packets at random. The
benchmark compares every result of every worker with the right sum, and states

* how long it takes until all have joined, and until all have all results;
* the packets of the workers, and how many of them were repetitions, beside those of the simulator for the
  same tree and losses;
* with ``--kill``, how long it takes until all workers have a stream again after the controller was killed
  with SIGKILL and started again, in the middle of the sum.
"""

import contextlib
import json
import os
import platform
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, astuple, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.controller import Controller
from benchmarks.light_workers import Sum, Swarm, processor_seconds
from benchmarks.lossy_cables import lossy
from benchmarks.options import Json
from innet.errors import InnetError, UsageError
from innet.local.ports import free_cables, port_options, shared_cables
from innet.local.processes import announced, command, spawned
from innet.machine.scratch import scratch_folder
from innet.model.all_reduce import SlotParameters
from innet.model.scenario import Scenario, SimulatedLink, switch_tree
from innet.model.simulate import simulate
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect, translated

_LOOK_EVERY = 0.02
_LEASE = 120.0  # seconds: on a busy machine, hundreds of heartbeats may be late
_PAUSE = threading.Event()
_RATE = 10e9  # bits per second of a link in the simulator


@dataclass(frozen=True)
class Tree:
    """The numbers of switches of each level, from the racks up to the one at the top, and of workers.

    Workers and switches are spread over the switches above them in order, and as evenly as possible.
    """

    levels: tuple[int, ...]
    workers: int

    def __post_init__(self) -> None:
        nodes = (self.workers, *self.levels)
        if list(nodes) != sorted(nodes, reverse=True) or nodes[-1] != 1:
            raise UsageError(
                f"{self.workers} workers below levels of {self.levels} switches: every switch needs a "
                "node below it, and the last level has one switch"
            )

    def racks(self) -> list[str]:
        """Return the name of each worker's switch, by rank."""
        return [f"0-{rank * self.levels[0] // self.workers}" for rank in range(self.workers)]

    @property
    def parents(self) -> dict[str, str]:
        """Return the parent of each switch, the top first. The top has the parent "".

        Switch `number` of level `level` is called "level-number".
        """
        found = {}
        for level in reversed(range(len(self.levels))):
            above = self.levels[level + 1] if level + 1 < len(self.levels) else 0
            for number in range(self.levels[level]):
                parent = number * above // self.levels[level]
                found[f"{level}-{number}"] = f"{level + 1}-{parent}" if above else ""
        return found

    @property
    def branch(self) -> int:
        """Return the largest number of workers below one child of the top."""
        return -(-self.workers // (self.workers, *self.levels)[-2])

    @property
    def top(self) -> str:
        """Return the name of the top."""
        return next(iter(self.parents))


@dataclass(frozen=True)
class Processor:
    """The processor time of the controller, of the switches, and of the workers, in seconds."""

    controller: float
    switches: float
    workers: float

    def since(self, before: "Processor") -> "Processor":
        """Return the time since an earlier moment."""
        return Processor(
            *(now - then for now, then in zip(astuple(self), astuple(before), strict=True))
        )


@dataclass(frozen=True)
class Figures:
    """The figures of one sum. Times are in seconds; packets are the workers'."""

    workers: int
    switches: int
    elements: int
    loss: float
    slots: int
    lanes: int
    start: float
    join: float
    sum: float
    recovery: float
    restart: float
    new_terms: int
    join_processor: Processor
    sum_processor: Processor
    counts: dict[str, int]
    simulated_sent: int
    simulated_repetitions: int


@contextlib.contextmanager
def running(
    tree: Tree, controller: Controller, lanes: int, loss: float, seed: int
) -> Iterator[tuple[list[str], list[int]]]:
    """Run the tree's switches, and put the controller in charge.

    `loss` is that of cables between switches. Yield the links of the workers, and the switches' process
    ids.
    """
    parents = tree.parents
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        cables, links = _cables_of_racks(tree, folder)
        uplinks = _join_switches(parents, cables, loss, seed, stack)
        processes = _start(cables, folder, stack)
        addresses = {name: announced(each, "P4Runtime") for name, each in processes.items()}
        requests = {
            name: pb.AddSwitchRequest(
                name=name, grpc_address=addresses[name], lanes=lanes,
                ports=range(1, len(cables[name]) + 1), uplinks=uplinks.get(name, []),
            )
            for name in parents
        }  # fmt: skip
        channel, stub = connect(controller.address)
        with (
            contextlib.closing(channel),
            translated("add the switches"),
            ThreadPoolExecutor() as pool,
        ):
            for level in reversed(range(len(tree.levels))):  # parents come before others
                some = [requests[f"{level}-{number}"] for number in range(tree.levels[level])]
                list(pool.map(stub.AddSwitch, some))
        yield links, [each.pid for each in processes.values()]


def _cables_of_racks(tree: Tree, folder: Path) -> tuple[dict[str, list[str]], list[str]]:
    """Return the switches' ends of all workers' cables by switch, and the workers' ends by rank."""
    cables: dict[str, list[str]] = {name: [] for name in tree.parents}
    racks, links = tree.racks(), []
    for rack, workers in Counter(racks).items():
        (folder / rack).mkdir()
        made = shared_cables(workers, folder / rack)
        cables[rack] += [each.interface for each in made]
        links += [each.link for each in made]
    return cables, links


def _join_switches(
    parents: Mapping[str, str],
    cables: dict[str, list[str]],
    loss: float,
    seed: int,
    stack: contextlib.ExitStack,
) -> dict[str, list[pb.Uplink]]:
    """Add cables between switches to `cables`. Return the uplinks of each switch below another."""
    below = [name for name, parent in parents.items() if parent]
    free = free_cables(len(below)) if below else []
    near = [each.interface for each in free]
    if loss and below:
        near = stack.enter_context(lossy(near, seed, loss))
    uplinks = {}
    for name, end, cable in zip(below, near, free, strict=True):
        parent = parents[name]
        cables[name].append(end)
        cables[parent].append(cable.link)
        port, parent_port = len(cables[name]), len(cables[parent])
        uplinks[name] = [pb.Uplink(parent=parent, port=port, parent_port=parent_port)]
    return uplinks


def _start(
    cables: Mapping[str, Sequence[str]], folder: Path, stack: contextlib.ExitStack
) -> dict[str, subprocess.Popen[str]]:
    """Start the switches, all at once. Return their processes."""
    run = [*command("innet.switch.cli"), "--no-p4", "--grpc-server-addr", "127.0.0.1:0"]
    started = {}
    for name, ports in cables.items():
        log = stack.enter_context((folder / f"{name}.log").open("w"))
        started[name] = stack.enter_context(spawned([*run, *port_options(ports)], stderr=log))
    return started


def wait_for(what: str, reached: Callable[[], bool], within: float) -> float:
    """Wait until something is reached. Return and print how long it took. Raises InnetError."""
    began = time.monotonic()
    while not reached():
        if time.monotonic() > began + within:
            raise InnetError(f"{what}: not within {within:g} s")
        _PAUSE.wait(_LOOK_EVERY)
    took = time.monotonic() - began
    typer.echo(f"{what}: {took:.1f} s", err=True)
    return took


def measured(
    tree: Tree,
    job: Sum,
    slots: int,
    lanes: int,
    processes: int,
    *,
    kill: bool = False,
    simulated: bool = True,
    within: float = 3000.0,
) -> Figures:
    """Return the figures of a sum. Raises InnetError if any result of any worker is wrong."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        controller = Controller(folder, _LEASE)
        stack.callback(controller.close)
        began = time.monotonic()
        links, switches = stack.enter_context(running(tree, controller, lanes, job.loss, job.seed))
        start = time.monotonic() - began
        token = create_job(controller.address, tree, slots)
        swarm = Swarm(controller.address, "swarm", token, links, job, processes)
        stack.callback(swarm.close)

        def used() -> Processor:
            return Processor(controller.seconds, processor_seconds(switches), swarm.seconds)

        before = used()
        join = wait_for("all workers join", lambda: swarm.going == tree.workers, within)
        terms, began, recovery, restart = swarm.terms, time.monotonic(), 0.0, 0.0
        joined = used()
        swarm.sum()
        if kill:
            wait_for("the first results", lambda: swarm.counts["results"] > 0, within)
            recovery, restart = recovered(controller, swarm, tree.workers, within)
        wait_for("all workers have the sum", lambda: swarm.done, within)
        seconds, counts, terms = time.monotonic() - began, swarm.counts, swarm.terms - terms
        # A controller that was killed has begun to count anew.
        summed = used().since(replace(joined, controller=0.0) if kill else joined)
    if counts["wrong"] or counts["stale"]:
        raise InnetError(f"{counts['wrong']} wrong and {counts['stale']} stale results: {counts}")
    sent, repeated = expected(tree, job, slots, lanes) if simulated else (0, 0)
    return Figures(
        tree.workers, len(tree.parents), job.elements, job.loss, slots, lanes, start, join, seconds,
        recovery, restart, terms, joined.since(before), summed, counts, sent, repeated,
    )  # fmt: skip


def create_job(controller: str, tree: Tree, slots: int) -> str:
    """Create the job on the tree. Return its token."""
    channel, stub = connect(controller)
    with contextlib.closing(channel), translated("create the job"):
        request = pb.CreateJobRequest(
            name="swarm", switch=tree.top, workers=tree.workers, slots=slots
        )
        token: str = stub.CreateJob(request).token
    return token


def recovered(
    controller: Controller, swarm: Swarm, workers: int, within: float
) -> tuple[float, float]:
    """Kill the controller and start it again. Return the times until all go on, and until it serves."""
    began, all_ended = time.monotonic(), swarm.ended + workers
    controller.kill()
    controller.start()
    restart = time.monotonic() - began
    wait_for(
        "all workers go on", lambda: swarm.ended >= all_ended and swarm.going == workers, within
    )
    return time.monotonic() - began, restart


def expected(tree: Tree, job: Sum, slots: int, lanes: int) -> tuple[int, int]:
    """Return the packets that the simulator's workers send, and how many of them repeat others."""
    link = SimulatedLink(_RATE, 1e-5, job.loss)
    levels = switch_tree(link, tree.levels)
    size = 4.0 * lanes * -(-job.elements // lanes)
    found = simulate(Scenario(tree.workers, size, levels, SlotParameters(slots=slots, lanes=lanes)))
    return found.packets_sent, found.retransmissions


def main(
    workers: Annotated[int, typer.Option(help="Workers of the job.")] = 1024,
    levels: Annotated[
        str,
        typer.Option(
            help="Switches of each level, separated by commas: racks first, the top last."
        ),
    ] = "32,1",
    elements: Annotated[int, typer.Option(help="Elements of the vector.")] = 10_000_000,
    loss: Annotated[
        float, typer.Option(help="Share of packets lost on every link, each way.")
    ] = 0.001,
    slots: Annotated[int, typer.Option(help="Slots of the job in each switch.")] = 512,
    lanes: Annotated[int, typer.Option(help="Lanes of a packet.")] = 256,
    processes: Annotated[int, typer.Option(help="Processes that the workers share.")] = 2,
    seed: Annotated[int, typer.Option(help="Seed of the vectors and of the losses.")] = 1,
    kill: Annotated[bool, typer.Option(help="Kill the controller during the sum.")] = False,
    simulated: Annotated[bool, typer.Option(help="Count the simulator's packets, too.")] = False,
    quick: Annotated[
        bool, typer.Option(help="32 workers in 4 racks, and 100,000 elements.")
    ] = False,
    within: Annotated[
        float, typer.Option(help="The longest time for each step, in seconds.")
    ] = 3000.0,
    output: Json = None,
) -> None:
    """Sum a vector with light workers through a tree of switches."""
    if quick:
        workers, levels, elements, slots = 32, "4,2,1", 100_000, 64
    tree = Tree(tuple(int(each) for each in levels.split(",")), workers)
    job = Sum(tree.workers, elements, seed, loss, tree.branch)
    found = measured(
        tree, job, slots, lanes, processes, kill=kill, simulated=simulated or quick, within=within
    )
    table = Table("", "")
    for name, value in _flat(asdict(found)):
        table.add_row(name, f"{value:.6g}" if isinstance(value, float) else f"{value:,}")
    Console().print(table)
    if output:
        machine = {"cores": os.cpu_count(), "python": platform.python_version()}
        output.write_text(
            json.dumps({**machine, "load": os.getloadavg()[0], **asdict(found)}, indent=1)
        )


def _flat(figures: Mapping[str, Any], before: str = "") -> Iterator[tuple[str, Any]]:
    """Yield figures by name, and those of a group with its name in front."""
    for name, value in figures.items():
        if isinstance(value, Mapping):
            yield from _flat(value, f"{name} ")
        else:
            yield before + name, value


if __name__ == "__main__":
    typer.run(main)
