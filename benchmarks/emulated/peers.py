"""The compared ways to sum a float32 vector over the hosts of an emulated network.

* ``innet int32``, ``innet int16``, and so on: in the switches, with that quantizer.
* ``Gloo``: PyTorch's process group, which sends large vectors around a ring.
* ``Gloo bf16``: the same with half the bytes, as PyTorch's ``bf16_compress_hook`` does.
* ``central PS``: a parameter server (docs/pbox.md) on a host that does nothing else.
* ``sharded PS``: a parameter server on every worker's host, each with a share of the vector.
"""

import contextlib
import socket
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

import innet
from benchmarks.emulated.network import SERVER, Network
from innet.host.quantizers.packing import Packing
from innet.servers import pbox

PORT = 19791

Vector = npt.NDArray[np.float32]
Reduce = Callable[[Vector], Vector]


@dataclass(frozen=True)
class Host:
    """A host with a vector. Its `agent` is a worker in the job of such hosts."""

    rank: int
    network: Network
    agent: innet.Agent


@contextlib.contextmanager
def reducing(host: Host, over: str, floats: int, number: int) -> Iterator[Reduce]:
    """Yield a function that sums vectors of `floats` floats. `number` is unique within a run."""
    kind, _, quantizer = over.partition(" ")
    if kind == "innet":
        yield lambda own: host.agent.all_reduce(own, op="sum", quantizer=quantizer)
    elif kind == "Gloo":
        yield _narrow_ring if quantizer else _ring
    else:
        names = [SERVER] if kind == "central" else host_names(host.network)
        with pbox.connect(
            [f"{socket.gethostbyname(name)}:{PORT}" for name in names],
            job=f"case {number}", rank=host.rank, workers=host.network.workers, keys=[floats],
            reduction="sum", timeout=300.0,
        ) as client:  # fmt: skip

            def reduce(own: Vector) -> Vector:
                total = np.empty_like(own)
                client.push_pull([own], [total])
                return total

            yield reduce


def host_names(network: Network) -> list[str]:
    """Return the names of the hosts that have a vector, by rank."""
    return [f"h{rank}" for rank in range(1, network.workers + 1)]


def prepare_ring(host: Host) -> None:
    """Prepare Gloo. Every host with a vector calls this before it sums over Gloo."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", rank=host.rank, world_size=host.network.workers)


def largest_error(over: str, workers: int) -> float:
    """Return the largest allowed error of the sum, as a share of any worker's largest element."""
    if over == "Gloo bf16":
        return workers**2 / 2**9  # each partial sum is rounded to 8 bits
    bits = {"innet int16": 16, "innet int8": 8}.get(over)
    if bits is None:
        return 1e-6 * workers  # float32's own rounding, once per worker
    return workers / (2 * Packing.widest(bits, workers).limit) + 1e-6 * workers


def _narrow_ring(own: Vector) -> Vector:
    import torch
    import torch.distributed as dist

    total = torch.from_numpy(own).to(torch.bfloat16)
    dist.all_reduce(total)
    return total.float().numpy()


def _ring(own: Vector) -> Vector:
    import torch
    import torch.distributed as dist

    total = torch.from_numpy(own.copy())
    dist.all_reduce(total)
    return total.numpy()
