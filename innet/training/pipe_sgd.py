"""Pipe-SGD: Li et al., "Pipe-SGD: A Decentralized Pipelined SGD Framework", NeurIPS 2018, Algorithm 1."""

from collections import deque
from typing import TYPE_CHECKING

from torch import nn
from torch.optim import Optimizer

from innet.errors import UsageError
from innet.training.algorithm import Algorithm
from innet.training.gradients import GradientExchange
from innet.training.packing import Packing
from innet.training.transports.base import Transport

if TYPE_CHECKING:
    from concurrent.futures import Future

    from torch import Tensor


class PipeSGD(Algorithm):
    """Update with the gradients of K - 1 iterations ago, while newer ones are being exchanged.

    This is Algorithm 1, w[t] = w[t-1] - γ g[t-K], with two threads per worker: the user's thread
    computes, and the transport's communicates. Gradients are always K - 1 iterations old. K = 1 is
    D-Sync, and K = 2 hides communication as well as any larger K (equation 4). g is the mean over
    the workers, where the paper has the sum, so γ is p times the paper's.

    The first `warmup` steps are those of D-Sync (section 4, accuracy). The K - 1 steps after the
    warm-up have no gradient to update with, and leave the model and the optimizer alone. The last
    K - 1 gradients are not used.

    `overlap` selects pipelined gradient communication, with as many segments as `packing` gives
    (equation 6). Without it communication is sequential (equation 5). Codecs belong to the
    transport: see :class:`innet.training.transports.ring.Ring`.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        transport: Transport,
        *,
        K: int = 2,  # noqa: N803 - as in the paper
        warmup: int = 0,
        packing: Packing = "packed",
        overlap: bool = False,
    ) -> None:
        if K < 1:
            raise UsageError(f"K is {K}: it has to be at least 1")
        if warmup < 0:
            raise UsageError(f"warmup is {warmup}: it has to be a number of steps")
        super().__init__(model, optimizer, transport, packing)
        self.K, self.warmup = K, warmup
        self._exchange = GradientExchange(self.segments, transport, overlap=overlap)
        self._flying: deque[list[Future[Tensor]]] = deque()

    def update(self) -> None:
        """Run lines 8 to 10 of the computation thread, then 3 to 5 of the next iteration."""
        with self.updating():
            self._flying.append(self._exchange.start())
        depth = 1 if self.iteration <= self.warmup else self.K
        if len(self._flying) < depth:
            return  # g[1-K], ..., g[0] are zero
        with self.waiting():
            means = [future.result() for future in self._flying.popleft()]
        with self.updating():
            for segment, mean in zip(self.segments, means, strict=True):
                segment.set_gradients(mean)
            self.optimizer.step()

    def close(self) -> None:
        """Wait for the gradients that are being exchanged."""
        self._exchange.close()
        for futures in self._flying:
            for future in futures:
                future.result()
        self._flying.clear()
