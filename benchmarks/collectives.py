"""A collective over every transport of one machine, size by size, in the manner of nccl-tests.

No root is needed::

    python -m benchmarks.collectives
    python -m benchmarks.collectives --collective all-gather

Workers, switches and controllers are processes of one machine. Each transport is a process group of
PyTorch's. The all-reduces are ``torch.distributed.all_reduce`` in place, as DistributedDataParallel
makes them. The other collectives are those of FSDP2, and broadcasts from rank 0. Their size is that of
the whole tensor, which an all-gather gathers and a reduce-scatter reduces.

``node``, ``shm`` and ``udp`` are groups of the backend innet. In ``node`` the ranks sum in
their node's memory, without a switch, as they do by default. The other two lead through an innet-switch,
over cables in shared memory and over cables made of UDP. The first of these is what ``innet rack``
gives. ``gloo`` uses the loopback interface. The transports take turns in the same processes, in an order
that changes, so other changes on the machine affect all alike.

Before and after each collective comes a barrier of the same group, as if the job had no other transport.
Gloo's threads are busy for a while after a barrier. If all transports had Gloo's barrier, these threads
would take processor time from the others. A time includes the wait for the rank that leaves the barrier
last.

A time is that of the slowest worker. As in nccl-tests, ``algbw`` is the size divided by the median
time, and ``busbw`` is algbw times the share of the vector that a ring's link carries, which is
2 (n - 1) / n for an all-reduce of n workers. ``CPU`` is the processor time of all workers and of the
switch, for the collective and the barrier after it. It depends less on other programs than the time
does. ``wrong`` counts the elements of an int32 result that differ from numpy's.
"""

import collections
import contextlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import torch.distributed as dist
import typer
from rich.console import Console
from rich.table import Table

from benchmarks.ranks import for_own_job, found_by_ranks
from innet.errors import UsageError
from innet.host.integers import Integers
from innet.local.rack import Rack, local_rack
from innet.machine.environment import LOCAL_SUM
from innet.terminal.app import run

SIZES = [4 << 2 * power for power in range(13)]  # bytes, to 64 MiB
FEWEST_ROUNDS, MOST_ROUNDS = 5, 100
BYTES_PER_SIZE = 128 << 20
WARM_UP = 2
GLOO, NODE, SHARED, UDP = "gloo", "node", "shm", "udp"
TRANSPORTS = NODE, SHARED, UDP, GLOO

Times = dict[str, dict[str, Any]]


class Collective(StrEnum):
    """A collective whose result, or whose contribution, is a whole tensor."""

    ALL_REDUCE = "all-reduce"
    ALL_GATHER = "all-gather"
    REDUCE_SCATTER = "reduce-scatter"
    BROADCAST = "broadcast"

    def call(self, whole: torch.Tensor, part: torch.Tensor, group: dist.ProcessGroup) -> None:
        """Carry it out, between a whole tensor and this worker's part of one, or in the whole tensor."""
        match self:
            case Collective.ALL_REDUCE:
                dist.all_reduce(whole, group=group)
            case Collective.ALL_GATHER:
                dist.all_gather_into_tensor(whole, part, group=group)
            case Collective.REDUCE_SCATTER:
                dist.reduce_scatter_tensor(part, whole, group=group)
            case Collective.BROADCAST:
                dist.broadcast(whole, 0, group=group)

    def bus_share(self, workers: int) -> float:
        """Return the share of the whole tensor that each link of a ring carries."""
        shares = {Collective.ALL_REDUCE: 2 * (workers - 1) / workers, Collective.BROADCAST: 1.0}
        return shares.get(self, (workers - 1) / workers)

    def expected(
        self, wholes: Sequence[Integers], parts: Sequence[Integers], rank: int
    ) -> tuple[Integers, Integers]:
        """Return numpy's whole tensor and part on a rank, given those of all ranks before the call."""
        whole, part = wholes[rank], parts[rank]
        match self:
            case Collective.ALL_REDUCE:
                whole = np.sum(wholes, axis=0, dtype=np.int32)
            case Collective.ALL_GATHER:
                whole = np.concatenate(parts)
            case Collective.REDUCE_SCATTER:
                part = np.split(np.sum(wholes, axis=0, dtype=np.int32), len(parts))[rank]
            case Collective.BROADCAST:
                whole = wholes[0]
        return whole, part


_IN_PLACE = (Collective.ALL_REDUCE, Collective.BROADCAST)

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def main(
    collective: Annotated[Collective, typer.Option(help="The collective.")] = Collective.ALL_REDUCE,
    workers: Annotated[int, typer.Option(min=2, max=32, help="Worker processes.")] = 4,
    lanes: Annotated[int, typer.Option(help="Integers per packet: 64, 256 or 1024.")] = 1024,
    slots: Annotated[int, typer.Option(help="Chunks under way at once.")] = 128,
    cores: Annotated[
        int | None, typer.Option(help="Cores of a switch; by default as innet rack.")
    ] = None,
    largest: Annotated[int, typer.Option(help="MiB of the largest tensor.")] = 64,
    transports: Annotated[str, typer.Option(help="Transports, separated by commas.")] = ",".join(
        TRANSPORTS
    ),
    plot: Annotated[Path | None, typer.Option(help="Draw the medians to this file.")] = None,
    output: Annotated[Path | None, typer.Option(help="Write all times to this JSON file.")] = None,
) -> None:
    """Run the benchmark and print the table."""
    names = transports.split(",")
    if unknown := set(names) - set(TRANSPORTS):
        raise UsageError(f"no transport {unknown.pop()!r}: there are {', '.join(TRANSPORTS)}")
    unit = 4 if collective in _IN_PLACE else 4 * workers  # bytes
    sizes = sorted({-(-size // unit) * unit for size in SIZES if size <= largest << 20})
    with contextlib.ExitStack() as stack:
        racks = {
            name: _described(
                stack.enter_context(local_rack(workers, lanes, 1, udp=name == UDP, cores=cores))
            )
            for name in names
            if name != GLOO
        }
        given = {
            "collective": collective, "sizes": sizes, "transports": names, "racks": racks, "slots": slots,
        }  # fmt: skip
        command = [sys.executable, "-m", "benchmarks.collectives", "work", json.dumps(given)]
        found = found_by_ranks(command, workers)
    facts = {
        "collective": collective, "workers": workers, "lanes": lanes, "slots": slots,
        "cores": os.cpu_count(), "platform": platform.platform(), "torch": torch.__version__,
    }  # fmt: skip
    title = f"{collective}, {workers} workers, {lanes} lanes, {slots} slots"
    Console().print(table(found, collective.bus_share(workers), title))
    if output:
        output.write_text(json.dumps({**facts, "sizes": found}, indent=1))
    if plot:
        draw(found, collective, plot)


def _described(rack: Rack) -> dict[str, Any]:
    """Return what a worker has to know of a rack. Its group creates a job of its own there."""
    return {"environment": for_own_job(rack), "switch": rack.switch.pid}


def table(found: Mapping[str, Times], bus_share: float, title: str) -> Table:
    """Return a table with a row for each size and transport."""
    shown = Table(
        "bytes", "transport", "min, ms", "median, ms", "p99, ms", "CPU, ms", "algbw, MB/s",
        "busbw, MB/s", "wrong", title=f"{title}, {os.cpu_count()} cores",
    )  # fmt: skip
    for size, times in found.items():
        for name, each in times.items():
            seconds = each["seconds"]
            median = statistics.median(seconds)
            algbw = int(size) / median / 1e6
            shown.add_row(
                f"{int(size):,}", name,
                *(f"{1e3 * it:.2f}" for it in (min(seconds), median, np.percentile(seconds, 99))),
                f"{1e3 * statistics.median(each['processor']):.2f}",
                f"{algbw:,.1f}", f"{algbw * bus_share:,.1f}",
                f"{each['wrong']:,}",
            )  # fmt: skip
        shown.add_section()
    return shown


def draw(found: Mapping[str, Times], collective: Collective, file: Path) -> None:
    """Draw the median time of each transport over the size."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    sizes = [int(size) for size in found]
    for name in next(iter(found.values())):
        medians = [1e3 * statistics.median(times[name]["seconds"]) for times in found.values()]
        axes.loglog(sizes, medians, marker="o", label=name)
    axes.set_xlabel("bytes")
    axes.set_ylabel(f"median time of one {collective}, ms")
    axes.legend()
    figure.tight_layout()
    figure.savefig(file)


def work(
    collective: str,
    sizes: list[int],
    transports: list[str],
    racks: Mapping[str, Mapping[str, Any]],
    slots: int,
) -> None:
    """Run one worker. Rank 0 prints the slowest worker's times as JSON."""
    torch.set_num_threads(1)
    chosen = Collective(collective)
    dist.init_process_group("gloo")
    found: dict[int, Times] = {}
    groups: dict[str, dist.ProcessGroup] = {}
    for name in transports:
        if name != GLOO:
            more = {"INNET_SLOTS": str(slots), LOCAL_SUM: str(int(name == NODE))}
            os.environ |= {**racks[name]["environment"], **more}
        groups[name] = dist.new_group(backend=GLOO if name == GLOO else "innet")
    for size in sizes:
        found[size] = {name: {"wrong": wrong(chosen, size, each)} for name, each in groups.items()}
        for name, taken in timed(
            chosen, size, groups, [racks[each]["switch"] for each in racks]
        ).items():
            found[size][name] |= taken
    if not dist.get_rank():
        sys.stdout.write(json.dumps(found))
    dist.destroy_process_group()


def timed(
    collective: Collective,
    size: int,
    groups: Mapping[str, dist.ProcessGroup],
    switches: Iterable[int],
) -> dict[str, dict[str, list[float]]]:
    """Return the slowest worker's seconds of some calls, for each transport.

    Also return the processor time of all workers and of the processes `switches`.
    """
    values = torch.randn(size // 4)
    part = torch.randn(max(1, len(values) // dist.get_world_size()))
    rounds = max(FEWEST_ROUNDS, min(MOST_ROUNDS, BYTES_PER_SIZE // size))
    taken = torch.zeros(WARM_UP + rounds, len(groups))
    processor = torch.zeros_like(taken)
    others = [] if dist.get_rank() else [*switches]  # they count once
    columns = collections.deque(enumerate(groups.values()))
    for number in range(len(taken)):
        for column, group in columns:
            tensor = values.clone()
            dist.barrier(group)
            spent, started = _processor_time(others), time.perf_counter()
            collective.call(tensor, part, group)
            taken[number, column] = time.perf_counter() - started
            dist.barrier(group)
            processor[number, column] = _processor_time(others) - spent
        columns.rotate()  # a transport's time also depends on the one before
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    dist.all_reduce(processor)
    return {
        name: {"seconds": seconds, "processor": spent}
        for name, seconds, spent in zip(
            groups, taken[WARM_UP:].T.tolist(), processor[WARM_UP:].T.tolist(), strict=True
        )
    }


def _processor_time(others: Iterable[int]) -> float:
    """Return the seconds of processor time of this process and others, by their ids."""
    tasks = (task for each in others for task in Path(f"/proc/{each}/task").iterdir())
    return time.process_time() + sum(
        1e-9 * int((task / "schedstat").read_text().split()[0]) for task in tasks
    )


def wrong(collective: Collective, size: int, group: dist.ProcessGroup) -> int:
    """Return how many elements of an int32 result differ from numpy's, over all workers."""
    rank, workers, count = dist.get_rank(), dist.get_world_size(), size // 4
    drawn = [
        np.random.default_rng([size, each]).integers(-(1 << 20), 1 << 20, 2 * count, np.int32)
        for each in range(workers)
    ]
    wholes = [each[:count] for each in drawn]
    parts = [each[count : count + max(1, count // workers)] for each in drawn]
    expected = collective.expected(wholes, parts, rank)
    whole, part = wholes[rank].copy(), parts[rank].copy()
    collective.call(torch.from_numpy(whole), torch.from_numpy(part), group)
    differing = torch.tensor(
        np.count_nonzero(whole != expected[0]) + np.count_nonzero(part != expected[1])
    )
    dist.all_reduce(differing)
    return int(differing)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(**json.loads(sys.argv[2]))
    else:
        run(app)
