"""Algorithms whose workers send gradients to a parameter server and go on with its answer."""

from abc import abstractmethod
from functools import partial

from torch import Tensor, nn
from torch.optim import Optimizer

from innet.training.algorithm import Algorithm, rate
from innet.training.packing import Packing
from innet.training.server import CentreServer, check_complete
from innet.training.transports.base import Transport


class Centred(Algorithm):
    """The base of algorithms that push the gradient and take the server's centre as the model.

    The server updates the centre with an optimizer of the same kind and options as the worker's,
    and with the worker's present step size. The worker's own optimizer takes no steps: it only
    defines the server's. Every segment has a server of its own.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        transport: Transport,
        *,
        packing: Packing = "packed",
    ) -> None:
        check_complete(model, optimizer)
        super().__init__(model, optimizer, transport, packing)
        self._clients = [
            transport.connect(segment.size, partial(self.server, segment.values()))
            for segment in self.segments
        ]

    @abstractmethod
    def server(self, initial: Tensor) -> CentreServer:
        """Return the algorithm's server for a segment with these values."""

    def update(self) -> None:
        """Push the gradients and pull the parameters."""
        step = rate(self.optimizer)
        for segment, client in zip(self.segments, self._clients, strict=True):
            with self.updating():
                gradients = segment.gradients()
            with self.waiting():
                centre = client.push_pull(gradients, step)
            with self.updating():
                segment.set_values(centre)

    def close(self) -> None:
        """Leave the servers."""
        for client in self._clients:
            client.close()
