"""Quantization on a GPU, and training whose workers share one: kernels, steps, and a timeline.

A GPU that PyTorch can use is needed, and no root::

    python -m benchmarks.gpu --plot timeline.png

``kernels`` compares each kernel with a copy within the GPU's memory. It counts the bytes that a kernel
reads and writes. Time is the GPU's own, without the time to launch a kernel.

``path`` has the time until the integers of a vector are in the host's memory, and until the sum's floats
are on the GPU. The rows *CPU* are those of a vector that is copied to the host and quantized there.

``training`` runs DistributedDataParallel. All workers are processes on one GPU, and a switch of this
machine sums. The timeline is that of one step of worker 0.
"""

import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import torch.distributed as dist
import typer
from rich.console import Console
from rich.table import Table
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from benchmarks.options import Json
from benchmarks.ranks import for_own_job, found_by_ranks
from innet.errors import UsageError
from innet.host.ddp import ddp_hook
from innet.host.quantizers import device as on_gpu
from innet.host.quantizers.rounding import Stochastic, nearest
from innet.host.quantizers.spec import QuantizerSpec
from innet.local.rack import local_rack
from innet.terminal.app import run
from innet.torch import backend_of

QUANTIZERS = "int32", "int16", "int8", "int8+stochastic"
CASES = "no sums", "gloo", "int32", "int8"
LANES = 64, 256, 1024
WORKERS = 4
ROUNDS = 15
_AHEAD = 4_000_000  # cycles: a GPU that is kept busy for them does not wait for the next launch

app = typer.Typer(pretty_exceptions_enable=False)


@dataclass(frozen=True)
class Kernel:
    """The median time of a kernel, and its bytes per second as a share of a copy's."""

    quantizer: str
    lanes: int
    name: str
    seconds: float
    of_copy: float


@dataclass(frozen=True)
class Steps:
    """The median seconds of a step of training, and what has happened during one, by row."""

    case: str
    seconds: float
    gradients: int
    timeline: Mapping[str, Sequence[tuple[float, float]]] = field(default_factory=dict)


@app.command()
def main(
    mib: Annotated[int, typer.Option(help="MiB of floats for the kernels.")] = 1024,
    bucket: Annotated[int, typer.Option(help="MiB of floats for the path.")] = 25,
    workers: Annotated[int, typer.Option(min=2, help="Processes that train.")] = 2,
    layers: Annotated[int, typer.Option(help="Layers of the model that is trained.")] = 4,
    tokens: Annotated[int, typer.Option(help="Tokens in a worker's batch.")] = 16384,
    steps: Annotated[int, typer.Option(help="Steps of training in each case.")] = 8,
    plot: Annotated[Path | None, typer.Option(help="Draw the timeline to this file.")] = None,
    output: Json = None,
) -> None:
    """Run the benchmark and print the tables."""
    if not torch.cuda.is_available():
        raise UsageError(
            "PyTorch finds no GPU here: install a build with CUDA on a machine with one"
        )
    console = Console(width=110)
    copy = copied_per_second(mib << 18)
    found = list(kernels(mib << 18, copy))
    console.print(kernel_table(found, copy))
    paths = path_times(bucket << 18)
    console.print(path_table(paths, bucket))
    torch.cuda.empty_cache()
    trained = train_all(workers, {"layers": layers, "tokens": tokens, "steps": steps})
    console.print(step_table(trained, workers))
    if output:
        noted = {
            "gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "copy": copy,
            "kernels": [asdict(each) for each in found], "path": paths,
            "training": [asdict(each) for each in trained],
        }  # fmt: skip
        output.write_text(json.dumps(noted, indent=1) + "\n")
    if plot:
        draw(trained, plot)


# Kernels.


def gpu_seconds(work: Callable[[], object]) -> float:
    """Return the median time that the GPU takes for some work."""
    taken = []
    for _ in range(3 + ROUNDS):
        began, ended = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(_AHEAD)  # noqa: SLF001 - PyTorch's own tests keep a GPU busy in this way
        began.record()
        work()
        ended.record()
        ended.synchronize()
        taken.append(1e-3 * float(began.elapsed_time(ended)))
    return statistics.median(taken[3:])


def copied_per_second(elements: int) -> float:
    """Return the bytes that a copy within the GPU's memory reads and writes per second."""
    given = torch.randn(elements, device="cuda")
    made = torch.empty_like(given)
    return 8 * elements / gpu_seconds(lambda: made.copy_(given))


def kernels(elements: int, copy: float) -> Iterator[Kernel]:
    """Yield the times of all kernels."""
    values = torch.randn(elements, device="cuda")
    for text in QUANTIZERS:
        quantizer: Any = QuantizerSpec.read(text).bind(WORKERS)
        packing = quantizer.packing
        for lanes in LANES:
            using, rows = on_gpu.kernels(lanes), values.view(-1, lanes)
            steps = torch.full((len(rows),), 1e-3, device="cuda")
            key = 1 << 40 if "stochastic" in text else None
            pack = partial(using.pack, rows, steps, packing, float(quantizer.limit), key)
            words = pack()
            counts = torch.full((len(words),), WORKERS, dtype=torch.int32, device="cuda")
            packed = 4 * elements + 4 * words.numel()
            works: dict[str, tuple[Callable[[], object], int]] = {
                "magnitudes": (partial(using.magnitudes, rows), 4 * elements),
                "pack": (pack, packed),
                "unpack": (partial(using.unpack, words, counts, steps, packing, mean=True), packed),
            }
            for name, (work, size) in works.items():
                seconds = gpu_seconds(work)
                yield Kernel(text, lanes, name, seconds, size / seconds / copy)


def kernel_table(found: Sequence[Kernel], copy: float) -> Table:
    """Return a table with a row for each quantizer and number of lanes."""
    names = list(dict.fromkeys(each.name for each in found))
    title = f"{torch.cuda.get_device_name()}: share of a copy's {copy / 1e9:,.0f} GB/s"
    table = Table("quantizer", "lanes", *names, title=title)
    by_name = {(each.quantizer, each.lanes, each.name): each for each in found}
    for text, lanes in dict.fromkeys((each.quantizer, each.lanes) for each in found):
        shares = (f"{by_name[text, lanes, name].of_copy:.2f}" for name in names)
        table.add_row(text, str(lanes), *shares)
    return table


# The path of a vector.


def path_times(elements: int) -> list[dict[str, Any]]:
    """Return the median seconds of each half of a vector's path, on the GPU and on the CPU."""
    values = torch.randn(elements, device="cuda")
    lanes, found = 256, []
    for text in QUANTIZERS:
        quantizer: Any = QuantizerSpec.read(text).bind(WORKERS)
        rounding = Stochastic.of(0, 0, 1) if "stochastic" in text else nearest
        ways: dict[str, Any] = {
            "GPU": on_gpu.OnDevice(quantizer, values.device, on_gpu.kernels(lanes)),
            "CPU": on_gpu.OnCpu(quantizer, values.device),
        }
        for where, way in ways.items():
            there, back = [], []
            for _ in range(2 + ROUNDS):
                torch.cuda.synchronize()
                began = time.perf_counter()
                rows = way.rows(values, lanes)
                scales = way.scales(rows)
                words, flags = way.quantize(rows, scales, scales, rounding)
                there.append(time.perf_counter() - began)
                counts = np.full((len(words), 1), 1, np.uint16)
                sums = np.array(words)
                began = time.perf_counter()
                way.dequantize(sums, counts, scales, flags, mean=True)
                torch.cuda.synchronize()
                back.append(time.perf_counter() - began)
            found.append({
                "quantizer": text, "on": where,
                "there": statistics.median(there[2:]), "back": statistics.median(back[2:]),
            })  # fmt: skip
    return found


def path_table(found: Sequence[Mapping[str, Any]], mib: int) -> Table:
    """Return a table with a row for each quantizer and processor."""
    table = Table(
        "quantizer", "quantized on the", "to integers on the host, ms", "to floats on the GPU, ms",
        title=f"{mib} MiB of float32",
    )  # fmt: skip
    for each in found:
        table.add_row(
            each["quantizer"], each["on"], f"{1e3 * each['there']:.2f}", f"{1e3 * each['back']:.2f}"
        )
    return table


# Training.


def train_all(workers: int, options: Mapping[str, int]) -> list[Steps]:
    """Train in all cases, with a rack of this machine."""
    command = [sys.executable, "-m", "benchmarks.gpu", "work", json.dumps(options)]
    with local_rack(workers, 1024, 1) as rack:
        found = found_by_ranks(command, workers, {**for_own_job(rack), "INNET_SLOTS": "128"})
    return [Steps(**each) for each in found]


class Model(nn.Module):
    """A stack of transformer layers, over vectors."""

    def __init__(self, layers: int, width: int = 1024) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(width, 16, 4 * width, dropout=0.0, batch_first=True)
        self.layers = nn.TransformerEncoder(layer, layers, enable_nested_tensor=False)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        """Return the mean square of the last layer's output."""
        outputs: torch.Tensor = self.layers(inputs)
        return outputs.square().mean()


def work(layers: int, tokens: int, steps: int) -> None:
    """Run one worker. Rank 0 prints the results of all cases as JSON."""
    torch.cuda.set_device(0)
    dist.init_process_group("innet")
    gloo = dist.new_group(backend="gloo")
    found = []
    for case in CASES:
        torch.manual_seed(1)
        model = Model(layers).cuda()
        wrapped: nn.Module = model
        if case != "no sums":
            wrapped = DistributedDataParallel(model, process_group=gloo if case == "gloo" else None)
        if case.startswith("int"):
            agent = backend_of(dist.group.WORLD)._membership.agent  # type: ignore[union-attr]  # noqa: SLF001
            wrapped.register_comm_hook((agent, case), ddp_hook)  # type: ignore[operator]
        inputs = torch.randn(tokens // 512, 512, 1024, device="cuda")
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
        step = partial(_step, wrapped, optimizer, inputs)
        seconds = [_timed(step) for _ in range(3 + steps)][3:]
        timeline = _timeline(step) if case.startswith("int") else {}
        size = 4 * sum(each.numel() for each in model.parameters())
        found.append(asdict(Steps(case, statistics.median(seconds), size, timeline)))
        del wrapped, model, optimizer
    if not dist.get_rank():
        sys.stdout.write(json.dumps(found))
    dist.destroy_process_group()


def _step(model: nn.Module, optimizer: torch.optim.Optimizer, inputs: torch.Tensor) -> None:
    optimizer.zero_grad()
    model(inputs).backward()
    optimizer.step()


def _timed(step: Callable[[], None]) -> float:
    """Return the seconds of a step of the slowest worker."""
    torch.cuda.synchronize()
    dist.barrier()
    began = time.perf_counter()
    step()
    torch.cuda.synchronize()
    taken = torch.tensor(time.perf_counter() - began)
    dist.all_reduce(taken, dist.ReduceOp.MAX)
    return float(taken)


# The timeline.


def _timeline(step: Callable[[], None]) -> dict[str, list[tuple[float, float]]]:
    """Return the beginnings and ends of everything that a GPU did in a step, in seconds, by row."""
    torch.cuda.synchronize()
    dist.barrier()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        step()
        torch.cuda.synchronize()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        profile.export_chrome_trace(str(file))
        events = json.loads(file.read_text())["traceEvents"]
    kinds = ("kernel", "gpu_memcpy", "gpu_memset")
    return rows_of(sorted(
        (each for each in events if each.get("cat") in kinds), key=lambda each: each["ts"]
    ))  # fmt: skip


def rows_of(events: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[float, float]]]:
    """Sort a trace's events into rows. Exchanges lie between a copy to the host and the next one back."""
    side = next(each["args"]["stream"] for each in events if "_pack" in each["name"])
    began = events[0]["ts"]
    rows: dict[str, list[tuple[float, float]]] = {
        "model": [], "quantizer": [], "copies to the host": [], "exchanges": [],
        "copies to the GPU": [],
    }  # fmt: skip
    left: float | None = None
    for each in events:
        start = 1e-6 * (each["ts"] - began)
        span = start, start + 1e-6 * each["dur"]
        if each["args"]["stream"] != side:
            rows["model"].append(span)
        elif "DtoH" in each["name"]:
            rows["copies to the host"].append(span)
            left = span[1]
        elif "HtoD" in each["name"]:
            rows["copies to the GPU"].append(span)
            if left is not None:
                rows["exchanges"].append((left, start))
            left = None
        else:
            rows["quantizer"].append(span)
    return rows


def step_table(found: Sequence[Steps], workers: int) -> Table:
    """Return a table with a row for each case."""
    size = found[0].gradients / (1 << 20)
    title = (
        f"DDP, {workers} workers on one GPU, {size:,.0f} MiB of gradients, {os.cpu_count()} cores"
    )
    table = Table("sums", "step, ms", title=title)
    for each in found:
        table.add_row(each.case, f"{1e3 * each.seconds:.1f}")
    return table


def draw(found: Sequence[Steps], file: Path) -> None:
    """Draw the timelines below each other."""
    from matplotlib.figure import Figure

    shown = [each for each in found if each.timeline]
    figure = Figure(figsize=(9, 2.2 * len(shown)), layout="constrained")
    for axes, each in zip(figure.subplots(len(shown), squeeze=False)[:, 0], shown, strict=True):
        rows = [*each.timeline.items()][::-1]
        for height, (_, spans) in enumerate(rows):
            bars = [(1e3 * start, 1e3 * (end - start)) for start, end in spans]
            axes.broken_barh(bars, (height - 0.4, 0.8), facecolors=f"C{height}")
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.set_title(f"{each.case}, {1e3 * each.seconds:.0f} ms a step without the profiler")
    axes.set_xlabel("ms")
    figure.savefig(file, dpi=80)


if __name__ == "__main__":
    if sys.argv[1:2] == ["work"]:
        work(**json.loads(sys.argv[2]))
    else:
        run(app)
