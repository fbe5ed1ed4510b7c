"""What an algorithm needs of a network: means, a copy from worker 0, messages, parameter servers."""

import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Protocol, Self

from torch import Tensor

from innet.errors import UsageError
from innet.training.server import Server


class Client(Protocol):
    """A worker's way to a parameter server. Vectors are flat float32 on the CPU."""

    def pull(self) -> Tensor:
        """The centre, a copy, (n,)."""

    def push_pull(self, vector: Tensor, rate: float) -> Tensor:
        """Give the server a vector, (n,), and a step size. Returns what it answers, (n,)."""

    def submit(self, vector: Tensor, rate: float) -> Future[Tensor]:
        """:meth:`push_pull` in the background. The vector must not change until it is done."""

    def push(self, vector: Tensor, rate: float) -> None:
        """The same without an answer."""

    def close(self) -> None:
        """This worker gives and asks no more."""


class Transport(ABC):
    """One worker's end of a network between `workers` workers, of which it is number `rank`.

    Every worker has to make the same calls in the same order. Vectors are flat float32 tensors on the
    CPU. Raises PeerFailed where another worker is gone.
    """

    rank: int
    workers: int

    @abstractmethod
    def all_reduce(self, vector: Tensor) -> Future[Tensor]:
        """The mean over the workers, in the background, in the order of the calls.

        The vector must not change until then. All workers get the same bits.
        """

    @abstractmethod
    def broadcast(self, vector: Tensor) -> Tensor:
        """Worker 0's vector, the very bits, of the same size as this worker's."""

    def send(self, to: int, message: Tensor) -> None:
        """Send bytes, uint8 (n,), to a worker, in the background; they must not change."""
        del to, message
        raise UsageError(f"{type(self).__name__} carries no messages between two workers")

    def receive(self, source: int, size: int) -> Tensor:
        """The next message of a worker, uint8 (size,). Waits for it."""
        del source, size
        raise UsageError(f"{type(self).__name__} carries no messages between two workers")

    def expect(self, source: int, size: int) -> Callable[[], Tensor]:
        """Say that a worker's next message, uint8 (size,), may come; what it returns waits for it.

        Several may be expected of a worker; they are to be waited for in their order.
        """
        return partial(self.receive, source, size)

    def connect(self, size: int, make: Callable[[], Server]) -> Client:
        """A client of a parameter server for `size` elements, which worker 0 makes.

        The others may make one too, to know what it begins with and how it talks.
        """
        del size, make
        raise UsageError(
            f"{type(self).__name__} has no parameter server: use ProcessGroupTransport, or threads"
        )

    @abstractmethod
    def close(self, *, abandon: bool = False) -> None:
        """End the background work, after what was begun is done; with `abandon`, at once."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        self.close(abandon=kind is not None)


class Background:
    """The communication thread of a worker: one call after the other."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[_Call | None] = queue.SimpleQueue()
        # A daemon, so that a script that fails ends, whatever its communication waits for.
        self._thread = threading.Thread(target=self._serve, name=name, daemon=True)
        self._thread.start()

    def run(self, reduce: Callable[[Tensor], Tensor], vector: Tensor) -> Future[Tensor]:
        """`reduce(vector)`, in the order of the calls."""
        future: Future[Tensor] = Future()
        future.set_running_or_notify_cancel()  # not to be cancelled: the others rely on it
        self._calls.put((future, reduce, vector))
        return future

    def close(self, *, abandon: bool = False) -> None:
        """End the thread after what was begun; with `abandon`, without waiting for that."""
        self._calls.put(None)
        if not abandon:
            self._thread.join()

    def _serve(self) -> None:
        while call := self._calls.get():
            future, reduce, vector = call
            try:
                future.set_result(reduce(vector))
            except BaseException as problem:  # noqa: BLE001 - handed to who waits for the result
                future.set_exception(problem)


_Call = tuple[Future[Tensor], Callable[[Tensor], Tensor], Tensor]
