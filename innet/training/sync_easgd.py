"""Sync EASGD2 and Sync EASGD3: the workers keep the centre (You et al., Algorithms 3 and 4).

Every worker keeps a copy of the centre. The sum of the weights is enough to update the copies, so
they stay equal bit by bit and nothing has to be broadcast. An iteration takes one all-reduce, over
any transport, including the switch. Over :class:`innet.training.transports.tree.Tree` it is the
paper's tree reduction.
"""

from concurrent.futures import Future

from torch import Tensor, nn
from torch.optim import Optimizer

from innet.training.easgd import Elastic
from innet.training.elastic import pull_of
from innet.training.packing import Packing
from innet.training.transports.base import Transport


class SyncEASGD2(Elastic):
    """Elastic averaging with an all-reduce after the backward pass: equations (1) and (2)."""

    def update(self) -> None:
        """Sum the weights, move them, and move the centre."""
        with self.updating():
            weights = [segment.values() for segment in self.segments]
        self.finish(weights, self.submit(weights))

    def submit(self, weights: list[Tensor]) -> list[Future[Tensor]]:
        """Begin the all-reduce of the weights."""
        return [self.transport.all_reduce(weight) for weight in weights]

    def finish(self, weights: list[Tensor], futures: list[Future[Tensor]]) -> None:
        """Apply (1) or (5) and (6), then (2): Σ (W - C) is P times the difference of mean and centre."""
        with self.waiting():
            means = [future.result() for future in futures]
        with self.updating():
            self.move(weights, self.seen)
            strength = self.strength * self.transport.workers
            self.seen = [
                centre + pull_of(mean, centre, strength)
                for centre, mean in zip(self.seen, means, strict=True)
            ]

    def centres(self) -> list[Tensor]:
        """Return the centre, which is the same at all workers."""
        return self.seen


class SyncEASGD3(SyncEASGD2):
    """Sync EASGD2 with the all-reduce during the forward and backward pass.

    The all-reduce sums the weights from before the pass, so the results are those of Sync EASGD2.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        transport: Transport,
        *,
        rho: float | None = None,
        packing: Packing = "packed",
    ) -> None:
        super().__init__(model, optimizer, transport, rho=rho, packing=packing)
        self._begin_exchange()

    def update(self) -> None:
        """Finish the exchange that began before the pass, and begin the next one."""
        self.finish(self._weights, self._futures)
        self._begin_exchange()

    def close(self) -> None:
        """Wait for the last exchange, whose result is not used."""
        for future in self._futures:
            future.result()

    def _begin_exchange(self) -> None:
        with self.updating():
            self._weights = [segment.values() for segment in self.segments]
            self._futures = self.submit(self._weights)
