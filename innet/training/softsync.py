"""Algorithms between synchronous and asynchronous: n-softsync and backup workers."""

from torch import Tensor, nn
from torch.optim import Optimizer

from innet.training.centred import Centred
from innet.training.gradient_servers import BackupServer, SoftsyncServer
from innet.training.packing import Packing
from innet.training.server import CentreServer
from innet.training.transports.base import Transport


class SoftsyncSGD(Centred):
    """An update for every `n` gradients (Zhang et al., 2015, in Arnold, 2016).

    n = 1 is asynchronous SGD, and n = the number of workers is synchronous SGD.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        transport: Transport,
        *,
        n: int,
        packing: Packing = "packed",
    ) -> None:
        self._n = n
        super().__init__(model, optimizer, transport, packing=packing)

    def server(self, initial: Tensor) -> CentreServer:
        """Return a server with batches of n."""
        return SoftsyncServer(initial, self.transport.workers, self.optimizer, self._n)


class BackupWorkers(Centred):
    """Synchronous SGD that drops the gradients of the `backups` slowest (Chen et al., 2016)."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        transport: Transport,
        *,
        backups: int = 1,
        packing: Packing = "packed",
    ) -> None:
        self._backups = backups
        super().__init__(model, optimizer, transport, packing=packing)

    def server(self, initial: Tensor) -> CentreServer:
        """Return a server that waits for all but the backups."""
        return BackupServer(initial, self.transport.workers, self.optimizer, self._backups)
