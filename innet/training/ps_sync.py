"""PS-Sync: synchronous SGD at a parameter server (Li et al., 2018, section 2)."""

from torch import Tensor, nn
from torch.optim import Optimizer

from innet.training.centred import Centred
from innet.training.gradient_servers import SoftsyncServer
from innet.training.packing import Packing
from innet.training.server import Server
from innet.training.transports.base import Transport


class PSSync(Centred):
    """The server updates once it has the gradients of all, and shares the updated parameters."""

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        transport: Transport,
        *,
        packing: Packing = "packed",
    ) -> None:
        super().__init__(model, optimizer, transport, packing)

    def server(self, initial: Tensor) -> Server:
        """n-softsync with all workers in a batch."""
        return SoftsyncServer(
            initial, self.transport.workers, self.optimizer, self.transport.workers
        )
