"""The same training through the switch and over Gloo, side by side."""

import json
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from innet.errors import InnetError
from innet.host.fastpath import compile_everything
from innet.host.quantizers.spec import QuantizerSpec
from innet.local.processes import spawned
from innet.local.rack import local_rack
from innet.rpc import innet_pb2 as pb
from innet.terminal.console import PlainConsole

MIN_ACCURACY = 0.95
MAX_DIFFERENCE = 0.01
"""The largest accepted difference from Gloo's accuracy."""

_TRAINING = "innet.demo.training"


@dataclass(frozen=True)
class TrainingResult:
    """A finished training: the summaries of all workers, by rank, and its `seconds`, with joining."""

    workers: Sequence[dict[str, Any]]
    seconds: float

    @property
    def accuracy(self) -> float:
        """Return the share of the test set that is classified correctly, 0 to 1."""
        return float(self.workers[0]["accuracy"])

    @property
    def loss(self) -> float:
        """Return the mean cross entropy over the training set."""
        return float(self.workers[0]["final_loss"])

    @property
    def identical(self) -> bool:
        """Return whether all workers hold the same parameters, bit by bit."""
        return len({worker["parameters"] for worker in self.workers}) == 1

    def traffic(self, key: str) -> int:
        """Return a traffic figure, summed over the workers."""
        return sum(int(worker["traffic"][key]) for worker in self.workers)


def run(workers: int, epochs: int, lanes: int, quantizer: str = "int32") -> None:
    """Train twice, print the table, and raise InnetError if :func:`check` finds a difference."""
    QuantizerSpec.read(quantizer).bind(workers)  # refuse a bad quantizer before anything starts
    console = PlainConsole()
    with Progress(
        TextColumn("{task.description:<24}"),
        BarColumn(),
        MofNCompleteColumn(),
        TextColumn("{task.fields[text]}"),
        TimeElapsedColumn(),
        console=console,
    ) as progress:
        setup = progress.add_task("preparing", total=2, text="compiling the workers' code")
        compile_everything()
        progress.update(setup, advance=1, text="compiling the switch's program, and starting it")
        with local_rack(workers, lanes) as rack:
            progress.update(setup, advance=1, text="ready")
            environment = {**rack.environment, "INNET_QUANTIZER": quantizer}
            innet = train("innet", workers, epochs, progress, environment)
            job = rack.describe_job()
        gloo = train("gloo", workers, epochs, progress, {})
    console.print(table(innet, gloo, job, quantizer))
    check(innet, gloo, job)
    console.print(
        f"All {workers} workers hold the same parameters, and the switch's counters account "
        "for every chunk of every step.",
        style="green",
    )


def train(
    network: str,
    workers: int,
    epochs: int,
    progress: Progress,
    environment: Mapping[str, str],
) -> TrainingResult:
    """Run the workers of one training and wait for them.

    The clock starts when PyTorch is loaded: the first to load it reads it from the disk for all others.
    """
    task = progress.add_task(
        f"training over {network}", total=epochs, start=False, text="loading PyTorch"
    )
    started = time.monotonic()
    command = [sys.executable, "-P", "-m", _TRAINING, network, str(epochs), str(workers)]
    summaries: dict[int, dict[str, Any]] = {}
    variables = {**environment, "OMP_NUM_THREADS": "1"}
    # A file takes any number of warnings. A pipe that nobody reads yet would stop the workers.
    with (
        tempfile.TemporaryFile("w+") as errors,
        spawned(command, variables, stderr=errors) as process,
    ):
        for line in process.stdout or ():
            if not line.startswith("{"):  # Gloo tells of its connections here, before PyTorch 2.11
                continue
            said = json.loads(line)
            if "loaded" in said:
                started = time.monotonic()
                progress.start_task(task)
                progress.update(task, text="joining")
            elif "parameters" in said:
                summaries[said.pop("rank")] = said
            elif said["rank"] == 0:
                text = f"epochs  loss {said['loss']:.4f}"
                progress.update(task, completed=said["epoch"], text=text)
        if process.wait() or len(summaries) < workers:
            errors.seek(0)
            raise InnetError(f"a worker of the {network} training failed:\n{errors.read()}")
    by_rank = [summaries[rank] for rank in range(workers)]
    return TrainingResult(by_rank, time.monotonic() - started)


def table(innet: TrainingResult, gloo: TrainingResult, job: pb.Job, quantizer: str) -> Table:
    """Return a table of both trainings. Gloo's traffic is not in it: only the kernel counts that."""
    rows = Table("", "innet", "Gloo", title=f"{job.workers} workers, {job.lanes} lanes per packet")
    elements = sum(int(worker["elements"]) for worker in innet.workers)
    both = innet.traffic("bytes_sent") + innet.traffic("bytes_received")
    rows.add_row("quantizer", quantizer, "-")
    rows.add_row("test accuracy", f"{innet.accuracy:.4f}", f"{gloo.accuracy:.4f}")
    rows.add_row("final training loss", f"{innet.loss:.6f}", f"{gloo.loss:.6f}")
    rows.add_row("packets sent by workers", f"{innet.traffic('packets_sent'):,}", "-")
    rows.add_row("bytes per element, sent", f"{innet.traffic('bytes_sent') / elements:.2f}", "-")
    rows.add_row("bytes per element, both ways", f"{both / elements:.2f}", "-")
    rows.add_row("retransmissions", f"{innet.traffic('retransmissions'):,}", "-")
    rows.add_row("sums made in the switch", f"{job.counters.completed:,}", "0")
    rows.add_row("seconds, with joining", f"{innet.seconds:.1f}", f"{gloo.seconds:.1f}")
    return rows


def check(innet: TrainingResult, gloo: TrainingResult, job: pb.Job) -> None:
    """Raise InnetError unless the trainings agree and the switch did the work."""
    chunks = {int(worker["traffic"]["chunks"]) for worker in innet.workers}
    if chunks != {job.counters.completed}:
        raise InnetError(
            f"the workers reduced {sorted(chunks)} chunks, the switch {job.counters.completed}"
        )
    if not innet.identical:
        raise InnetError("the workers' parameters differ")
    if innet.accuracy < MIN_ACCURACY:
        raise InnetError(f"the accuracy is {innet.accuracy:.4f}, below {MIN_ACCURACY}")
    if abs(innet.accuracy - gloo.accuracy) > MAX_DIFFERENCE:
        raise InnetError(
            f"the accuracy is {innet.accuracy:.4f}, Gloo's {gloo.accuracy:.4f}: "
            f"more than {MAX_DIFFERENCE} apart"
        )
