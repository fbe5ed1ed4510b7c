"""Functions of a group's processes for test_quantized_all_reduce; the module imports little."""

import numpy as np
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import innet
from innet.host.fallback import ProcessGroupFallback
from innet.host.quantizers.rounding import nearest
from innet.host.quantizers.spec import QuantizerSpec
from innet.wire.layout import Operation

LANES = 256


def prepared() -> None:
    """Do nothing: the group is enough."""


def ready(rank: int) -> int:
    """Return once the process has started."""
    return rank


def sum_packed(rank: int, name: str, vectors: np.ndarray) -> np.ndarray:
    """All-reduce as a worker without a switch does: the packed integers over Gloo."""
    quantizer = QuantizerSpec.read(name).bind(len(vectors))
    fallback = ProcessGroupFallback(dist.group.WORLD)
    rows = quantizer.rows(vectors[rank], LANES)
    own = quantizer.scales(rows).reshape(1, -1)
    none = np.zeros(1, np.uint16)
    agreed = fallback.all_reduce((1, 0), own, Operation.MAX, none).result(60).lanes[0]
    integers, flags = quantizer.quantize(rows, own[0], agreed, nearest)
    done = fallback.all_reduce((1, 1), integers, Operation.SUM, flags).result(60)
    counts = done.counts[:, None]
    return quantizer.dequantize(done.lanes, counts, agreed, done.flags, mean=True).reshape(-1)


def train_replica(rank: int, controller: str, job: str, token: str, link: str) -> tuple[bytes, int]:
    """Train with DistributedDataParallel and a hook that has a quantizer of its own."""
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Linear(100, 300))
    with innet.join(controller, job, rank, link, token=token) as agent:
        model.register_comm_hook((agent, "int8+feedback"), innet.ddp_hook)
        optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
        for _ in range(5):
            optimizer.zero_grad()
            model(torch.full((4, 100), rank + 1.0)).square().sum().backward()
            optimizer.step()
        parameters = torch.cat([each.detach().reshape(-1) for each in model.parameters()])
        return parameters.numpy().tobytes(), agent.traffic.bytes_sent
