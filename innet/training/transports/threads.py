"""A transport between threads of one process."""

import queue
import threading
import time
from collections import defaultdict
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import torch
from torch import Tensor

from innet.errors import PeerFailed, UsageError
from innet.training.server import LOST, WITHIN, CentreServer
from innet.training.transports.base import Background, CentreClient, Transport

_LOOK = 0.05  # seconds until a worker that waits for a message notices that another has failed


class Hub:
    """The state that the threads share."""

    def __init__(self, workers: int) -> None:
        if workers < 1:
            raise UsageError(f"{workers} workers: there has to be at least one")
        self.workers = workers
        self.changed = threading.Condition()
        self.failed = False
        self.calls: dict[int, dict[int, Tensor]] = defaultdict(dict)
        self.done: dict[int, Tensor] = {}
        self.messages: dict[tuple[int, int], queue.SimpleQueue[Tensor]] = {
            (source, to): queue.SimpleQueue() for source in range(workers) for to in range(workers)
        }
        self.servers: list[CentreServer] = []

    def fail(self) -> None:
        """Raise PeerFailed in all waiting workers, because a worker broke down."""
        with self.changed:
            self.failed = True
            servers = list(self.servers)
            self.changed.notify_all()
        for server in servers:
            server.fail()

    def meet(self, call: int, rank: int, vector: Tensor) -> Tensor:
        """Return the mean over all workers' `call`-th vectors, summed in the order of ranks."""
        with self.changed:
            here = self.calls[call]
            here[rank] = vector
            if len(here) == self.workers:
                if len({each.shape for each in here.values()}) > 1:
                    self.failed = True
                    self.changed.notify_all()
                    raise UsageError("the workers reduce vectors of different sizes")
                total = here[0].clone()
                for other in range(1, self.workers):
                    total += here[other]
                self.done[call] = total / self.workers
                here.clear()
                self.changed.notify_all()
            self.wait_until(lambda: call in self.done)
            mean = self.done[call].clone()
            here[rank] = vector
            if len(here) == self.workers:  # all workers have it
                del self.calls[call], self.done[call]
            return mean

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait until the condition holds. Call it with the lock held. Raises PeerFailed."""
        done = self.changed.wait_for(lambda: self.failed or condition(), WITHIN)
        if self.failed or not done:
            raise PeerFailed(LOST)


class ThreadTransport(Transport):
    """One thread's end of the network, made by :func:`run` or :func:`group`."""

    def __init__(self, hub: Hub, rank: int) -> None:
        self.hub, self.rank, self.workers = hub, rank, hub.workers
        self._background = Background(f"innet-communication-{rank}")
        self._calls = 0
        self._servers = 0

    def all_reduce(self, vector: Tensor) -> Future[Tensor]:
        """Compute the mean, summed in the order of the ranks."""
        call, self._calls = self._calls, self._calls + 1
        return self._background.run(lambda given: self.hub.meet(call, self.rank, given), vector)

    def broadcast(self, vector: Tensor) -> Tensor:
        """Broadcast through the message queues."""
        if self.rank:
            return self.receive(0, 4 * vector.numel()).view(torch.float32)
        for to in range(1, self.workers):
            self.send(to, vector.clone().view(torch.uint8))
        return vector.clone()

    def send(self, to: int, message: Tensor) -> None:
        """Put the message into the other thread's queue."""
        self.hub.messages[self.rank, to].put(message)

    def receive(self, source: int, size: int) -> Tensor:
        """Take the next message out of this thread's queue."""
        deadline = time.monotonic() + WITHIN
        while not self.hub.failed and time.monotonic() < deadline:
            try:
                message = self.hub.messages[source, self.rank].get(timeout=_LOOK)
            except queue.Empty:
                continue
            if message.numel() != size:
                raise UsageError(f"a message of {message.numel()} bytes where {size} were due")
            return message
        raise PeerFailed(f"no message of worker {source}: {LOST}")

    def connect(self, size: int, make: Callable[[], CentreServer]) -> CentreClient:
        """Return a client of a server that all threads share."""
        del size
        with self.hub.changed:
            number, self._servers = self._servers, self._servers + 1
            if self.rank == 0:
                self.hub.servers.append(make())
                self.hub.changed.notify_all()
            self.hub.wait_until(lambda: len(self.hub.servers) > number)
            return DirectClient(self.hub.servers[number], self.rank, self._background)

    def close(self, *, abandon: bool = False) -> None:
        """End the communication thread."""
        self._background.close(abandon=abandon)


class DirectClient:
    """A client in the server's own process."""

    def __init__(self, server: CentreServer, rank: int, background: Background) -> None:
        self._server, self._rank, self._background = server, rank, background

    def pull(self) -> Tensor:
        """Return a copy of the centre."""
        return self._server.pull(self._rank)

    def push_pull(self, vector: Tensor, rate: float) -> Tensor:
        """Call the server and return its answer."""
        with self._server.conversation:
            return self._server.push_pull(self._rank, vector, rate)

    def submit(self, vector: Tensor, rate: float) -> Future[Tensor]:
        """Call the server from the communication thread."""
        return self._background.run(lambda given: self.push_pull(given, rate), vector)

    def push(self, vector: Tensor, rate: float) -> None:
        """Call the server without an answer."""
        self._server.push(self._rank, vector, rate)

    def close(self) -> None:
        """Leave the server."""
        self._server.leave(self._rank)


def group(workers: int) -> list[ThreadTransport]:
    """Return the ends of a network between `workers` threads."""
    hub = Hub(workers)
    return [ThreadTransport(hub, rank) for rank in range(workers)]


def run(workers: int, work: Callable[[Transport], Any]) -> list[Any]:
    """Run `work(transport)` in `workers` threads. Return their results, by rank.

    If one fails, the others are told, and its error is raised.
    """
    ends = group(workers)

    def watched(end: ThreadTransport) -> Any:
        try:
            return work(end)
        except BaseException:
            end.hub.fail()
            raise
        finally:
            end.close()

    with ThreadPoolExecutor(workers, thread_name_prefix="innet-worker") as pool:
        running = [pool.submit(watched, end) for end in ends]
    problems = [problem for each in running if (problem := each.exception())]
    for problem in problems:
        if not isinstance(problem, PeerFailed):  # raise the first failure, not its consequences
            raise problem
    if problems:
        raise problems[0]
    return [each.result() for each in running]
