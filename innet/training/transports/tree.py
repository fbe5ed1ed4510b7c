"""Tree reduction: about 2 log P messages deep, instead of P (You et al., section 6.1.1).

The tree also supports groups of replicas within a node (section 6.2). The replicas' vectors are
summed in a tree, and the first replica takes the sum to the network between the nodes. The result
comes back down the tree.
"""

from collections.abc import Callable, Sequence
from concurrent.futures import Future

import torch
from torch import Tensor

from innet.errors import UsageError
from innet.training.server import CentreServer
from innet.training.transports.base import Background, CentreClient, Transport


class Tree(Transport):
    """A binomial tree over the messages of another transport. Closing it closes that transport too.

    `between` is the network between the nodes, with one end per node. Replica 0 of every node must
    give it. Nodes must have the same number of replicas. The worker's `rank` counts the replicas of all
    nodes. All replicas of a node make their ends at the same time.
    """

    def __init__(self, over: Transport, between: Transport | None = None) -> None:
        self._over, self._between = over, between
        self._replica, self._replicas = over.rank, over.workers
        here = [between.rank, between.workers] if between else [0, 1]
        # Only the first replica knows the number of the node, and of the nodes.
        node, nodes = map(int, self._down(torch.tensor(here, dtype=torch.float32)).tolist())
        self.rank = node * self._replicas + self._replica
        self.workers = nodes * self._replicas
        self._background = Background(f"innet-tree-{self.rank}")

    def all_reduce(self, vector: Tensor) -> Future[Tensor]:
        """Compute the mean: up the tree, between the nodes, and down the tree."""
        return self._background.run(self._mean, vector)

    def broadcast(self, vector: Tensor) -> Tensor:
        """Broadcast the vector of the first node's first replica down the tree."""
        if self._between and not self._replica:
            vector = self._between.broadcast(vector)
        return self._down(vector)

    def check_sizes(self, sizes: Sequence[int]) -> None:
        """Raise UsageError if the network between the nodes cannot reduce vectors of these sizes."""
        if self._between:
            self._between.check_sizes(sizes)

    def connect(self, size: int, make: Callable[[], CentreServer]) -> CentreClient:
        """Connect over the other transport. Raises UsageError for a tree of several nodes."""
        if self.workers > self._replicas:
            raise UsageError(
                f"a tree of {self.workers // self._replicas} nodes has no parameter server for all of "
                "them: use ProcessGroupTransport, or an algorithm without a server"
            )
        return self._over.connect(size, make)

    def close(self, *, abandon: bool = False) -> None:
        """End the communication thread, and close the other transports."""
        self._background.close(abandon=abandon)
        self._over.close(abandon=abandon)
        if self._between:
            self._between.close(abandon=abandon)

    def _mean(self, vector: Tensor) -> Tensor:
        mean = self._up(vector) / self._replicas
        if self._between and not self._replica:
            mean = self._between.all_reduce(mean).result()
        return self._down(mean)

    def _up(self, vector: Tensor) -> Tensor:
        """Return the sum of this rank and all below it. Rank r sends it to r less its lowest set bit."""
        total = vector.clone()
        bit = 1
        while bit < self._replicas and not self._replica & bit:
            if self._replica + bit < self._replicas:
                total += self._receive(self._replica + bit, vector.numel())
            bit *= 2
        if self._replica:
            self._over.send(self._replica & (self._replica - 1), total.clone().view(torch.uint8))
        return total

    def _down(self, vector: Tensor) -> Tensor:
        """Return rank 0's vector, passed down along the same edges."""
        lowest = self._replica & -self._replica or 1 << (self._replicas - 1).bit_length()
        if self._replica:
            vector = self._receive(self._replica - lowest, vector.numel())
        bit = lowest // 2
        while bit:
            if self._replica + bit < self._replicas:
                self._over.send(self._replica + bit, vector.clone().view(torch.uint8))
            bit //= 2
        return vector.clone()

    def _receive(self, source: int, elements: int) -> Tensor:
        return self._over.receive(source, 4 * elements).view(torch.float32)
