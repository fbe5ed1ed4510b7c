"""The program of a host in :mod:`benchmarks.diloco`: it takes part in all trainings.

All hosts join the emulation's job, so that the switch knows every host's port and floods nothing.
The job's sums are the barriers between trainings.
"""

import contextlib
import json
import os
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torchft
from torch import Tensor, nn
from torch.distributed import TCPStore  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel
from torchft.coordination import LighthouseServer
from torchft.process_group import ProcessGroupGloo

import innet
from benchmarks.emulated.links import own_link
from benchmarks.replicas.settings import Learning
from benchmarks.replicas.training import Digits, Draw, digest, network, stepping
from innet.torch.torchft import ProcessGroupInnet

TIMEOUT = timedelta(seconds=300)
_FIRST_PORT = 29_700


@dataclass
class Watch:
    """Copies of the parameters over time, with the seconds and bytes up to then."""

    model: nn.Module
    began: float = field(default_factory=time.monotonic)
    before: tuple[int, int] = field(default_factory=own_link)
    looks: list[tuple[float, int, int, list[Tensor]]] = field(default_factory=list)

    def look(self) -> None:
        """Take a copy."""
        up, down = (late - early for late, early in zip(own_link(), self.before, strict=True))
        copies = [each.detach().clone() for each in self.model.parameters()]
        self.looks.append((time.monotonic() - self.began, up, down, copies))

    def curve(self, digits: Digits) -> list[tuple[float, int, int, float]]:
        """Return seconds, bytes up, bytes down and the loss, for each copy."""
        found = []
        for seconds, up, down, copies in self.looks:
            for parameter, values in zip(self.model.parameters(), copies, strict=True):
                parameter.data.copy_(values)
            found.append((seconds, up, down, digits.loss(self.model)))
        return found


def main(folder: Path) -> None:
    """Take part in all trainings, and write the curves."""
    torch.set_num_threads(1)
    task = json.loads((folder / "task.json").read_text())
    with innet.join() as everybody:

        def barrier() -> None:
            everybody.all_reduce(torch.zeros(1, dtype=torch.int32), "sum")

        barrier()
        dist.init_process_group("gloo")
        noted = [
            _train(case, number, task["digits"], barrier)
            for number, case in enumerate(task["cases"])
        ]
        rank = dist.get_rank()
        dist.destroy_process_group()
    (folder / f"{rank}.json").write_text(json.dumps(noted))
    os._exit(0)  # threads of torchft and Gloo may be at work


def _train(
    case: dict[str, Any], number: int, file: str, barrier: Callable[[], None]
) -> dict[str, Any]:
    learning, rank = Learning(**case["learning"]), dist.get_rank()
    over, _, os.environ["INNET_QUANTIZER"] = case["over"].partition(" ")
    model, digits = network(learning.width, case["seed"]), Digits(file, case["seed"])
    run = _ddp if learning.algorithm == "DDP" else _managed
    with run(over, learning, model, number) as step:
        barrier()
        watch = Watch(model)
        for done in range(case["steps"] * learning.sync_every):
            step(partial(digits.batch, learning.batch, done, rank))
            if (done + 1) % case["look_every"] == 0:
                watch.look()
        barrier()
    if rank == 0:
        sys.stdout.write(f"{case['label']}, seed {case['seed']}: {watch.looks[-1][0]:.1f} s\n")
        sys.stdout.flush()
    return {"digest": digest(model), "curve": watch.curve(digits)}


@contextlib.contextmanager
def _ddp(
    over: str, learning: Learning, model: nn.Module, _: int
) -> Iterator[Callable[[Draw], None]]:
    """Yield the step of PyTorch's DistributedDataParallel."""
    group = dist.new_group(backend=over.lower(), timeout=TIMEOUT)
    trained = DistributedDataParallel(model, process_group=group)
    optimizer = torch.optim.SGD(model.parameters(), learning.rate, learning.momentum)

    def step(draw: Draw) -> None:
        optimizer.zero_grad()
        images, labels = draw()
        nn.functional.cross_entropy(trained(images), labels).backward()
        optimizer.step()

    yield step
    dist.destroy_process_group(group)


@contextlib.contextmanager
def _managed(
    over: str, learning: Learning, model: nn.Module, number: int
) -> Iterator[Callable[[Draw], None]]:
    """Yield the step of an algorithm of torchft. Rank 0 has the lighthouse."""
    rank, size = dist.get_rank(), dist.get_world_size()
    own = socket.gethostbyname(os.environ["GLOO_SOCKET_IFNAME"].removesuffix("-eth0"))
    port = _FIRST_PORT + number
    lighthouse = None
    if rank == 0:
        lighthouse = LighthouseServer(
            bind=f"0.0.0.0:{port}", min_replicas=size, join_timeout_ms=600_000,
            quorum_tick_ms=10, heartbeat_timeout_ms=60_000,
        )  # fmt: skip
    dist.barrier()
    group = ProcessGroupInnet(TIMEOUT) if over == "innet" else ProcessGroupGloo(TIMEOUT)
    optimizer = torch.optim.SGD(model.parameters(), learning.rate, learning.momentum)
    store = TCPStore(own, 0, is_master=True, wait_for_workers=False)
    manager = torchft.Manager(
        pg=group, load_state_dict=model.load_state_dict, state_dict=model.state_dict,
        min_replica_size=size, use_async_quorum=False, init_sync=False, timeout=TIMEOUT,
        quorum_timeout=TIMEOUT, rank=0, world_size=1, store_addr=own, store_port=store.port,
        hostname=own, lighthouse_addr=f"http://{os.environ['MASTER_ADDR']}:{port}",
        replica_id=f"replica-{rank}", heartbeat_interval=timedelta(seconds=1),
    )  # fmt: skip
    manager.start_quorum()  # the group is formed before the time is taken, as that of DDP is
    with stepping(learning, manager, model, optimizer) as step:
        yield step
    group.shutdown()
    manager.shutdown(wait=False)
    if lighthouse:
        lighthouse.shutdown()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
