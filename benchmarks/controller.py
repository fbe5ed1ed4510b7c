"""The controller with thousands of workers: its memory, its threads, its time, and its recovery.

No root is needed::

    python -m benchmarks.controller --workers 1024,4096

A controller, a switch and the workers run on this machine. The workers are idle, in jobs of 32, with a
connection each (:mod:`benchmarks.idle_workers`). The benchmark states

* how long it takes until all have joined, from the first connection on;
* the controller's resident memory and its threads, before and after;
* the share of a core that heartbeats take: the controller's processor time while the workers send them,
  less its time while they do not, in turns;
* how long it takes to add another switch, and to remove it;
* how long it takes until all workers go on after the controller was killed with SIGKILL and started
  again, and how much of that passed before it served.
"""

import contextlib
import json
import os
import platform
import statistics
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.idle_workers import Fleet, fleet, seats
from benchmarks.options import Json
from innet.controller.defaults import WORKER_LEASE_S
from innet.errors import InnetError
from innet.local.ports import free_cables, free_tcp_port, port_options
from innet.local.processes import announced, command, serving, spawned
from innet.machine.scratch import scratch_folder
from innet.rpc import innet_pb2 as pb
from innet.rpc.client import connect, translated
from innet.wire.layout import MOST_CONTRIBUTORS

_SLOTS = 32
_WITHIN = 300.0
_LOOK_EVERY = 0.01
_LONGEST_PERIOD = 16.0  # of heartbeats
_TICKS = os.sysconf("SC_CLK_TCK")
_PAUSE = threading.Event()


@dataclass(frozen=True)
class Figures:
    """The figures of one number of workers. Times are in seconds, and memory is in MiB.

    `heartbeats` and `idle` are shares of a core: that of heartbeats alone, and that of a controller
    whose workers send heartbeats only.
    """

    workers: int
    join: float
    memory_before: float
    memory: float
    threads_before: int
    threads: int
    heartbeats: float
    idle: float
    add_switch: float
    remove_switch: float
    recovery: float
    restart: float
    new_terms: int


class Controller:
    """A controller with a state file. It can be killed and started again.

    `lease` is that of workers, in seconds.
    """

    def __init__(self, folder: Path, lease: float = WORKER_LEASE_S) -> None:
        self.address = f"127.0.0.1:{free_tcp_port()}"
        self._lease, self._state, self._running = lease, folder / "state", contextlib.ExitStack()
        self._log = (folder / "controller.log").open("a")
        self.start()

    def start(self) -> None:
        """Start the controller, and return when it serves."""
        arguments = ["controller", "--address", self.address, "--state", str(self._state)]
        arguments += ["--lease", str(self._lease)]
        run = spawned([*command("innet.cli"), *arguments], stderr=self._log)
        self._process = self._running.enter_context(run)
        announced(self._process, "controller")

    def kill(self) -> None:
        """Kill the controller with SIGKILL."""
        self._process.kill()
        self._process.wait()

    def close(self) -> None:
        """End the controller."""
        self._running.close()
        self._log.close()

    @property
    def memory(self) -> float:
        """Return the controller's resident memory in MiB."""
        return self._status("VmRSS") / 1024

    @property
    def threads(self) -> int:
        """Return the number of the controller's threads."""
        return self._status("Threads")

    @property
    def seconds(self) -> float:
        """Return the processor time that the controller has used."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS

    def _status(self, name: str) -> int:
        lines = Path(f"/proc/{self._process.pid}/status").read_text().splitlines()
        return int(next(line for line in lines if line.startswith(name)).split()[1])


@contextlib.contextmanager
def switch(cables: int) -> Iterator[tuple[str, list[str]]]:
    """Run a switch. Yield its P4Runtime address, and the links of the cables at its ports."""
    made = free_cables(cables)
    run = [*command("innet.switch.cli"), "--no-p4", "--grpc-server-addr", "127.0.0.1:0"]
    options = port_options(each.interface for each in made)
    with serving("P4Runtime", [*run, *options]) as (_, address):
        yield address, [each.link for each in made]


def create_jobs(controller: str, workers: int) -> dict[str, str]:
    """Create jobs for so many workers in all. Return the jobs' tokens, by name."""
    channel, stub = connect(controller)
    with contextlib.closing(channel), translated("create the jobs"):
        names = [f"job-{number}" for number in range(workers // MOST_CONTRIBUTORS)]
        common = pb.CreateJobRequest(switch="tor", workers=MOST_CONTRIBUTORS, slots=_SLOTS)
        tokens = {}
        for name in names:
            common.name = name
            tokens[name] = stub.CreateJob(common).token
        return tokens


def add_switch(controller: str, name: str, address: str, ports: int) -> float:
    """Add a switch. Return how long it took."""
    channel, stub = connect(controller)
    request = pb.AddSwitchRequest(name=name, grpc_address=address, ports=range(1, ports + 1))
    with contextlib.closing(channel), translated("add the switch"):
        return timed(lambda: stub.AddSwitch(request))


def remove_switch(controller: str, name: str) -> float:
    """Remove a switch. Return how long it took."""
    channel, stub = connect(controller)
    with contextlib.closing(channel), translated("remove the switch"):
        return timed(lambda: stub.RemoveSwitch(pb.RemoveSwitchRequest(name=name)))


def timed(call: Callable[[], object]) -> float:
    """Return how many seconds a call takes."""
    began = time.monotonic()
    call()
    return time.monotonic() - began


def all_going(workers: Fleet, count: int) -> None:
    """Wait until all workers have an open stream and a term. Raises InnetError."""
    until = time.monotonic() + _WITHIN
    while workers.going < count:
        if time.monotonic() > until:
            raise InnetError(f"only {workers.going} of {count} workers go on after {_WITHIN:g} s")
        _PAUSE.wait(_LOOK_EVERY)


def share(controller: Controller, seconds: float) -> float:
    """Return the share of a core that the controller uses in the next seconds."""
    began, before = time.monotonic(), controller.seconds
    _PAUSE.wait(seconds)
    return (controller.seconds - before) / (time.monotonic() - began)


def shares(
    controller: Controller, workers: Fleet, seconds: float, rounds: int
) -> tuple[float, float]:
    """Return the medians of the controller's share of a core with and without heartbeats."""
    found: dict[bool, list[float]] = {True: [], False: []}
    for _ in track(range(rounds), "heartbeats", transient=True):
        for beating in (True, False):
            workers.beat(beating=beating)
            _PAUSE.wait(_LONGEST_PERIOD if beating else 1.0)  # until all beat again
            found[beating].append(share(controller, seconds))
    workers.beat(beating=True)
    return statistics.median(found[True]), statistics.median(found[False])


def measured(count: int, processes: int, seconds: float, rounds: int) -> Figures:
    """Return the figures with so many workers."""
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(scratch_folder())
        tor, links = stack.enter_context(switch(processes))
        other, _ = stack.enter_context(switch(1))
        controller = Controller(folder)
        stack.callback(controller.close)
        address = controller.address
        add_switch(address, "tor", tor, processes)
        jobs = create_jobs(address, count)
        memory_before, threads_before = controller.memory, controller.threads
        workers = stack.enter_context(fleet(address, seats(jobs, MOST_CONTRIBUTORS), links))
        joined = timed(lambda: all_going(workers, count))
        beating, quiet = shares(controller, workers, seconds, rounds)
        memory, threads = controller.memory, controller.threads
        added = add_switch(address, "other", other, 1)
        removed = remove_switch(address, "other")
        terms = workers.terms
        began = time.monotonic()
        controller.kill()
        workers.all_stopped()
        controller.start()
        restarted = time.monotonic() - began
        all_going(workers, count)
        return Figures(
            workers=count,
            join=joined,
            memory_before=memory_before,
            memory=memory,
            threads_before=threads_before,
            threads=threads,
            heartbeats=beating - quiet,
            idle=beating,
            add_switch=added,
            remove_switch=removed,
            recovery=time.monotonic() - began,
            restart=restarted,
            new_terms=workers.terms - terms,
        )


def main(
    workers: Annotated[
        str, typer.Option(help="Numbers of workers, multiples of 32, separated by commas.")
    ] = "1024,4096",
    processes: Annotated[int, typer.Option(help="Processes that the workers are spread over.")] = 4,
    seconds: Annotated[
        float, typer.Option(help="Seconds of one measurement of heartbeats.")
    ] = 10.0,
    rounds: Annotated[int, typer.Option(help="Measurements with and without heartbeats.")] = 3,
    output: Json = None,
) -> None:
    """Measure the controller with thousands of workers."""
    found = [measured(int(each), processes, seconds, rounds) for each in workers.split(",")]
    table = Table("", *(str(each.workers) for each in found))
    for name in list(asdict(found[0]))[1:]:
        table.add_row(name, *(f"{getattr(each, name):.3g}" for each in found))
    Console().print(table)
    if output:
        facts = {"cores": os.cpu_count(), "python": platform.python_version()}
        output.write_text(json.dumps({**facts, "figures": [*map(asdict, found)]}, indent=1))


if __name__ == "__main__":
    typer.run(main)
