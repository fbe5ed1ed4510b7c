"""PS-Sync: synchronous SGD at a parameter server (Li et al., 2018, section 2)."""

from torch import Tensor

from innet.training.centred import Centred
from innet.training.gradient_servers import SoftsyncServer
from innet.training.server import CentreServer


class PSSync(Centred):
    """Synchronous SGD: one update of the centre with the gradients of all workers."""

    def server(self, initial: Tensor) -> CentreServer:
        """Return an n-softsync server with all workers in a batch."""
        return SoftsyncServer(
            initial, self.transport.workers, self.optimizer, self.transport.workers
        )
