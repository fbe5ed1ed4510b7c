"""The program of a host in :mod:`benchmarks.sharded`: the same collectives over innet and over Gloo.

Every case has the groups of one backend. A case's time is that of each step on this host, with a barrier
over Gloo before each. The processor time is that of all threads of the process. Counters are those of the
kernel, for this host's link.
"""

import json
import os
import statistics
import sys
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist

from benchmarks.emulated.links import own_counters
from innet.machine.environment import PRIVATE_KEY_FILE

KEY = "key"
"""The name of the file with the key of private sums, in the folder of the run."""

Work = Any  # of PyTorch, which does not declare it
Step = Callable[[], Sequence[Work]]


@dataclass(frozen=True)
class Case:
    """A case: `steps` calls named `what`, of `nbytes` of float32 in the whole vector.

    `over` is "Gloo", "innet QUANTIZER" or "innet QUANTIZER private". With `narrow`, moves carry
    bfloat16 with as many elements.
    """

    what: str
    over: str
    nbytes: int
    steps: int
    narrow: bool = False


def main(folder: Path) -> None:
    """Run the cases in the folder, and write the results there."""
    cases = [Case(**each) for each in json.loads((folder / "task.json").read_text())["cases"]]
    torch.set_num_threads(1)
    warnings.simplefilter("ignore", FutureWarning)  # of PyTorch, which renames these collectives
    # innet first: its workers' hellos tell the switch every host's port, so that nothing is flooded.
    os.environ["INNET_SLOTS"] = "128"
    if os.environ["RANK"] == "0":
        (folder / KEY).touch(0o600)
        (folder / KEY).write_bytes(os.urandom(32))
    dist.init_process_group("innet")
    groups: dict[str, Any] = {"Gloo": dist.new_group(backend="gloo")}
    for over in dict.fromkeys(case.over for case in cases):  # in the same order everywhere
        if over != "Gloo":
            _, os.environ["INNET_QUANTIZER"], *private = over.split()
            os.environ[PRIVATE_KEY_FILE] = str(folder / KEY) if private else ""
            groups[over] = dist.new_group(backend="innet")
    noted = [_run(case, groups[case.over], groups["Gloo"]) for case in cases]
    rank = dist.get_rank()
    dist.barrier(groups["Gloo"])
    dist.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(noted))


def _run(case: Case, group: Any, gloo: Any) -> dict[str, Any]:
    step, check = _prepared(case, group)
    _finish(step())  # opens connections and sets windows
    check()
    dist.barrier(gloo)
    seconds, busy, crossed = [], [], []
    for _ in range(case.steps):
        dist.barrier(gloo)
        before, began, used = counters(), time.monotonic(), time.process_time()
        _finish(step())
        seconds.append(time.monotonic() - began)
        busy.append(time.process_time() - used)
        dist.barrier(gloo)
        crossed.append(_difference(before))
    check()
    if dist.get_rank() == 0:
        sys.stdout.write(f"{case.what}, {case.over}: {1e3 * statistics.median(seconds):.2f} ms\n")
        sys.stdout.flush()
    by_counter = list(zip(*crossed, strict=True))
    return {
        "seconds": seconds,
        "processor_s": statistics.median(busy),
        "counters": [statistics.mean(each) for each in by_counter],
        "least": [min(each) for each in by_counter],
    }


def _prepared(case: Case, group: Any) -> tuple[Step, Callable[[], None]]:
    """Return the calls of a step, and a check of their results."""
    rank, workers = dist.get_rank(), dist.get_world_size()
    shard = max(1, case.nbytes // 4 // workers)
    generator = torch.Generator().manual_seed(7)
    common = torch.rand(shard * workers, generator=generator) - 0.5
    narrow = torch.bfloat16 if case.narrow else torch.float32
    vector, part = common * (rank + 1), torch.empty(shard)
    own = (common[rank * shard :][:shard] * 3).to(narrow)
    whole = torch.empty(shard * workers, dtype=narrow)
    rooted, summed = torch.empty_like(vector), torch.empty_like(vector)
    scalar, moved = torch.ones(1), torch.empty(shard * workers, dtype=narrow)

    def reduce_scatter() -> Work:
        return dist.reduce_scatter_tensor(part, vector, group=group, async_op=True)

    def all_gather() -> Work:
        return dist.all_gather_into_tensor(whole, own, group=group, async_op=True)

    def broadcast() -> Work:
        if rank == 0:
            moved.copy_(common)
        return dist.broadcast(moved, 0, group=group, async_op=True)

    def all_reduce() -> Work:
        scalar.fill_(1)
        return dist.all_reduce(scalar, group=group)  # waits, as most callers of small ones do

    def check() -> None:
        total = common * (workers * (workers + 1) / 2)
        expected = total[rank * shard :][:shard]
        bound = 1e-5 if "int32" in case.over or case.over == "Gloo" else 2e-2
        largest = bound * workers * (workers + 1)
        right = {
            "reduce-scatter": lambda: bool((part - expected).abs().max() <= largest),
            "reduce": lambda: rank != 0 or bool((rooted - total).abs().max() <= largest),
            "all-reduce": lambda: bool((summed - total).abs().max() <= largest),
            "all-gather": lambda: torch.equal(whole, (common * 3).to(narrow)),
            "broadcast": lambda: torch.equal(moved, common.to(narrow)),
            "4-byte all-reduce": lambda: scalar.item() == workers,
        }
        for what, holds in right.items():
            if what in calls and not holds():
                raise SystemExit(f"{case.what} over {case.over}: wrong result")

    every: Mapping[str, Callable[[], Work]] = {
        "reduce-scatter": reduce_scatter,
        "all-gather": all_gather,
        "broadcast": broadcast,
        "reduce": lambda: dist.reduce(rooted.copy_(vector), 0, group=group, async_op=True),
        "all-reduce": lambda: dist.all_reduce(summed.copy_(vector), group=group, async_op=True),
        "4-byte all-reduce": all_reduce,
        "barrier": lambda: dist.barrier(group),
    }
    calls = case.what.split(" and ")
    return lambda: [every[call]() for call in calls], check


def _finish(works: Sequence[Work]) -> None:
    for work in works:
        if work:  # None if the call has waited
            work.wait()


def counters() -> tuple[int, ...]:
    """Return the bytes sent and received, and the packets sent and received, on this host's link."""
    found = own_counters()
    return found.up_bytes, found.down_bytes, found.up_frames, found.down_frames


def _difference(before: Sequence[int]) -> list[int]:
    return [late - early for late, early in zip(counters(), before, strict=True)]


if __name__ == "__main__":
    main(Path(sys.argv[1]))
