"""Measurements on a host that calibrate the timing models.

``python -m benchmarks.papers.calibration`` takes parts separated by commas, the number of
repetitions, and a folder in which every host writes its measurements.
"""

import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn.functional import cross_entropy

import innet
from benchmarks.papers.validation import CHUNKS, CODECS, SIZES
from benchmarks.papers.worker import network
from innet.host.agent import Agent
from innet.training.gradient_servers import SoftsyncServer
from innet.training.message_codecs import message_codec
from innet.training.packing import Segment
from innet.training.transports.process_group import ProcessGroupTransport, ServerNodeTransport
from innet.training.transports.ring import Ring
from innet.training.transports.switch import AgentTransport

_REST_S = 0.03
"""The pause between repetitions that must begin with a link's full bucket."""
_LANES = 256


def timed(repeats: int, call: Callable[[], object], rest: float = 0.0) -> list[float]:
    """Return the seconds of each call. All hosts begin together, after one call that does not count.

    Without a rest the links' buckets stay empty, as in training that always communicates.
    """
    found = []
    for _ in range(repeats + 1):
        dist.barrier()
        time.sleep(rest)
        began = time.perf_counter()
        call()
        found.append(time.perf_counter() - began)
    return found[1:]


def sizes(repeats: int, reduce: Callable[[Tensor], object]) -> list[dict[str, Any]]:
    """Time all-reduces, or exchanges with a server, of all sizes."""
    return [
        {"bytes": size, "seconds": timed(repeats, lambda size=size: reduce(torch.ones(size // 4)))}  # type: ignore[misc]
        for size in SIZES
    ]


def links(agent: Agent, repeats: int) -> dict[str, Any]:
    """Time the ring, the switch, the codecs, and a step without communication."""
    with Ring(ProcessGroupTransport(), message_codec("plain")) as ring:
        over_ring = sizes(repeats, lambda vector: ring.all_reduce(vector).result())
    switch = AgentTransport(agent)
    return {
        "ring": over_ring,
        "switch": sizes(repeats, lambda vector: switch.all_reduce(vector).result()),
        "codecs": {name: coding(name, repeats) for name in CODECS if name},
        "steps": {kind: step(kind, repeats) for kind in ("cnn", "mlp-180")},
    }


def coding(name: str, repeats: int) -> list[float]:
    """Return a ring codec's seconds per byte of the vector: p blocks encoded, 2 p - 1 decoded."""
    workers, size = dist.get_world_size(), SIZES[-1]
    block, kind = torch.randn(size // 4 // workers), message_codec(name)

    def call() -> None:
        for _ in range(workers):
            message = kind.encode(block)
        for _ in range(2 * workers - 1):
            kind.decode(message)

    return [seconds / size for seconds in timed(repeats, call)]


def step(kind: str, repeats: int) -> dict[str, Any]:
    """Time a forward and backward pass, and an update, at all hosts at the same time."""
    model = network(kind)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    images, labels = torch.randn(32, 64), torch.zeros(32, dtype=torch.int64)
    whole = Segment(list(model.parameters()))

    def compute() -> None:
        optimizer.zero_grad()
        cross_entropy(model(images), labels).backward()

    def update() -> None:
        whole.set_gradients(whole.gradients())
        optimizer.step()

    return {
        "parameters": whole.size,
        "compute": timed(repeats, compute),
        "update": timed(repeats, update),
    }


def server(repeats: int) -> dict[str, Any]:
    """Time gradients to a server on a node of its own, and parameters back."""
    like = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=0.1)
    found = []
    for size in SIZES:
        with ServerNodeTransport() as transport:
            workers = transport.workers

            def make(size: int = size, workers: int = workers) -> SoftsyncServer:
                return SoftsyncServer(torch.zeros(size // 4), workers, like, workers)

            client = transport.connect(size // 4, make)

            def exchange(
                size: int = size, client: Any = client, rank: int = transport.rank
            ) -> None:
                if rank >= 0:
                    client.push_pull(torch.ones(size // 4), 0.1)

            found.append({"bytes": size, "seconds": timed(repeats, exchange)})
            client.close()
    return {"server": found}


def chunks(agent: Agent, repeats: int) -> dict[str, Any]:
    """Time exact sums of different numbers of packets."""
    return {
        "chunks": [
            {"chunks": count, "seconds": timed(repeats, partial(_sum, agent, count), _REST_S)}
            for count in CHUNKS
        ]
    }


def _sum(agent: Agent, count: int) -> Tensor:
    return agent.all_reduce(torch.ones(_LANES * count, dtype=torch.int32), "sum")


def main(arguments: Sequence[str]) -> None:
    """Measure the parts, one after the other."""
    chosen, repeats, folder = arguments[0].split(","), int(arguments[1]), Path(arguments[2])
    torch.set_num_threads(1)
    with innet.join() as agent:
        agent.all_reduce(torch.zeros(1, dtype=torch.int32), "sum")  # a barrier
        dist.init_process_group("gloo")
        parts: dict[str, Callable[[], dict[str, Any]]] = {
            "links": lambda: links(agent, repeats),
            "server": lambda: server(repeats),
            "chunks": lambda: chunks(agent, repeats),
        }
        found = {name: value for part in chosen for name, value in parts[part]().items()}
        dist.destroy_process_group()
    (folder / f"{os.environ['RANK']}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1:])
