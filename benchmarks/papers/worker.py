"""A worker of an emulated cluster: ``python -m benchmarks.papers.worker SPECS.json RUNS.json``.

It runs the trainings in `SPECS.json`, one after the other. Worker 0 writes the measurements to
`RUNS.json`, a line for each training.
"""

import json
import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

import innet
from benchmarks.papers.common import Run, Spec
from benchmarks.papers.servers import idle, pbox_transport, serving
from innet.errors import UsageError
from innet.host.agent import Agent
from innet.training import make
from innet.training.algorithm import Algorithm
from innet.training.easgd import Elastic
from innet.training.message_codecs import message_codec
from innet.training.transports.base import Transport
from innet.training.transports.process_group import ProcessGroupTransport, ServerNodeTransport
from innet.training.transports.ring import Ring
from innet.training.transports.switch import AgentTransport
from innet.training.transports.tree import Tree

Data = tuple[Tensor, Tensor]

TRANSPORTS: dict[str, Callable[[Agent, Spec], Transport]] = {
    "server": lambda _, spec: ServerNodeTransport(codec=message_codec(spec.codec or "plain")),
    "pbox": lambda _, spec: pbox_transport(spec),
    "pbox-sharded": lambda _, spec: pbox_transport(spec),
    "ring": lambda _, spec: Ring(ProcessGroupTransport(), message_codec(spec.codec or "plain")),
    "tree": lambda _agent, _spec: Tree(ProcessGroupTransport()),
    "switch": lambda agent, spec: AgentTransport(agent, spec.codec or None),
}


def network(kind: str) -> nn.Module:
    """Return a network for 8 x 8 pixels. Raises UsageError."""
    if kind == "cnn":  # 25,730 parameters, much computation
        return nn.Sequential(
            nn.Unflatten(1, (1, 8, 8)),
            nn.Conv2d(1, 16, 3, padding=1), nn.ReLU(),
            nn.Conv2d(16, 32, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2),
            nn.Flatten(), nn.Linear(512, 40), nn.ReLU(), nn.Linear(40, 10),
        )  # fmt: skip
    name, *numbers = kind.split("-")
    if name != "mlp" or len(numbers) not in (1, 2) or not all(map(str.isdigit, numbers)):
        raise UsageError(f"model {kind!r}: cnn, or mlp-WIDTH-HIDDEN")
    wide, hidden = (*map(int, numbers), 2)[:2]
    linears = [nn.Linear(64, wide), *(nn.Linear(wide, wide) for _ in range(hidden - 1))]
    for linear in linears:  # with PyTorch's usual weights, deep networks learn nothing
        nn.init.kaiming_uniform_(linear.weight, nonlinearity="relu")
    layers = [layer for linear in linears for layer in (linear, nn.ReLU())]
    return nn.Sequential(*layers, nn.Linear(wide, 10))


@dataclass
class Watch:
    """The seconds of the computation, and copies of the parameters at some times."""

    forward: float = 0.0
    backward: float = 0.0
    steps: list[float] = field(default_factory=list)
    looks: list[tuple[float, list[Tensor]]] = field(default_factory=list)


def train(spec: Spec, agent: Agent) -> Run | None:
    """Run one training, and return the measurements of worker 0."""
    with serving(spec):
        dist.barrier()  # all servers are ready
        if idle(spec):
            dist.barrier()
            dist.barrier()
            return None
        return _train(spec, agent)


def _train(spec: Spec, agent: Agent) -> Run | None:
    from innet.demo.training import digits  # slow, and not every caller trains

    torch.manual_seed(spec.seed)
    (images, labels), test = digits()
    mean, deviation = images.mean(), images.std()
    images, test = (images - mean) / deviation, ((test[0] - mean) / deviation, test[1])
    model = network(spec.model)
    optimizer = torch.optim.SGD(model.parameters(), lr=spec.rate, momentum=spec.momentum)
    transport = TRANSPORTS[spec.over](agent, spec)
    shuffler = torch.Generator().manual_seed(1000 * spec.seed + agent.info.rank)
    watch = Watch()
    steps = spec.steps if transport.rank >= 0 else 0  # none at the servers' node
    with transport, make(spec.algorithm, model, optimizer, transport, **spec.options) as algorithm:
        dist.barrier()
        began = time.perf_counter()
        for step in range(1, steps + 1):
            begun = time.perf_counter()
            if spec.begin:
                algorithm.begin()
            at = time.perf_counter()
            mine = torch.randint(len(images), (spec.batch,), generator=shuffler)
            optimizer.zero_grad()
            loss = cross_entropy(model(images[mine]), labels[mine])
            then = time.perf_counter()
            loss.backward()
            time.sleep(max(0.0, at + spec.sample_ms / 1e3 * spec.batch - time.perf_counter()))
            watch.forward += then - at
            watch.backward += time.perf_counter() - then
            algorithm.step()
            watch.steps.append(time.perf_counter() - begun)
            if transport.rank == 0 and step % max(1, spec.steps // spec.looks) == 0:
                watch.looks.append((time.perf_counter() - began, learned(algorithm)))
        seconds = time.perf_counter() - began
    curve = [(at, accuracy(algorithm, model, values, test)) for at, values in watch.looks]
    dist.barrier()
    if transport.rank:
        return None
    return Run(
        spec.label, curve[-1][1], seconds, statistics.median(watch.steps), watch.forward, watch.backward,
        algorithm.times.updating, algorithm.times.waiting,
        getattr(transport, "busy", 0.0), getattr(transport, "compressing", 0.0),
        curve, asdict(spec),
    )  # fmt: skip


def learned(algorithm: Algorithm) -> list[Tensor]:
    """Return the centre as the worker has it, or else the parameters."""
    if isinstance(algorithm, Elastic):
        return [centre.clone() for centre in algorithm.seen]
    return [segment.values() for segment in algorithm.segments]


def accuracy(algorithm: Algorithm, model: nn.Module, values: list[Tensor], test: Data) -> float:
    """Return the accuracy on the test set with these parameters."""
    for segment, each in zip(algorithm.segments, values, strict=True):
        segment.set_values(each)
    with torch.no_grad():
        return float((model(test[0]).argmax(dim=1) == test[1]).float().mean())


def main(specs: Path, output: Path) -> None:
    """Run all trainings."""
    torch.set_num_threads(1)
    # Every host joins the job, so that the switches know its port and flood nothing.
    with innet.join() as agent:
        agent.all_reduce(torch.zeros(1, dtype=torch.int32), "sum")  # a barrier
        dist.init_process_group("gloo")
        for each in json.loads(specs.read_text()):
            found = train(Spec(**each), agent)
            if found:
                with output.open("a") as lines:
                    lines.write(json.dumps(asdict(found)) + "\n")
        dist.destroy_process_group()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))
