"""Sync EASGD2 and Sync EASGD3: the centre is with the workers (You et al., Algorithms 3 and 4).

Every worker keeps a copy of the centre. The sum of the weights is all that it takes to update them, so
they stay equal bit by bit and nothing has to be broadcast: one all-reduce an iteration, over any
transport, also the switch. Over :class:`innet.training.transports.tree.Tree` that is the paper's tree
reduction.
"""

from concurrent.futures import Future

from torch import Tensor, nn
from torch.optim import Optimizer

from innet.training.easgd import Elastic
from innet.training.elastic import pull_of
from innet.training.packing import Packing
from innet.training.transports.base import Transport


class SyncEASGD2(Elastic):
    """All-reduce the weights after the backward pass; equations (1) and (2)."""

    def update(self) -> None:
        """Sum the weights, move them, and move the centre."""
        with self.updating():
            weights = [segment.values() for segment in self.segments]
        self.finish(weights, self.submit(weights))

    def submit(self, weights: list[Tensor]) -> list[Future[Tensor]]:
        """Begin the all-reduce of the weights."""
        return [self.transport.all_reduce(weight) for weight in weights]

    def finish(self, weights: list[Tensor], futures: list[Future[Tensor]]) -> None:
        """(1) or (5) and (6), then (2): Σ (W - C) is P times the difference of mean and centre."""
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
        """The centre, as all workers have it."""
        return self.seen


class SyncEASGD3(SyncEASGD2):
    """The same, overlapped: the all-reduce runs beside the forward and backward pass.

    The weights that it sums are known before the pass; the results are those of Sync EASGD2.
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
        """Finish the exchange that began before the pass, and begin the next."""
        self.finish(self._weights, self._futures)
        self._begin_exchange()

    def close(self) -> None:
        """Wait for the exchange that nobody needs any more."""
        for future in self._futures:
            future.result()

    def _begin_exchange(self) -> None:
        with self.updating():
            self._weights = [segment.values() for segment in self.segments]
            self._futures = self.submit(self._weights)
