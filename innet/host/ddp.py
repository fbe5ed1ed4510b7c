"""innet's hook for DistributedDataParallel."""

import torch
from torch.distributed import GradBucket as Bucket  # type: ignore[attr-defined]
from torch.utils.weak import WeakIdRef

from innet.host.agent import Agent
from innet.host.coalesced import submit, torch_future


def ddp_hook(
    state: Agent | tuple[Agent, str], bucket: Bucket
) -> torch.futures.Future[torch.Tensor]:
    """Average a gradient bucket in the switch: ``model.register_comm_hook(agent, ddp_hook)``.

    With ``(agent, "int8+feedback")`` as the state, the hook uses that quantizer instead of the
    agent's.

    The all-reduce runs during the backward pass, and buckets are served in order. ``backward()``
    raises UnsupportedTensor as it is. It raises RuntimeError, with the error's name and message, if
    an all-reduce that has begun fails.
    """
    agent, quantizer = state if isinstance(state, tuple) else (state, None)
    gradients = bucket.buffer()
    # PyTorch builds the buckets anew after the first step, and another model may get the same memory.
    key = tuple(map(WeakIdRef, bucket.parameters()))

    def narrowed(mean: torch.Tensor) -> torch.Tensor:
        return mean.to(gradients.dtype)

    mean = submit(agent, [gradients], "mean", narrowed, quantizer=quantizer, key=key)
    return torch_future(mean, gradients.device, lambda mean: mean)
