"""Asynchronous SGD at a parameter server, with and without momentum, and without a lock."""

from torch import Tensor, nn
from torch.optim import Optimizer

from innet.errors import UsageError
from innet.training.algorithm import momentum
from innet.training.centred import Centred
from innet.training.gradient_servers import AsyncServer, HogwildServer
from innet.training.packing import Packing
from innet.training.server import CentreServer
from innet.training.transports.base import Transport


class AsyncSGD(Centred):
    """W ← W - η ΔW for every gradient, in the order of arrival (You et al., section 3.1).

    With `staleness_aware`, η is divided by the gradient's staleness in updates if that is more than
    1 (Zhang et al., 2015, in Arnold, 2016). With `one_at_a_time` the server serves the next worker
    only when the one before it has its answer, as You et al.'s master does. Otherwise the transfers
    of several workers overlap.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        transport: Transport,
        *,
        staleness_aware: bool = False,
        one_at_a_time: bool = False,
        packing: Packing = "packed",
    ) -> None:
        self._staleness_aware, self._one_at_a_time = staleness_aware, one_at_a_time
        self.check(optimizer)
        super().__init__(model, optimizer, transport, packing=packing)

    def check(self, optimizer: Optimizer) -> None:
        """Raise UsageError if the optimizer has momentum."""
        if momentum(optimizer):
            raise UsageError("async-sgd has no momentum: use async-msgd, or momentum=0")

    def server(self, initial: Tensor) -> CentreServer:
        """Return a server that applies every gradient in the order of arrival."""
        return AsyncServer(
            initial,
            self.transport.workers,
            self.optimizer,
            staleness_aware=self._staleness_aware,
            one_at_a_time=self._one_at_a_time,
        )


class AsyncMSGD(AsyncSGD):
    """V ← μ V - η ΔW, W ← W + V, at the server: equations (3) and (4) of You et al."""

    def check(self, optimizer: Optimizer) -> None:
        """Raise UsageError if the optimizer has no momentum."""
        if not momentum(optimizer):
            raise UsageError(
                "async-msgd needs an optimizer with momentum, such as SGD(momentum=0.9)"
            )


class HogwildSGD(Centred):
    """Async SGD without a lock (Recht et al., 2011; You et al., section 3.2)."""

    def server(self, initial: Tensor) -> CentreServer:
        """Return a server without a lock."""
        return HogwildServer(initial, self.transport.workers, self.optimizer)
