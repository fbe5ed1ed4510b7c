"""The program of a host in :mod:`benchmarks.per_host`: several ranks, and all-reduces of all of them.

Each case has a group of its own, in the same processes. A case's time is that of each step on this
host's slowest rank. The steps of a case follow each other between two barriers, so that the kernel's
counters show the case alone.
"""

import hashlib
import json
import multiprocessing
import os
import statistics
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.emulated.links import own_link
from innet.machine import environment

GLOO, ALONE, TOGETHER = "Gloo", "every rank for itself", "one contribution per host"


@dataclass(frozen=True)
class Case:
    """A case: `steps` all-reduces of `nbytes` of float32 `over` a group of `ranks` ranks per host."""

    over: str
    nbytes: int
    steps: int
    ranks: int


def main(folder: Path) -> None:
    """Run this host's ranks, and gather their results in the folder."""
    task = json.loads((folder / "task.json").read_text())
    cases = [Case(**each) for each in task["cases"]]
    host, ranks = int(os.environ["RANK"]), cases[0].ranks
    torch.set_num_threads(1)
    forking = multiprocessing.get_context("fork")  # the ranks share the memory of PyTorch's code
    running = [forking.Process(target=_rank, args=(folder, host, n, cases)) for n in range(ranks)]
    for process in running:
        process.start()
    for process in running:
        process.join()
    if any(process.exitcode for process in running):
        raise SystemExit(f"host {host}: a rank has failed")
    own = [json.loads((folder / f"{host}-{n}.json").read_text()) for n in range(ranks)]
    noted = [_of_host(each) for each in zip(*own, strict=True)]
    (folder / f"{host}.json").write_text(json.dumps(noted))


def _of_host(ranks: tuple[dict[str, Any], ...]) -> dict[str, Any]:
    """Return a case's results on this host, given those of its ranks."""
    seconds = [max(each) for each in zip(*(rank["seconds"] for rank in ranks), strict=True)]
    return {**ranks[0], "seconds": seconds, "digests": [rank["digest"] for rank in ranks]}


def _rank(folder: Path, host: int, local_rank: int, cases: list[Case]) -> None:
    ranks = cases[0].ranks
    os.environ |= {
        "RANK": str(host * ranks + local_rank),
        "LOCAL_RANK": str(local_rank),
        "WORLD_SIZE": str(int(os.environ["WORLD_SIZE"]) * ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        environment.JOB: "",  # which has a worker for each host
        "INNET_SLOTS": "256",
    }
    # innet first: its workers' hellos tell the switch every host's port, so that nothing is flooded.
    groups = {}
    dist.init_process_group("innet")
    for over in {case.over: None for case in cases}:
        os.environ[environment.LOCAL_SUM] = str(int(over == TOGETHER))
        groups[over] = dist.new_group(backend="gloo" if over == GLOO else "innet")
    noted = [_run(case, groups[case.over]) for case in cases]
    (folder / f"{host}-{local_rank}.json").write_text(json.dumps(noted))
    dist.barrier()
    dist.destroy_process_group()


def _run(case: Case, group: Any) -> dict[str, Any]:
    generator = torch.Generator().manual_seed(dist.get_rank())
    own = torch.rand(case.nbytes // 4, generator=generator) - 0.5
    result = own.clone()
    dist.all_reduce(result, dist.ReduceOp.SUM, group)  # opens connections and sets windows
    seconds = []
    dist.barrier()
    before = own_link()
    dist.barrier()
    for _ in range(case.steps):
        result.copy_(own)
        began = time.monotonic()
        dist.all_reduce(result, dist.ReduceOp.SUM, group)
        seconds.append(time.monotonic() - began)
    dist.barrier()
    crossed = [late - early for late, early in zip(own_link(), before, strict=True)]
    if dist.get_rank() == 0:
        sys.stdout.write(f"{case.over}: {1e3 * statistics.median(seconds):.0f} ms\n")
        sys.stdout.flush()
    return {
        "seconds": seconds,
        "bytes": [each / case.steps for each in crossed],
        "digest": hashlib.sha256(result.numpy().tobytes()).hexdigest(),
    }


if __name__ == "__main__":
    main(Path(sys.argv[1]))
