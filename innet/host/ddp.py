"""PyTorch tensors through an agent: the common part of innet's hook and process group."""

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING, TypeVar, cast

import torch
from torch.distributed import GradBucket as Bucket  # type: ignore[attr-defined]
from torch.utils.weak import WeakIdRef

from innet.host.agent import Agent
from innet.host.agreement import ALL_REDUCE, Collective
from innet.host.coalesced import Coalesced
from innet.host.tensors import ReduceOp

if TYPE_CHECKING:
    from concurrent.futures import Future

Value = TypeVar("Value")
Result = TypeVar("Result")


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


def submit(
    agent: Agent,
    tensors: Sequence[torch.Tensor],
    op: ReduceOp,
    finish: Callable[[torch.Tensor], Result],
    *,
    quantizer: str | None = None,
    key: Hashable = None,
    in_place: bool = True,
    collective: Collective = ALL_REDUCE,
    part: range | None = None,
    wait: bool = False,
) -> "Future[Result]":
    """Reduce tensors of one dtype in one all-reduce, in place where that is wanted and saves a copy.

    float16 and bfloat16 go through the switch too, as float32. `finish` turns the reduced tensor
    into the future's result, before any later all-reduce begins. It gets one flat tensor if there
    were several or if only a `part` is wanted, and float32 instead of narrower floats. `part`, `wait` and
    the errors are those of :meth:`Agent.submit`.
    """

    def take(reduced: torch.Tensor) -> Result:
        made = finish(reduced)
        if reduced.is_cuda:  # wait for the work that `finish` has queued on this thread's stream
            torch.cuda.current_stream(reduced.device).synchronize()
        return made

    return agent.submit(
        cast("torch.Tensor", Coalesced(tensors)),
        op,
        quantizer=quantizer,
        key=key,
        in_place=in_place,
        collective=collective,
        part=part,
        finish=take,
        wait=wait,
    )


def torch_future(
    future: "Future[Value]", device: torch.device, finish: Callable[[Value], Result]
) -> torch.futures.Future[Result]:
    """Turn a future of Python's into a future of PyTorch's, with `finish` applied to its result."""
    on_gpu = device.type != "cpu"
    done: torch.futures.Future[None] = torch.futures.Future(devices=[device] if on_gpu else None)
    future.add_done_callback(lambda _: done.set_result(None))
    # backward() shows an error's message only if a callback has raised it.
    return done.then(lambda _: finish(future.result()))
