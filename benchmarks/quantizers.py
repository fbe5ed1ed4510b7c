"""Costs of each quantizer and codec: bytes on the wire, and accuracy on handwritten digits.

No root is needed::

    python -m benchmarks.quantizers

Bytes are those of whole frames each way, with headers and retransmissions, of an all-reduce through
a switch on this machine. Accuracy is that of the demo's model. Its workers are threads: they call
the host agent's reducers, and numpy adds their integers instead of the switch. One training goes
through the switch, to check that the bits are the same. Codecs are summed along a ring, and encoded
anew at every hop.
"""

import contextlib
import hashlib
import json
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from typing import Annotated

import numpy as np
import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table
from torch import nn
from torch.nn.utils import parameters_to_vector, vector_to_parameters

from benchmarks.options import Json
from innet.host.agent import Agent
from innet.host.integers import Flags, Integers, Reduction
from innet.host.job import WorkerInfo
from innet.host.join import join
from innet.host.paths import Inspect
from innet.host.quantizers.interface import Floats
from innet.host.quantizers.scaling import Scaling, integers_of
from innet.host.quantizers.spec import QuantizerSpec
from innet.host.reducer import Reducer
from innet.local.rack import local_rack
from innet.training.codecs.names import CODECS, codec
from innet.wire.layout import Operation

QUANTIZERS = (
    "int32", "int16", "int16+stochastic", "int8", "int8+stochastic", "int8+feedback",
    "int8+stochastic+feedback", "strom:0.0002", "int32+topk:0.1", "int8+blocks:32+topk:0.1",
)  # fmt: skip
LANES = 256
_BATCH = 16  # per worker
_TEST_SHARE = 5

Sum = Callable[[Sequence[Floats]], Floats]
"""A function from the workers' gradients to their mean."""


@dataclass(frozen=True)
class Outcome:
    """A finished training: the share of the test set that is right, and a digest of the parameters."""

    accuracy: float
    parameters: str


class Room:
    """All workers in one process. Contributions are added when all workers have come."""

    def __init__(self, workers: int) -> None:
        self._workers = workers
        self._barrier = threading.Barrier(workers)
        self._lanes: list[Integers] = [np.empty(0, np.int32)] * workers
        self._flags: list[Flags] = [np.empty(0, np.uint16)] * workers

    def meet(
        self, rank: int, chunks: Integers, flags: Flags, operation: Operation, inspect: Inspect
    ) -> Reduction:
        """Make one exchange, as the switch would."""
        self._lanes[rank], self._flags[rank] = chunks, flags
        self._barrier.wait()
        combine = np.sum if operation == Operation.SUM else np.max
        lanes = combine(self._lanes, axis=0)
        ored = np.bitwise_or.reduce(self._flags)
        self._barrier.wait()
        inspect(lanes[0])
        counts = np.full(len(chunks), self._workers, np.uint16)
        members = np.full(len(chunks), (1 << self._workers) - 1, np.uint64)
        return Reduction(lanes.astype(np.int32), ored, counts, members)


class Desk:
    """The exchanges of one worker in the room, as a reducer needs them."""

    private = False

    def __init__(self, room: Room, rank: int) -> None:
        self._room, self._rank = room, rank

    def all_reduce(
        self,
        chunks: Integers | Scaling,
        flags: Flags,
        operation: Operation,
        inspect: Inspect = lambda _: None,
    ) -> Reduction:
        """See :meth:`innet.host.exchanges.Exchanges.all_reduce`."""
        return self._room.meet(self._rank, integers_of(chunks), flags, operation, inspect)


@contextlib.contextmanager
def in_process(name: str, workers: int) -> Iterator[Sum]:
    """Yield a sum of workers that are threads, with reducers of their own."""
    spec, room = QuantizerSpec.read(name), Room(workers)
    reducers = [
        Reducer(Desk(room, rank), WorkerInfo(1, rank, workers, workers, LANES), spec)  # type: ignore[arg-type]
        for rank in range(workers)
    ]
    with ThreadPoolExecutor(workers) as pool:

        def reduce(gradients: Sequence[Floats]) -> Floats:
            running = [
                pool.submit(reducer.floats, gradient, spec, "gradient", mean=True)
                for reducer, gradient in zip(reducers, gradients, strict=True)
            ]
            first, *others = [each.result() for each in running]
            if any(other.tobytes() != first.tobytes() for other in others):
                raise AssertionError
            return first

        yield reduce


def through_switch(agents: Sequence[Agent], name: str) -> Sum:
    """Return a sum of the workers' gradients through a switch."""

    def reduce(gradients: Sequence[Floats]) -> Floats:
        running = [
            agent.submit(gradient, quantizer=name, key="gradient")
            for agent, gradient in zip(agents, gradients, strict=True)
        ]
        first: Floats
        first, *_ = [each.result() for each in running]
        return first

    return reduce


def along_ring(name: str) -> Sum:
    """Return a sum along a ring: each segment starts at another worker and is encoded at every hop."""
    code = codec(name)

    def reduce(gradients: Sequence[Floats]) -> Floats:
        workers = len(gradients)
        cut = [np.array_split(gradient, workers) for gradient in gradients]
        sums = []
        for segment in range(workers):
            total = cut[segment][segment]
            for hop in range(1, workers):
                passed_on = code.decode(code.encode(total))
                total = passed_on + cut[(segment + hop) % workers][segment]
            sums.append(code.decode(code.encode(total)))
        return np.concatenate(sums) / np.float32(workers)

    return reduce


def in_floats(gradients: Sequence[Floats]) -> Floats:
    """Return the float32 mean, with which all others are compared."""
    return np.asarray(np.mean(gradients, axis=0, dtype=np.float32))


def train(reduce: Sum, workers: int, epochs: int, seed: int) -> Outcome:
    """Train the demo's model on scikit-learn's digits; `seed` decides all random choices."""
    from sklearn.datasets import load_digits  # slow, and not every caller trains

    data = load_digits()
    images = torch.tensor(data.data / 16, dtype=torch.float32)
    labels = torch.tensor(data.target)
    torch.manual_seed(seed)
    order = torch.randperm(len(images))
    cut = len(images) // _TEST_SHARE
    test, training = order[:cut], order[cut:]
    model = nn.Sequential(
        nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, 10)
    )
    parameters = parameters_to_vector(model.parameters()).detach()
    momentum = torch.zeros_like(parameters)
    for _ in range(epochs):
        shuffled = training[torch.randperm(len(training))]
        for batch in shuffled.split(workers * _BATCH)[:-1]:
            gradients = [
                _gradient(model, images[mine], labels[mine])
                for mine in (batch[rank::workers] for rank in range(workers))
            ]
            momentum.mul_(0.9).add_(torch.from_numpy(reduce(gradients)))
            parameters.sub_(momentum, alpha=0.1)
            vector_to_parameters(parameters, model.parameters())
    with torch.no_grad():
        right = (model(images[test]).argmax(dim=1) == labels[test]).float().mean().item()
    return Outcome(right, hashlib.sha256(parameters.numpy().tobytes()).hexdigest())


def _gradient(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> Floats:
    model.zero_grad()
    nn.functional.cross_entropy(model(images), labels).backward()
    flat = [each.grad.reshape(-1) for each in model.parameters() if each.grad is not None]
    return torch.cat(flat).numpy()


@contextlib.contextmanager
def switched(workers: int) -> Iterator[list[Agent]]:
    """Yield the agents of a job on a switch of this machine."""
    with contextlib.ExitStack() as stack:
        rack = stack.enter_context(local_rack(workers, LANES))
        yield [
            stack.enter_context(join(rack.controller, rack.job, rank, link, token=rack.token))
            for rank, link in enumerate(rack.links)
        ]


def bytes_per_element(agents: Sequence[Agent], name: str, elements: int) -> float:
    """Return the bytes of whole frames that a worker sends per element.

    It receives as many, except for lost packets.
    """
    before = sum(agent.traffic.bytes_sent for agent in agents)
    vectors = np.random.default_rng(1).standard_normal((len(agents), elements), np.float32)
    through_switch(agents, name)(list(vectors))
    sent = sum(agent.traffic.bytes_sent for agent in agents) - before
    return sent / len(agents) / elements


@dataclass(frozen=True)
class Row:
    """A row of the table. `accuracies`: one for each seed. `wire`: bytes per element each way."""

    name: str
    accuracies: list[float]
    wire: float | None


def accuracies(name: str, workers: int, epochs: int, seeds: Sequence[int]) -> list[float]:
    """Return the accuracy by seed. `name` is a quantizer, a codec, or ``float32``."""
    found = []
    for seed in seeds:
        if name == "float32":
            found.append(train(in_floats, workers, epochs, seed))
        elif name in CODECS:
            found.append(train(along_ring(name), workers, epochs, seed))
        else:
            with in_process(name, workers) as reduce:
                found.append(train(reduce, workers, epochs, seed))
    return [each.accuracy for each in found]


def main(
    workers: Annotated[int, typer.Option(help="The number of workers.")] = 4,
    epochs: Annotated[int, typer.Option(help="Passes over the training set.")] = 10,
    seeds: Annotated[int, typer.Option(help="Trainings of each, with different seeds.")] = 3,
    elements: Annotated[
        int, typer.Option(help="Elements of the vector whose bytes are counted.")
    ] = 1_000_000,
    output: Json = None,
) -> None:
    """Compare quantizers and codecs."""
    torch.set_num_threads(1)
    console = Console(width=120)
    with switched(workers) as agents:
        wire = {name: bytes_per_element(agents, name, elements) for name in QUANTIZERS}
        real = train(through_switch(agents, "int8+feedback"), workers, 1, 1)
    with in_process("int8+feedback", workers) as reduce:
        if train(reduce, workers, 1, 1) != real:
            raise SystemExit("the switch and the threads give different parameters")
    names = ("float32", *QUANTIZERS, *CODECS)
    rows = [
        Row(name, accuracies(name, workers, epochs, range(1, seeds + 1)), wire.get(name))
        for name in track(names, "training", console=console, transient=True)
    ]
    base = rows[0].accuracies
    table = Table(
        "", "bytes per element, each way", "accuracy", "worst difference to float32",
        title=f"{workers} workers, {epochs} epochs, {seeds} seeds, {LANES} lanes",
    )  # fmt: skip
    for row in rows:
        worst = max((a - b for a, b in zip(row.accuracies, base, strict=True)), key=abs)
        table.add_row(
            row.name,
            "-" if row.wire is None else f"{row.wire:.3f}",
            " ".join(f"{each:.4f}" for each in row.accuracies),
            f"{worst:+.4f}",
        )
    console.print(table)
    console.print("A training through the switch ended with the threads' parameters, bit by bit.")
    if output:
        output.write_text(json.dumps([asdict(row) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    typer.run(main)
