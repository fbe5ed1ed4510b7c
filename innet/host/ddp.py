"""PyTorch DistributedDataParallel over innet, as a communication hook."""

import torch
from torch.distributed import GradBucket as Bucket  # type: ignore[attr-defined]

from innet.host.agent import Agent


def ddp_hook(agent: Agent, bucket: Bucket) -> torch.futures.Future[torch.Tensor]:
    """Average a gradient bucket in the switch: ``model.register_comm_hook(innet.join(), ddp_hook)``.

    The all-reduce runs beside the backward pass; buckets are served in order. ``backward()`` raises
    UnsupportedTensor as it is, and RuntimeError, with the error's name and message, for what ends an
    all-reduce that has begun.
    """
    gradients = bucket.buffer()
    on_gpu = gradients.device.type != "cpu"
    done: torch.futures.Future[None] = torch.futures.Future(
        devices=[gradients.device] if on_gpu else None
    )
    reduction = agent.submit(gradients)
    reduction.add_done_callback(lambda _: done.set_result(None))
    # Of errors only those that a callback raises come out of backward() with their message.
    return done.then(lambda _: reduction.result())
