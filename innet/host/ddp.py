"""Tensors of PyTorch through an agent: what the hook and the process group of innet have in common."""

from collections.abc import Callable, Hashable
from concurrent.futures import Future
from typing import TypeVar

import torch
from torch.distributed import GradBucket as Bucket  # type: ignore[attr-defined]

from innet.host.agent import Agent
from innet.host.tensors import How

Value = TypeVar("Value")
Result = TypeVar("Result")

NARROW = (torch.float16, torch.bfloat16)
"""They travel as float32, which holds all their values, and are rounded once, at the end."""


def ddp_hook(
    state: Agent | tuple[Agent, str], bucket: Bucket
) -> torch.futures.Future[torch.Tensor]:
    """Average a gradient bucket in the switch: ``model.register_comm_hook(agent, ddp_hook)``.

    With ``(agent, "int8+feedback")`` as the state the hook has a quantizer of its own, not the agent's.

    The all-reduce runs beside the backward pass; buckets are served in order. ``backward()`` raises
    UnsupportedTensor as it is, and RuntimeError, with the error's name and message, for what ends an
    all-reduce that has begun.
    """
    agent, quantizer = state if isinstance(state, tuple) else (state, None)
    gradients = bucket.buffer()
    key = bucket.parameters()[0].data_ptr()  # buckets are made anew after the first step
    mean = submit(agent, gradients, "mean", quantizer=quantizer, key=key)
    return torch_future(mean, gradients.device, lambda mean: mean)


def submit(
    agent: Agent,
    tensor: torch.Tensor,
    op: How,
    *,
    quantizer: str | None = None,
    key: Hashable = None,
) -> "Future[torch.Tensor]":
    """:meth:`Agent.submit`, through the switch also for float16 and bfloat16."""
    if tensor.dtype not in NARROW or tensor.layout != torch.strided:
        return agent.submit(tensor, op, quantizer=quantizer, key=key)
    wide = agent.submit(tensor.detach().float(), op, quantizer=quantizer, key=key)
    return chained(wide, lambda wide: wide.to(tensor.dtype))


def chained(future: "Future[Value]", finish: Callable[[Value], Result]) -> "Future[Result]":
    """What `finish` makes of a future's result, in the thread that has it."""
    last: Future[Result] = Future()

    def take(done: "Future[Value]") -> None:
        try:
            last.set_result(finish(done.result()))
        except BaseException as problem:  # noqa: BLE001 - handed to who waits for the result
            last.set_exception(problem)

    future.add_done_callback(take)
    return last


def torch_future(
    future: "Future[Value]", device: torch.device, finish: Callable[[Value], Result]
) -> torch.futures.Future[Result]:
    """What `finish` makes of the result of a future of Python's, as a future of PyTorch's."""
    on_gpu = device.type != "cpu"
    done: torch.futures.Future[None] = torch.futures.Future(devices=[device] if on_gpu else None)
    future.add_done_callback(lambda _: done.set_result(None))
    # Of errors only those that a callback raises come out of backward() with their message.
    return done.then(lambda _: finish(future.result()))
