"""Over the innet agent: the switch makes the sums."""

from concurrent.futures import Future

import torch
from torch import Tensor

from innet.host.agent import Agent
from innet.training.transports.base import Transport


class SwitchTransport(Transport):
    """Over a worker's seat in a job. The agent is the caller's, and stays open.

    `quantizer` says how the vectors travel (docs/quantization.md); by default as the agent's do. With
    error feedback only one vector may be reduced in a step: ``packing="packed"``.
    """

    def __init__(self, agent: Agent, quantizer: str | None = None) -> None:
        self.agent, self._quantizer = agent, quantizer
        self.rank, self.workers = agent.seat.rank, agent.seat.workers

    def all_reduce(self, vector: Tensor) -> Future[Tensor]:
        """The mean, as exact as :mod:`innet.host.quantize` says."""
        return self.agent.submit(vector, quantizer=self._quantizer, key=vector.numel())

    def broadcast(self, vector: Tensor) -> Tensor:
        """An exact sum of integers, of which only worker 0's are not zero: they are its bits."""
        bits = vector.clone().view(torch.int32)
        if self.rank:
            bits.zero_()
        return self.agent.all_reduce(bits, "sum").view(torch.float32)

    def close(self, *, abandon: bool = False) -> None:
        """Nothing: who joined the job leaves it."""
        del abandon
