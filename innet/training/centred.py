"""Algorithms whose workers give gradients to a parameter server and go on with what it answers."""

from abc import abstractmethod
from functools import partial

from torch import Tensor, nn
from torch.optim import Optimizer

from innet.training.algorithm import Algorithm, rate
from innet.training.packing import Packing
from innet.training.server import Server, only_group
from innet.training.transports.base import Transport


class Centred(Algorithm):
    """Push the gradient, and take the centre for the model.

    The server updates the centre with an optimizer of the same kind and options as the worker's, and
    with the worker's step size of the moment; the worker's own only tells it. Every segment has a
    server of its own.
    """

    def __init__(
        self,
        model: nn.Module,
        optimizer: Optimizer,
        transport: Transport,
        *,
        packing: Packing = "packed",
    ) -> None:
        only_group(optimizer)
        super().__init__(model, optimizer, transport, packing)
        self._clients = [
            transport.connect(segment.size, partial(self.server, segment.values()))
            for segment in self.segments
        ]

    @abstractmethod
    def server(self, initial: Tensor) -> Server:
        """The server that the algorithm takes, of a segment with these values."""

    def update(self) -> None:
        """Gradients out, parameters in."""
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
