"""Callers that overwrite their inputs and results as soon as they may."""

import contextlib
from concurrent.futures import Future
from typing import Any

import numpy as np
import torch

from innet.host.agent import Agent

SPOILT = 77
"""The value that overwrites everything."""


def submit(agent: Agent, given: Any, op: str = "mean", **more: Any) -> "Future[Any]":
    """Reduce a copy of `given`. The future has a copy of the result.

    The input and the result are overwritten in the agent's thread, before it goes on. No caller can
    do this earlier. `more` are arguments of :meth:`Agent.submit`.
    """
    mine = copied(given)
    outcome: Future[Any] = Future()

    def take(done: "Future[Any]") -> None:
        spoil(mine)
        if problem := done.exception():
            outcome.set_exception(problem)
            return
        kept = copied(done.result())
        spoil(done.result())
        outcome.set_result(kept)

    agent.submit(mine, op, **more).add_done_callback(take)
    return outcome


def copied(tensor: Any) -> Any:
    """Return the same values, in memory of their own."""
    return tensor.detach().clone() if isinstance(tensor, torch.Tensor) else np.array(tensor)


def spoil(tensor: Any) -> None:
    """Overwrite a tensor, if it is writable."""
    if isinstance(tensor, torch.Tensor):
        tensor.detach().fill_(SPOILT)
    else:
        with contextlib.suppress(ValueError):  # it is read-only
            tensor[...] = SPOILT


QUANTIZERS = (
    "int32",
    "int32+stochastic",
    "int32+feedback",
    "int16",
    "int8+stochastic",
    "strom:0.5",
)


KINDS = [
    *[("int32", op, "") for op in ("sum", "max", "min")],
    ("int32, large", "sum", ""),
    ("int64", "sum", ""),
    *[("float32", op, "") for op in ("max", "min")],
    *[("float32", op, quantizer) for op in ("sum", "mean") for quantizer in QUANTIZERS],
]


"""A tensor, an operation, and a quantizer: one of each kind that goes through the switch."""


def vector(dtype: str, elements: int, seed: int = 1) -> np.ndarray:
    chance = np.random.default_rng(seed)
    if dtype == "float32":
        return chance.standard_normal(elements, np.float32)
    most = 2**30 if dtype == "int32, large" else 2**20
    return chance.integers(-most, most, elements, dtype.partition(",")[0])
