"""Local SGD: k steps alone, then a common one (Arnold, 2016)."""

from torch import nn
from torch.optim import Optimizer

from innet.errors import UsageError
from innet.training.algorithm import Algorithm
from innet.training.packing import Packing
from innet.training.transports.base import Transport


class LocalSGD(Algorithm):
    """Local SGD: every worker makes `k` steps of its own and adds up its updates.

    Then the mean of these sums is applied to the parameters before the k steps: W ← W + mean(ΔW).
    The optimizer's state, such as momentum, stays each worker's own.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        transport: Transport,
        *,
        k: int = 4,
        packing: Packing = "packed",
    ) -> None:
        if k < 1:
            raise UsageError(f"k is {k}: it has to be at least 1")
        super().__init__(model, optimizer, transport, packing)
        self.k = k
        self._before = [segment.values() for segment in self.segments]

    def update(self) -> None:
        """Make a local step, and after every k-th one the common step."""
        with self.updating():
            self.optimizer.step()
        if self.iteration % self.k:
            return
        with self.updating():
            futures = [
                self.transport.all_reduce(segment.values() - before)
                for segment, before in zip(self.segments, self._before, strict=True)
            ]
        with self.waiting():
            updates = [future.result() for future in futures]
        with self.updating():
            for index, segment in enumerate(self.segments):
                self._before[index] += updates[index]
                segment.set_values(self._before[index])
