"""All-reduce through a switch on this machine and over Gloo, in the same processes, size by size.

No root is needed::

    python -m benchmarks.loopback

Workers, switch and controller are processes of one machine, joined by cables in shared memory, or
made of UDP with ``--udp``. Gloo uses the loopback interface. Rounds of the two alternate, so other
changes on the machine affect both alike. The table has medians of the slowest worker. ``--profile``
shows afterwards where the agent of rank 0 spends its time in the largest all-reduce.
"""

import cProfile
import json
import os
import platform
import pstats
import statistics
import sys
import time
from pathlib import Path
from typing import Annotated

import torch
import torch.distributed as dist
import typer
from rich.console import Console
from rich.table import Table

import innet.torch  # noqa: F401 - makes the backend known
from innet.host.agent import Agent
from innet.local.rack import local_rack
from innet.local.workers import spawned_workers

SIZES = [4 << 2 * power for power in range(13)]  # bytes, to 64 MiB
LARGE = 16 << 20
FEWEST_ROUNDS, MOST_ROUNDS = 5, 50
WARM_UP = 2
LINES = 16


def main(
    workers: Annotated[int, typer.Option(min=2, max=32, help="Worker processes.")] = 4,
    lanes: Annotated[int, typer.Option(help="Integers per packet: 64 or 256.")] = 256,
    slots: Annotated[int, typer.Option(help="Chunks under way at once.")] = 128,
    largest: Annotated[int, typer.Option(help="MiB of the largest all-reduce.")] = 64,
    udp: Annotated[bool, typer.Option("--udp", help="Cables made of UDP.")] = False,
    profile: Annotated[
        bool, typer.Option("--profile", help="Where 16 MiB spend their time.")
    ] = False,
    output: Annotated[Path | None, typer.Option(help="Write all times to this JSON file.")] = None,
) -> None:
    """Run the benchmark and print the table."""
    console = Console()
    sizes = [size for size in SIZES if size <= largest << 20]
    command = [sys.executable, "-m", "benchmarks.loopback", "work", json.dumps(sizes)]
    command += ["--profile"] if profile else []
    with (
        local_rack(workers, lanes, slots, udp=udp) as rack,
        spawned_workers(command, workers, rack.environment) as processes,
    ):
        said, problem = processes[0].communicate()
    if processes[0].returncode:
        raise SystemExit(f"rank 0 has failed:\n{problem}")
    times = json.loads(said.splitlines()[0])
    cores = os.cpu_count()
    cables = "UDP" if udp else "shared memory"
    title = f"{workers} workers, {cables}, {lanes} lanes, {slots} slots, {cores} cores, medians"
    table = Table("bytes", "innet, ms", "Gloo, ms", "innet / Gloo", title=title)
    for size, (ours, gloos) in times.items():
        mine, theirs = (1e3 * statistics.median(each) for each in (ours, gloos))
        table.add_row(f"{int(size):,}", f"{mine:.2f}", f"{theirs:.2f}", f"{mine / theirs:.2f}")
    console.print(table)
    for line in said.splitlines()[1:]:
        console.print(line, highlight=False)
    if output:
        machine = {"platform": platform.platform(), "cores": cores, "torch": torch.__version__}
        facts = {"workers": workers, "lanes": lanes, "slots": slots, **machine}
        output.write_text(json.dumps({**facts, "seconds": times}, indent=1))


def work(sizes: str, *, profile: bool = False) -> None:
    """Run one worker. Rank 0 prints the slowest worker's times as JSON, and the profile if wanted."""
    profiler = cProfile.Profile()
    if profile and os.environ["RANK"] == "0":
        serve = Agent._serve  # noqa: SLF001 - a thread's profiler has to be started in it
        Agent._serve = lambda agent: profiler.runcall(serve, agent)  # type: ignore[method-assign] # noqa: SLF001
    torch.set_num_threads(1)
    dist.init_process_group("innet")
    gloo = dist.new_group(backend="gloo")
    times = {}
    for size in json.loads(sizes):
        tensor = torch.randn(size // 4)
        rounds = max(FEWEST_ROUNDS, min(MOST_ROUNDS, (128 << 20) // size))
        ways = None, gloo
        taken = torch.tensor(
            [[timed(tensor, group) for group in ways] for _ in range(WARM_UP + rounds)]
        )
        dist.all_reduce(taken, dist.ReduceOp.MAX, group=gloo)
        times[size] = taken[WARM_UP:].T.tolist()
    if dist.get_rank() == 0:
        sys.stdout.write(json.dumps(times) + "\n")
    profiler.clear()
    for _ in range(FEWEST_ROUNDS if profile else 0):
        timed(torch.ones(LARGE // 4), None)
    first = dist.get_rank() == 0
    dist.destroy_process_group()
    if profile and first:
        statistics_of = pstats.Stats(profiler, stream=sys.stdout)
        statistics_of.sort_stats("tottime").print_stats(LINES)


def timed(tensor: torch.Tensor, group: dist.ProcessGroup | None) -> float:
    """Return the seconds of an all-reduce that all workers begin at once."""
    values = tensor.clone()
    dist.barrier()
    started = time.perf_counter()
    dist.all_reduce(values, group=group)
    return time.perf_counter() - started


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(sys.argv[2], profile="--profile" in sys.argv)
    else:
        typer.run(main)
