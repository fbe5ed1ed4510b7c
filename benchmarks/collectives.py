"""All-reduce over every transport of one machine, size by size, in the manner of nccl-tests.

No root is needed::

    python -m benchmarks.collectives

Workers, switches and controllers are processes of one machine. Each transport is a process group of
PyTorch's, and the all-reduces are ``torch.distributed.all_reduce`` in place, as DistributedDataParallel
makes them. ``node``, ``shm`` and ``udp`` are groups of the backend innet. In ``node`` the ranks sum in
their node's memory, without a switch, as they do by default. The other two lead through an innet-switch,
over cables in shared memory and over cables made of UDP. The first of these is what ``innet rack``
gives. ``gloo`` uses the loopback interface. The transports take turns in the same processes, in an order
that changes, so other changes on the machine affect all alike.

Before and after each all-reduce comes a barrier of the same group, as if the job had no other transport.
Gloo's threads are busy for a while after a barrier. If all transports had Gloo's barrier, these threads
would take processor time from the others.

A time is that of the slowest worker. As in nccl-tests, ``algbw`` is the size divided by the median
time, and ``busbw`` is algbw times 2 (n - 1) / n for n workers. ``CPU`` is the processor time of all
workers and of the switch, for the all-reduce and the barrier after it. It depends less on other programs
than the time does. ``wrong`` counts the elements of an int32 sum that differ from numpy's.
"""

import collections
import contextlib
import json
import os
import platform
import statistics
import sys
import time
from collections.abc import Iterable, Mapping
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

app = typer.Typer(pretty_exceptions_enable=False)


@app.command()
def main(
    workers: Annotated[int, typer.Option(min=2, max=32, help="Worker processes.")] = 4,
    lanes: Annotated[int, typer.Option(help="Integers per packet: 64, 256 or 1024.")] = 1024,
    slots: Annotated[int, typer.Option(help="Chunks under way at once.")] = 128,
    cores: Annotated[
        int | None, typer.Option(help="Cores of a switch; by default as innet rack.")
    ] = None,
    largest: Annotated[int, typer.Option(help="MiB of the largest all-reduce.")] = 64,
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
    sizes = [size for size in SIZES if size <= largest << 20]
    with contextlib.ExitStack() as stack:
        racks = {
            name: _described(
                stack.enter_context(local_rack(workers, lanes, 1, udp=name == UDP, cores=cores))
            )
            for name in names
            if name != GLOO
        }
        given = json.dumps({"sizes": sizes, "transports": names, "racks": racks, "slots": slots})
        command = [sys.executable, "-m", "benchmarks.collectives", "work", given]
        found = found_by_ranks(command, workers)
    facts = {
        "workers": workers, "lanes": lanes, "slots": slots, "cores": os.cpu_count(),
        "platform": platform.platform(), "torch": torch.__version__,
    }  # fmt: skip
    Console().print(table(found, workers, f"{workers} workers, {lanes} lanes, {slots} slots"))
    if output:
        output.write_text(json.dumps({**facts, "sizes": found}, indent=1))
    if plot:
        draw(found, plot)


def _described(rack: Rack) -> dict[str, Any]:
    """Return what a worker has to know of a rack. Its group creates a job of its own there."""
    return {"environment": for_own_job(rack), "switch": rack.switch.pid}


def table(found: Mapping[str, Times], workers: int, title: str) -> Table:
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
                f"{algbw:,.1f}", f"{algbw * 2 * (workers - 1) / workers:,.1f}",
                f"{each['wrong']:,}",
            )  # fmt: skip
        shown.add_section()
    return shown


def draw(found: Mapping[str, Times], file: Path) -> None:
    """Draw the median time of each transport over the size."""
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(7, 4.5))
    sizes = [int(size) for size in found]
    for name in next(iter(found.values())):
        medians = [1e3 * statistics.median(times[name]["seconds"]) for times in found.values()]
        axes.loglog(sizes, medians, marker="o", label=name)
    axes.set_xlabel("bytes")
    axes.set_ylabel("median time of an all-reduce, ms")
    axes.legend()
    figure.tight_layout()
    figure.savefig(file)


def work(
    sizes: list[int], transports: list[str], racks: Mapping[str, Mapping[str, Any]], slots: int
) -> None:
    """Run one worker. Rank 0 prints the slowest worker's times as JSON."""
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    found: dict[int, Times] = {}
    groups: dict[str, dist.ProcessGroup] = {}
    for name in transports:
        if name != GLOO:
            more = {"INNET_SLOTS": str(slots), LOCAL_SUM: str(int(name == NODE))}
            os.environ |= {**racks[name]["environment"], **more}
        groups[name] = dist.new_group(backend=GLOO if name == GLOO else "innet")
    for size in sizes:
        found[size] = {name: {"wrong": wrong(size, each)} for name, each in groups.items()}
        for name, taken in timed(size, groups, [racks[each]["switch"] for each in racks]).items():
            found[size][name] |= taken
    if not dist.get_rank():
        sys.stdout.write(json.dumps(found))
    dist.destroy_process_group()


def timed(
    size: int, groups: Mapping[str, dist.ProcessGroup], switches: Iterable[int]
) -> dict[str, dict[str, list[float]]]:
    """Return the slowest worker's seconds of some all-reduces, for each transport.

    Also return the processor time of all workers and of the processes `switches`.
    """
    values = torch.randn(size // 4)
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
            dist.all_reduce(tensor, group=group)
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


def wrong(size: int, group: dist.ProcessGroup) -> int:
    """Return how many elements of an int32 sum differ from numpy's, over all workers."""
    given = [
        np.random.default_rng([size, rank]).integers(-(1 << 20), 1 << 20, size // 4, np.int32)
        for rank in range(dist.get_world_size())
    ]
    result = given[dist.get_rank()].copy()
    dist.all_reduce(torch.from_numpy(result), group=group)
    differing = torch.tensor(np.count_nonzero(result != np.sum(given, axis=0, dtype=np.int32)))
    dist.all_reduce(differing)
    return int(differing)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(**json.loads(sys.argv[2]))
    else:
        run(app)
