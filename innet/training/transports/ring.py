"""Ring all-reduce with compression inside (Li et al., 2018, figures 2c and 3).

A vector is cut into as many blocks as there are workers. In the first p - 1 steps every worker
transmits a block to its neighbour and reduces the one that it receives. Then each block is fully
reduced at one worker. In p - 1 more steps the reduced blocks go around the ring. With a codec,
every block is compressed before it is transmitted, and decompressed before it is reduced.

In the *native* ring (figure 3a, above) a block is received, then reduced, and then the next one is
transmitted. In the *pipelined* ring (below) a block is cut into parts, and one part is transmitted
while another is reduced. Set `parts` for that.
"""

import time
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future

import torch
from torch import Tensor

from innet.errors import UsageError
from innet.training.message_codecs import PLAIN, MessageCodec
from innet.training.server import CentreServer
from innet.training.transports.base import Background, CentreClient, Transport


class Ring(Transport):
    """A ring over the messages of another transport. Closing it closes that transport too."""

    def __init__(self, over: Transport, codec: MessageCodec = PLAIN, parts: int = 1) -> None:
        if parts < 1:
            raise UsageError(f"{parts} parts of a block: there has to be at least 1")
        self._over, self._codec, self._parts = over, codec, parts
        self.rank, self.workers = over.rank, over.workers
        self._background = Background(f"innet-ring-{over.rank}")
        self._coming: deque[Callable[[], Tensor]] = deque()
        self.bytes_sent = 0
        self.busy = self.compressing = 0.0
        """Seconds of the communication thread so far: in all-reduces, and of these in the codec."""

    def all_reduce(self, vector: Tensor) -> Future[Tensor]:
        """Compute the mean. A block is summed in the order of the ring."""
        return self._background.run(self._mean, vector)

    def broadcast(self, vector: Tensor) -> Tensor:
        """Broadcast over the other transport."""
        return self._over.broadcast(vector)

    def connect(self, size: int, make: Callable[[], CentreServer]) -> CentreClient:
        """Connect over the other transport."""
        return self._over.connect(size, make)

    def close(self, *, abandon: bool = False) -> None:
        """End the communication thread, and close the other transport."""
        self._background.close(abandon=abandon)
        self._over.close(abandon=abandon)

    def _mean(self, vector: Tensor) -> Tensor:
        if self.workers == 1:
            return vector.clone()
        began = time.perf_counter()
        blocks = [
            list(block.clone().tensor_split(self._parts))
            for block in vector.tensor_split(self.workers)
        ]
        self._expect(blocks)
        self._reduce_scatter(blocks)
        self._all_gather(blocks)
        mean = torch.cat([part for block in blocks for part in block]) / self.workers
        self.busy += time.perf_counter() - began
        return mean

    def _expect(self, blocks: list[list[Tensor]]) -> None:
        """Announce all messages to come: an announcement made later waits behind transmitted blocks."""
        steps = range(self.workers - 1)
        due = [self.rank - 1 - step for step in steps] + [self.rank - step for step in steps]
        self._coming = deque(
            self._over.expect((self.rank - 1) % self.workers, self._codec.size(part.numel()))
            for block in due
            for part in blocks[block % self.workers]
        )

    def _reduce_scatter(self, blocks: list[list[Tensor]]) -> None:
        """Transmit and reduce. Afterwards this worker has the sum of block `rank` + 1."""
        for part in blocks[self.rank]:
            self._transmit(self._encode(part))
        for step in range(self.workers - 1):
            block = blocks[(self.rank - 1 - step) % self.workers]
            for index, part in enumerate(block):
                block[index] = part + self._decode(self._coming.popleft()())
                if step < self.workers - 2:
                    self._transmit(self._encode(block[index]))

    def _all_gather(self, blocks: list[list[Tensor]]) -> None:
        """Pass the reduced blocks around as the same bytes, so that all workers decode the same."""
        mine = blocks[(self.rank + 1) % self.workers]
        for index, part in enumerate(mine):
            message = self._encode(part)
            self._transmit(message)
            mine[index] = self._decode(message)
        for step in range(self.workers - 1):
            block = blocks[(self.rank - step) % self.workers]
            for index in range(len(block)):
                message = self._coming.popleft()()
                if step < self.workers - 2:
                    self._transmit(message)
                block[index] = self._decode(message)

    def _encode(self, vector: Tensor) -> Tensor:
        began = time.perf_counter()
        message = self._codec.encode(vector)
        self.compressing += time.perf_counter() - began
        return message

    def _decode(self, message: Tensor) -> Tensor:
        began = time.perf_counter()
        vector = self._codec.decode(message)
        self.compressing += time.perf_counter() - began
        return vector

    def _transmit(self, message: Tensor) -> None:
        self.bytes_sent += message.numel()
        self._over.send((self.rank + 1) % self.workers, message)
