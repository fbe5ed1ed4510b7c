"""Elastic averaging with a centre at a server: Original, Async, MEASGD, Hogwild, Sync EASGD1."""

from abc import abstractmethod
from functools import partial
from typing import TYPE_CHECKING

from torch import Tensor, nn
from torch.optim import Optimizer

from innet.errors import UsageError
from innet.training.algorithm import Algorithm, momentum, rate
from innet.training.elastic import (
    ElasticServer,
    HogwildElasticServer,
    RoundRobinServer,
    SyncElasticServer,
    pull_of,
)
from innet.training.packing import Packing
from innet.training.server import CentreServer
from innet.training.transports.base import Transport

if TYPE_CHECKING:
    from concurrent.futures import Future

_COMMON_PULL = 0.9


class Elastic(Algorithm):
    """The base of the elastic-averaging family. Each worker has its own model; the centre is the result.

    `rho` is ρ. By default ρ = 0.9 / (ηP), as the authors of EASGD suggest (Zhang, Choromanska and
    LeCun, 2015, section 5): all P workers together then pull the centre by 0.9 of the way at once.
    :meth:`centres` and :meth:`load_centre` give the result of the training.
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
        self.check(optimizer)
        step = rate(optimizer)
        if rho is None and not step > 0:
            raise UsageError(f"the step size is {step}: it gives no default of rho, so give one")
        self.rho = _COMMON_PULL / (step * transport.workers) if rho is None else rho
        if self.rho <= 0:
            raise UsageError(f"rho is {self.rho}: it has to be positive")
        super().__init__(model, optimizer, transport, packing)
        self.seen = [segment.values() for segment in self.segments]
        """The centre of every segment, as this worker saw it last."""

    def check(self, optimizer: Optimizer) -> None:
        """Raise UsageError if the optimizer has momentum: equation (1) has none."""
        if momentum(optimizer):
            raise UsageError(
                f"{type(self).__name__} has no momentum: use async-measgd, or momentum=0"
            )

    @property
    def strength(self) -> float:
        """Return ηρ, with the present η."""
        return rate(self.optimizer) * self.rho

    @abstractmethod
    def centres(self) -> list[Tensor]:
        """Return the centre of every segment."""

    def load_centre(self) -> None:
        """Copy the centre into the model, to evaluate or keep it. Works after :meth:`close` too."""
        for segment, centre in zip(self.segments, self.centres(), strict=True):
            segment.set_values(centre)

    def move(self, weights: list[Tensor], centres: list[Tensor]) -> None:
        """Apply equation (1), or (5) and (6), with W and C from before the optimizer's step."""
        pulls = [
            pull_of(weight, centre, self.strength)
            for weight, centre in zip(weights, centres, strict=True)
        ]
        self.optimizer.step()
        for segment, pull in zip(self.segments, pulls, strict=True):
            segment.add_values(-pull)


class ServedEASGD(Elastic):
    """Elastic averaging with the centre at a server.

    Workers send their weights before a pass, and move after it.
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
        self._last: list[Tensor] | None = None
        self._weights: list[Tensor] = []
        self._coming: list[Future[Tensor]] = []
        self.clients = [
            transport.connect(segment.size, partial(self.server, segment.values()))
            for segment in self.segments
        ]

    @abstractmethod
    def server(self, initial: Tensor) -> CentreServer:
        """Return the server that keeps the centre of a segment with these values."""

    def begin(self) -> None:
        """Send W, and receive C during the forward and backward pass (section 5.1, steps 1 and 2).

        If it is not called, `update` sends W. The weights are the same then, and so are the
        results.
        """
        self._exchange()

    def update(self) -> None:
        """Wait for C and move."""
        self._exchange()
        with self.waiting():
            self.seen = self._settle()
        with self.updating():
            self.move(self._weights, self.seen)

    def _exchange(self) -> None:
        """Push W and pull C in the background, once a step."""
        if self._coming:
            return
        with self.updating():
            self._weights = [segment.values() for segment in self.segments]
            self._coming = [
                client.submit(weight, self.strength)
                for client, weight in zip(self.clients, self._weights, strict=True)
            ]

    def _settle(self) -> list[Tensor]:
        """Wait for the exchanged centres and return them."""
        coming, self._coming = self._coming, []
        return [future.result() for future in coming]

    def centres(self) -> list[Tensor]:
        """Return the servers' centres; after `close`, the centres at that time."""
        if self._last:
            return self._last
        for future in self._coming:  # one request at a time on a connection
            future.result()
        return [client.pull() for client in self.clients]

    def close(self) -> None:
        """Leave the servers. From then on the worker keeps the present centre."""
        if self._last is None:
            self._settle()
            self._last = self.centres()
            for client in self.clients:
                client.close()


class AsyncEASGD(ServedEASGD):
    """EASGD in the order of arrival: equations (1) and (2).

    With `one_at_a_time` the master exchanges weights with one worker after the other (section 1).
    Otherwise the transfers of several workers overlap, and only the update has a lock.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        transport: Transport,
        *,
        rho: float | None = None,
        one_at_a_time: bool = False,
        packing: Packing = "packed",
    ) -> None:
        self._one_at_a_time = one_at_a_time
        super().__init__(model, optimizer, transport, rho=rho, packing=packing)

    def server(self, initial: Tensor) -> CentreServer:
        """Return a server with a lock."""
        return ElasticServer(initial, self.transport.workers, one_at_a_time=self._one_at_a_time)


class AsyncMEASGD(AsyncEASGD):
    """Async EASGD with momentum at the workers: equations (5), (6) and (2)."""

    def check(self, optimizer: Optimizer) -> None:
        """Raise UsageError if the optimizer has no momentum."""
        if not momentum(optimizer):
            raise UsageError(
                "async-measgd needs an optimizer with momentum, such as SGD(momentum=0.9)"
            )


class HogwildEASGD(ServedEASGD):
    """Async EASGD without a lock at the centre: workers exchange weights with it at the same time."""

    def server(self, initial: Tensor) -> CentreServer:
        """Return a server without a lock."""
        return HogwildElasticServer(initial, self.transport.workers)


class OriginalEASGD(ServedEASGD):
    """Round robin (Algorithm 1): a worker's exchange begins when the one before it is done.

    `begin` waits for the worker's turn, so that workers compute one after the other: Original
    EASGD* of table 3. Without calls of `begin`, workers compute while others have their turn, and
    only the exchanges are in order. The gradients are the same in both cases.
    """

    _at_turn = False

    def server(self, initial: Tensor) -> CentreServer:
        """Return a server that serves the workers in the order of ranks."""
        return RoundRobinServer(initial, self.transport.workers)

    def begin(self) -> None:
        """Wait for this worker's turn and get the centre (line 11)."""
        with self.waiting():
            self.seen = [client.pull() for client in self.clients]
        self._at_turn = True

    def update(self) -> None:
        """Move and push the weights (lines 13 to 15)."""
        if not self._at_turn:
            self.begin()
        self._at_turn = False
        with self.updating():
            weights = [segment.values() for segment in self.segments]
            self.move(weights, self.seen)
        with self.waiting():
            for client, weight in zip(self.clients, weights, strict=True):
                client.push(weight, self.strength)


class SyncEASGD1(ServedEASGD):
    """Synchronous EASGD with the centre at a server (Algorithm 2): equations (1) and (2).

    The paper's master reduces and broadcasts in a tree. This server has a thread for each worker.
    """

    def server(self, initial: Tensor) -> CentreServer:
        """Return a server that waits for all workers' weights."""
        return SyncElasticServer(initial, self.transport.workers)

    def begin(self) -> None:
        """Do nothing: only Sync EASGD3 overlaps the exchange with the pass."""
