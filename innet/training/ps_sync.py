"""PS-Sync: synchronous SGD at a parameter server (Li et al., 2018, section 2)."""

from torch import Tensor

from innet.training.centred import Centred
from innet.training.gradient_servers import SoftsyncServer
from innet.training.server import Server


class PSSync(Centred):
    """The server updates once it has the gradients of all, and shares the updated parameters."""

    def server(self, initial: Tensor) -> Server:
        """n-softsync with all workers in a batch."""
        return SoftsyncServer(
            initial, self.transport.workers, self.optimizer, self.transport.workers
        )
