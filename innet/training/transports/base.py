"""The interface of a network: means, a broadcast from worker 0, messages, parameter servers."""

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from functools import partial
from typing import Protocol, Self

from torch import Tensor

from innet.errors import UsageError
from innet.training.server import CentreServer


class CentreClient(Protocol):
    """A worker's connection to a parameter server. Vectors are flat float32 on the CPU."""

    def pull(self) -> Tensor:
        """Return a copy of the centre, (n,)."""

    def push_pull(self, vector: Tensor, rate: float) -> Tensor:
        """Give the server a vector, (n,), and a step size. Return its answer, (n,)."""

    def submit(self, vector: Tensor, rate: float) -> Future[Tensor]:
        """Run :meth:`push_pull` in the background. Do not change the vector until it is done."""

    def push(self, vector: Tensor, rate: float) -> None:
        """Give the server a vector, (n,), and a step size, without an answer."""

    def close(self) -> None:
        """Leave the server."""


class Transport(ABC):
    """One worker's end of a network. The worker is number `rank` of `workers`.

    Every worker must make the same calls in the same order. Vectors are flat float32 tensors on the
    CPU. Calls raise PeerFailed if another worker is gone.
    """

    rank: int
    workers: int

    @abstractmethod
    def all_reduce(self, vector: Tensor) -> Future[Tensor]:
        """Compute the mean over the workers, in the background, in the order of the calls.

        Do not change the vector until the future is done. All workers get the same bits.
        """

    @abstractmethod
    def broadcast(self, vector: Tensor) -> Tensor:
        """Return worker 0's vector, bit by bit. It must have the size of this worker's vector."""

    def check_sizes(self, sizes: Sequence[int]) -> None:  # noqa: B027 - most take any
        """Raise UsageError if one step cannot reduce vectors of these sizes."""

    def send(self, to: int, message: Tensor) -> None:
        """Send bytes, uint8 (n,), to a worker, in the background. Do not change them afterwards."""
        del to, message
        raise UsageError(
            f"{type(self).__name__} carries no messages between two workers: use "
            "ProcessGroupTransport, or threads"
        )

    def receive(self, source: int, size: int) -> Tensor:
        """Wait for the next message of a worker, uint8 (size,), and return it."""
        del source, size
        raise UsageError(
            f"{type(self).__name__} carries no messages between two workers: use "
            "ProcessGroupTransport, or threads"
        )

    def expect(self, source: int, size: int) -> Callable[[], Tensor]:
        """Allow a worker to send its next message, uint8 (size,). Return a function that waits for it.

        Several messages may be expected from a worker. Wait for them in their order.
        """
        return partial(self.receive, source, size)

    def connect(self, size: int, make: Callable[[], CentreServer]) -> CentreClient:
        """Return a client of a parameter server for `size` elements, which worker 0 makes.

        The other workers may make one too, to know its initial values and its protocol.
        """
        del size, make
        raise UsageError(
            f"{type(self).__name__} has no parameter server: use ProcessGroupTransport, or threads"
        )

    @abstractmethod
    def close(self, *, abandon: bool = False) -> None:
        """End the background work: after the calls that were begun, or with `abandon` at once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(abandon=kind is not None)


class Background:
    """The communication thread of a worker, which runs one call after the other."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        self._closed = False
        # A daemon thread lets a failed script end, even if its communication still waits for
        # something.
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, reduce: Callable[[Tensor], Tensor], vector: Tensor) -> Future[Tensor]:
        """Run `reduce(vector)` in the thread, in call order. Raises UsageError if it is closed."""
        if self._closed:
            raise UsageError("the transport is closed: make another one")
        future: Future[Tensor] = Future()
        future.set_running_or_notify_cancel()  # cannot be cancelled: the other workers rely on it
        self._calls.put((future, reduce, vector))
        return future

    def close(self, *, abandon: bool = False) -> None:
        """End the thread after the calls that were begun; with `abandon`, do not wait for them."""
        self._closed = True
        self._calls.put(None)
        if not abandon:
            self._thread.join()

    def _serve(self) -> None:
        while call := self._calls.get():
            future, reduce, vector = call
            try:
                future.set_result(reduce(vector))
            except BaseException as problem:  # noqa: BLE001 - handed to whoever waits for the result
                future.set_exception(problem)


_Call = tuple[Future[Tensor], Callable[[Tensor], Tensor], Tensor]
