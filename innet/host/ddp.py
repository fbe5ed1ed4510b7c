"""PyTorch DistributedDataParallel over innet, as a communication hook."""

import torch
from torch.distributed import GradBucket as Bucket  # type: ignore[attr-defined]

from innet.host.agent import Agent


def ddp_hook(agent: Agent, bucket: Bucket) -> torch.futures.Future[torch.Tensor]:
    """Average a gradient bucket in the switch: ``model.register_comm_hook(innet.join(), ddp_hook)``.

    The all-reduce runs beside the backward pass; buckets are served in order. An error reaches the
    training script as an exception of ``backward()``.
    """
    gradients = bucket.buffer()
    on_gpu = gradients.device.type != "cpu"
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future(
        devices=[gradients.device] if on_gpu else None
    )

    reduction = agent.submit(gradients)
    reduction.add_done_callback(lambda done: _settle(future, done))
    return future


def _settle(future: torch.futures.Future[torch.Tensor], done: "object") -> None:
    problem = done.exception()  # type: ignore[attr-defined]
    if problem:
        future.set_exception(problem)
    else:
        future.set_result(done.result())  # type: ignore[attr-defined]
