"""An all-reduce beside TCP: the shares of a worker's link, in network namespaces.

Run as root::

    python -m benchmarks.coexistence

Two workers sum over innet-switch. The link of the first has a bounded rate in both directions. The
queue at either end drops packets that find no room. Two TCP flows share this link with the
all-reduce, up from the worker or down to it. A share is the bytes of useful frames, divided by the
bytes that the link could carry. Useful are the frames of contributions with a result, and those of
TCP's data, with all headers. Every sum is checked. The table has medians of several rounds. The
first half of a round is not counted, because TCP and the agent then look for their shares.
"""

import contextlib
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from benchmarks.options import Json
from benchmarks.programs import Program, running
from innet.errors import UsageError
from innet.local.ports import port_options
from innet.local.processes import command, serving
from innet.machine.scratch import scratch_folder
from topologies import namespaces

TCP = {"cubic": ("cubic", 0), "cubic with ECN": ("cubic", 1), "bbr": ("bbr", 0)}
"""The kinds of TCP: the congestion control and whether it asks for ECN."""

DIRECTIONS = ("up", "down")
FIRST, FAR = "10.0.0.1", "10.0.0.3"
_SEGMENT, _TCP_FRAME = 1448, 1514  # bytes of data in a full frame, and of the frame
_BURST = 15_000


@dataclass(frozen=True)
class Case:
    """The traffic of a case: `flows` TCP flows of a kind in one direction, and an all-reduce or none."""

    tcp: str
    direction: str
    flows: int = 2


@dataclass(frozen=True)
class Outcome:
    """The shares of the link in one round. `repeated` is retransmissions per chunk."""

    case: Case
    innet: float
    tcp: float
    repeated: float
    sums: int
    wrong: int


@contextlib.contextmanager
def rack(mbits: float, queue: int, lanes: int, slots: int) -> Iterator[tuple[namespaces.Rack, str]]:
    """Yield a rack with a controller and a job over two workers, and the job's token."""
    with contextlib.ExitStack() as stack:
        made = stack.enter_context(namespaces.rack(3))
        for namespace, interface in (made.workers[0], "eth0"), (made.switch, "eth1"):
            cap = f"tc qdisc add dev {interface} root tbf rate {mbits}mbit burst {_BURST} limit {queue}"
            subprocess.run([*namespaces.inside(namespace), *cap.split()], check=True)
        folder = stack.enter_context(scratch_folder())
        p4runtime, far = f"unix:{folder}/p4runtime", namespaces.inside(made.workers[2])
        run_switch = [*command("innet.switch.cli"), "--no-p4", "--grpc-server-addr", p4runtime]
        run_switch += port_options(["eth1", "eth2", "eth3"])
        stack.enter_context(serving("P4Runtime", [*namespaces.inside(made.switch), *run_switch]))
        subprocess.run([*far, "ip", "link", "set", "lo", "up"], check=True)
        run = [*far, *command("innet.cli")]
        address = f"{FAR}:9600"
        stack.enter_context(
            serving("controller", [*run, "controller", "--insecure", "--address", address])
        )
        at = ["--controller", address]
        add = ["switch", "add", "tor", p4runtime, "--ports", "1-3", "--lanes", str(lanes), *at]
        create = f"job create job --switch tor --workers 2 --slots {slots}".split()
        subprocess.run([*run, *add], check=True, capture_output=True)
        done = subprocess.run([*run, *create, "--json", *at], check=True, capture_output=True)
        yield made, json.loads(done.stdout)["token"]


@contextlib.contextmanager
def traffic(
    made: namespaces.Rack, token: str, case: Case, elements: int = 1_000_000
) -> Iterator[list[Program]]:
    """Run the all-reduce and TCP at the same time. Yields the first worker, and TCP's receiver."""
    kind, ecn = TCP[case.tcp]
    first, _, far = made.workers
    sender, sink, ip = (first, far, FAR) if case.direction == "up" else (far, first, FIRST)
    for namespace in sender, sink:
        setting = ["sysctl", "-qw", f"net.ipv4.tcp_ecn={ecn}"]
        subprocess.run([*namespaces.inside(namespace), *setting], check=True)
    with contextlib.ExitStack() as stack:
        workers = [
            stack.enter_context(
                _program(made.workers[rank], ["worker", token, str(rank), str(elements)])
            )
            for rank in range(2)
        ]
        workers[0].ask()  # it has joined
        programs = [workers[0]]
        if case.flows:
            taking = stack.enter_context(_program(sink, ["sink", str(case.flows)]))
            taking.ask()  # it listens
            stack.enter_context(_program(sender, ["sender", ip, str(case.flows), kind]))
            programs.append(taking)
        yield programs


def measure(made: namespaces.Rack, token: str, case: Case, mbits: float, seconds: float) -> Outcome:
    """Run a case for `seconds`, and count in the second half."""
    with traffic(made, token, case) as programs:
        time.sleep(seconds / 2)
        before = [each.ask() for each in programs]
        time.sleep(seconds / 2)
        after = [each.ask() for each in programs]
    rates = [
        (late["bytes"] - early["bytes"]) * 8 / (late["time"] - early["time"]) / (mbits * 1e6)
        for early, late in zip(before, after, strict=True)
    ]
    late, early = after[0], before[0]
    chunks = late["chunks"] - early["chunks"]
    return Outcome(
        case, rates[0], rates[1] * _TCP_FRAME / _SEGMENT if case.flows else 0.0,
        (late["repeated"] - early["repeated"]) / max(1, chunks), late["sums"], late["wrong"],
    )  # fmt: skip


def _program(
    namespace: str, arguments: Sequence[str]
) -> contextlib.AbstractContextManager[Program]:
    """Run a program of :mod:`benchmarks.coexisting`, which answers each line with its counts."""
    program = [sys.executable, "-m", "benchmarks.coexisting", *arguments]
    return running([*namespaces.inside(namespace), *program])


def main(
    mbits: Annotated[float, typer.Option(help="Rate of the link each way, in Mbit/s.")] = 100.0,
    queue: Annotated[
        int, typer.Option(help="Bytes that may wait at either end of the link.")
    ] = 512_000,
    lanes: Annotated[int, typer.Option(help="Integers in a packet.")] = 256,
    slots: Annotated[int, typer.Option(help="Slots of the job.")] = 512,
    seconds: Annotated[
        float, typer.Option(help="Seconds of a round; the second half counts.")
    ] = 20.0,
    rounds: Annotated[int, typer.Option(help="Rounds of each case; the median is shown.")] = 3,
    only: Annotated[str, typer.Option(help="Measure only this kind of TCP.")] = "",
    output: Json = None,
) -> None:
    """Measure how an all-reduce and TCP share a worker's link."""
    if reason := namespaces.unavailable():
        raise UsageError(reason)
    console = Console()
    cases = [Case(kind, way) for kind in ([only] if only else TCP) for way in DIRECTIONS]
    alone = [] if only else [Case("cubic", "up", flows=0)]
    found: dict[Case, list[Outcome]] = {}
    todo = [case for _ in range(rounds) for case in (*alone, *cases)]
    for case in track(todo, "measuring", console=console, transient=True):
        with rack(mbits, queue, lanes, slots) as (made, token):
            found.setdefault(case, []).append(measure(made, token, case, mbits, seconds))
    table = Table(
        "TCP", "direction", "all-reduce", "TCP", "repeated per chunk", "sums", "wrong",
        title=f"2 workers, {mbits:g} Mbit/s, queues of {queue:,} bytes, {lanes} lanes, {slots} slots; "
        f"median of {rounds}; {platform.processor() or platform.machine()}, {os.cpu_count()} cores",
    )  # fmt: skip
    for case, rows in found.items():
        share, tcp, repeated = (
            statistics.median(getattr(each, name) for each in rows)
            for name in ("innet", "tcp", "repeated")
        )
        table.add_row(
            f"{case.flows} x {case.tcp}" if case.flows else "none", case.direction, f"{share:.0%}",
            f"{tcp:.0%}", f"{repeated:.3f}", str(sum(each.sums for each in rows)),
            str(sum(each.wrong for each in rows)),
        )  # fmt: skip
    console.print(table)
    if output:
        every = [asdict(each) for rows in found.values() for each in rows]
        output.write_text(json.dumps(every, indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
