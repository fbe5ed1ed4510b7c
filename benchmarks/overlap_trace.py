"""A picture of one training step: the backward pass, and the all-reduces that overlap with it.

Two ranks train with DistributedDataParallel over innet. PyTorch's profiler makes the trace of rank 0,
which this program reads::

    python -m benchmarks.overlap_trace --picture docs/overlap.png
"""

import json
import os
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import typer

from benchmarks.ranks import for_own_job, found_by_ranks
from innet.local.rack import local_rack
from innet.machine.environment import LOCAL_SUM

RANKS, LAYERS, WIDTH, BATCH = 2, 6, 512, 256
_BACKWARD = "autograd::engine::evaluate_function"
_TRACE = "OVERLAP_TRACE"


@dataclass(frozen=True)
class Span:
    """A part of the trace, in milliseconds since the begin of the step."""

    begin: float
    end: float


def train(trace: Path) -> None:
    """Train as one rank, and write the trace of its last step."""
    import torch
    import torch.distributed as dist
    from torch.nn.parallel import DistributedDataParallel

    dist.init_process_group("innet")
    torch.manual_seed(0)
    layers = [torch.nn.Linear(WIDTH, WIDTH) for _ in range(LAYERS)]
    model = DistributedDataParallel(torch.nn.Sequential(*layers), bucket_cap_mb=1)

    def step() -> None:
        model.zero_grad()
        model(torch.randn(BATCH, WIDTH)).square().mean().backward()

    for _ in range(3):
        step()
    dist.barrier()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        step()
    if dist.get_rank() == 0:
        profile.export_chrome_trace(str(trace))
    dist.destroy_process_group()
    if int(os.environ["RANK"]) == 0:
        sys.stdout.write("{}")


def spans(events: Sequence[dict[str, Any]], name: str) -> list[Span]:
    """Return the spans of all complete events whose names begin so, in the order of their begins."""
    timed = [each for each in events if each.get("ph") == "X"]
    first = min(each["ts"] for each in timed)
    found = [each for each in timed if each["name"].startswith(name)]
    made = [
        Span((each["ts"] - first) / 1e3, (each["ts"] + each["dur"] - first) / 1e3) for each in found
    ]
    return sorted(made, key=lambda span: span.begin)


def draw(backward: Sequence[Span], sums: Sequence[Span], picture: Path) -> None:
    """Draw the spans over time."""
    import matplotlib as mpl

    mpl.use("Agg")
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(figsize=(8, 0.9 + 0.3 * (1 + len(sums))))
    axes.broken_barh(
        [(each.begin, each.end - each.begin) for each in backward], (-0.4, 0.8), color="tab:blue"
    )
    for row, each in enumerate(sums, 1):
        axes.broken_barh(
            [(each.begin, each.end - each.begin)], (row - 0.4, 0.8), color="tab:orange"
        )
    names = ["backward pass", *(f"all-reduce {row}" for row in range(1, 1 + len(sums)))]
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set_xlabel("milliseconds since the begin of the step")
    figure.tight_layout()
    figure.savefig(picture, dpi=120)


def main(
    picture: Annotated[Path, typer.Option(help="Write the picture to this file.")] = Path(
        "overlap.png"
    ),
) -> None:
    """Trace a training step through a switch on this machine, and draw it."""
    with tempfile.TemporaryDirectory() as folder, local_rack(RANKS) as rack:
        trace = Path(folder) / "trace.json"
        environment = {**for_own_job(rack), LOCAL_SUM: "0", _TRACE: str(trace)}
        found_by_ranks([sys.executable, "-m", "benchmarks.overlap_trace"], RANKS, environment)
        events = json.loads(trace.read_text())["traceEvents"]
    draw(spans(events, _BACKWARD), spans(events, "innet:all_reduce"), picture)


if __name__ == "__main__":
    if _TRACE in os.environ:
        train(Path(os.environ[_TRACE]))
    else:
        typer.run(main)
