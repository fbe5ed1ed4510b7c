"""A transport between processes, over torch.distributed with Gloo."""

import logging
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from datetime import timedelta

import torch
import torch.distributed as dist
from torch import Tensor

from innet.errors import InnetError, PeerFailed, UsageError
from innet.training.message_codecs import PLAIN, MessageCodec, Mirror, mirrored
from innet.training.server import CentreServer
from innet.training.transports.base import Background, CentreClient, Transport
from innet.training.transports.threads import DirectClient

_log = logging.getLogger("innet")
_MESSAGES, _REQUESTS = 1, 2  # tags; each server has two, from _REQUESTS on
_REQUEST_BYTES = 16
_PULL, _PUSH_PULL, _PUSH, _GOT, _LEAVE = range(5)


class ProcessGroupTransport(Transport):
    """A network over a Gloo group of all ranks. Parameter servers live in worker 0's process.

    Vectors that workers push to a server are encoded with `codec`. Answers are encoded as
    differences to the previous answer (:class:`innet.training.message_codecs.Mirror`), because
    parameters tolerate less compression than gradients. Means and messages are not encoded.
    `timeout` is in seconds.
    """

    def __init__(self, timeout: float = 600.0, codec: MessageCodec = PLAIN) -> None:
        if not dist.is_initialized():
            raise UsageError("there is no process group: call torch.distributed.init_process_group")
        self.rank, self.workers = dist.get_rank(), dist.get_world_size()
        self._group = dist.new_group(backend="gloo", timeout=timedelta(seconds=timeout))
        self._background = Background("innet-communication")
        self._sent: deque[tuple[dist.Work, Tensor]] = deque()
        self._serving: list[threading.Thread] = []
        self._servers = 0
        self._codec = codec

    def all_reduce(self, vector: Tensor) -> Future[Tensor]:
        """Compute Gloo's sum, divided by the number of workers."""
        return self._background.run(self._mean, vector)

    def broadcast(self, vector: Tensor) -> Tensor:
        """Broadcast with Gloo."""
        copy = vector.clone()
        with _translated():
            dist.broadcast(copy, 0, group=self._group)
        return copy

    def send(self, to: int, message: Tensor) -> None:
        """Send with Gloo's isend. A message is kept until Gloo is done with it."""
        while self._sent and self._sent[0][0].is_completed():
            self._sent.popleft()
        with _translated():
            work = dist.isend(message, to, group=self._group, tag=_MESSAGES)
            if work is None:
                raise AssertionError
            self._sent.append((work, message))

    def receive(self, source: int, size: int) -> Tensor:
        """Receive with Gloo."""
        return _received(self._group, source, _MESSAGES, size)

    def expect(self, source: int, size: int) -> Callable[[], Tensor]:
        """Call Gloo's irecv, which tells the sender at once that it may send the message."""
        message = torch.empty(size, dtype=torch.uint8)
        with _translated():
            work = dist.irecv(message, source, group=self._group, tag=_MESSAGES)
            if work is None:
                raise AssertionError

        def wait() -> Tensor:
            with _translated():
                work.wait()
            return message

        return wait

    def connect(self, size: int, make: Callable[[], CentreServer]) -> CentreClient:
        """Return a client. Worker 0 has the server, and a thread for each of the others."""
        del size
        tag, self._servers = _REQUESTS + 2 * self._servers, self._servers + 1
        server = make()
        if dist.get_rank():
            return _RemoteClient(self._group, tag, server, self._codec, self._background)
        self._start(server, tag, range(1, self.workers), first=0)
        return DirectClient(server, 0, self._background)

    def close(self, *, abandon: bool = False) -> None:
        """Wait for messages under way, and for the workers to leave the servers here."""
        self._background.close(abandon=abandon)
        if abandon:
            return
        for thread in self._serving:
            thread.join()
        with _translated():
            while self._sent:
                self._sent.popleft()[0].wait()

    def _mean(self, vector: Tensor) -> Tensor:
        total = vector.clone()
        with _translated():
            dist.all_reduce(total, group=self._group)
        return total / self.workers

    def _start(self, server: CentreServer, tag: int, ranks: Iterable[int], first: int) -> None:
        """Start a thread that serves each of these ranks. Rank `first` is worker 0."""
        ways = {rank: mirrored(self._codec, server.centre) for rank in ranks}
        for rank, answers in ways.items():
            thread = threading.Thread(
                target=self._serve,
                args=(server, rank, rank - first, tag, answers),
                name=f"innet-server-{rank}",
                daemon=True,  # the workers of a failed script never leave the servers
            )
            thread.start()
            self._serving.append(thread)

    def _serve(
        self, server: CentreServer, rank: int, worker: int, tag: int, answers: MessageCodec | Mirror
    ) -> None:
        size = server.centre.numel()
        try:
            while True:
                kind, rate = self._request(rank, tag)
                if kind == _LEAVE:
                    return
                with server.conversation:
                    if kind == _PULL:
                        answer = server.pull(worker)
                    else:
                        vector = self._codec.decode(
                            _received(self._group, rank, tag, self._codec.size(size))
                        )
                        if kind == _PUSH:
                            server.push(worker, vector, rate)
                            continue
                        answer = server.push_pull(worker, vector, rate)
                    with _translated():
                        dist.send(answers.encode(answer), rank, group=self._group, tag=tag + 1)
                    if server.one_at_a_time:
                        self._request(rank, tag)  # the worker confirms that it has the answer
        except InnetError as problem:
            _log.warning("the parameter server lost worker %d: %s", worker, problem)
            server.fail()
        finally:
            server.leave(worker)

    def _request(self, rank: int, tag: int) -> tuple[int, float]:
        kind, rate = _received(self._group, rank, tag, _REQUEST_BYTES).view(torch.float64).tolist()
        return int(kind), rate


class ServerNodeTransport(ProcessGroupTransport):
    """A network with rank 0 as a node for the parameter servers only; rank r + 1 is worker r.

    It is for the algorithms with parameter servers. The node makes the algorithm as the workers do,
    from the same initial parameters, and closes it: then it serves until all workers have left. It
    takes no steps, and there are no means.
    """

    def __init__(self, timeout: float = 600.0, codec: MessageCodec = PLAIN) -> None:
        super().__init__(timeout, codec)
        if self.workers < 2:
            raise UsageError(
                "the process group has one process: the servers' node needs workers beside it"
            )
        self.rank, self.workers = self.rank - 1, self.workers - 1

    @property
    def serves(self) -> bool:
        """Return whether this is the servers' node."""
        return self.rank < 0

    def all_reduce(self, vector: Tensor) -> Future[Tensor]:
        """Raise UsageError: the servers' node has no vector to give."""
        del vector
        raise UsageError(
            "ServerNodeTransport has parameter servers only: use ProcessGroupTransport"
        )

    def connect(self, size: int, make: Callable[[], CentreServer]) -> CentreClient:
        """Return a client; at the servers' node, one that does nothing."""
        if not self.serves:
            return super().connect(size, make)
        tag, self._servers = _REQUESTS + 2 * self._servers, self._servers + 1
        server = make()
        self._start(server, tag, range(1, self.workers + 1), first=1)
        return _Idle(server, self.rank, self._background)


class _Idle(DirectClient):
    """The client at the servers' node. The node is no worker, so it never waits or leaves."""

    def pull(self) -> Tensor:
        """Return the present centre."""
        return self._server.centre.clone()

    def close(self) -> None:
        """Do nothing."""


class _RemoteClient:
    """A client of the server in worker 0's process. `server` has that server's initial state."""

    def __init__(
        self,
        group: dist.ProcessGroup,
        tag: int,
        server: CentreServer,
        codec: MessageCodec,
        background: Background,
    ) -> None:
        self._group, self._tag = group, tag
        self._acknowledges = server.one_at_a_time
        self._codec, self._answers = codec, mirrored(codec, server.centre)
        self._size = codec.size(server.centre.numel())
        self._background = background

    def pull(self) -> Tensor:
        """Return the centre."""
        self._request(_PULL, 0.0)
        return self._answer()

    def push_pull(self, vector: Tensor, rate: float) -> Tensor:
        """Send the vector to the server, and wait for its answer."""
        self._send(_PUSH_PULL, vector, rate)
        return self._answer()

    def submit(self, vector: Tensor, rate: float) -> Future[Tensor]:
        """Run :meth:`push_pull` in the communication thread."""
        return self._background.run(lambda given: self.push_pull(given, rate), vector)

    def push(self, vector: Tensor, rate: float) -> None:
        """Send the vector to the server."""
        self._send(_PUSH, vector, rate)

    def close(self) -> None:
        """Leave the server."""
        self._request(_LEAVE, 0.0)

    def _send(self, kind: int, vector: Tensor, rate: float) -> None:
        self._request(kind, rate)
        with _translated():
            dist.send(self._codec.encode(vector), 0, group=self._group, tag=self._tag)

    def _request(self, kind: int, rate: float) -> None:
        request = torch.tensor([kind, rate], dtype=torch.float64).view(torch.uint8)
        with _translated():
            dist.send(request, 0, group=self._group, tag=self._tag)

    def _answer(self) -> Tensor:
        message = _received(self._group, 0, self._tag + 1, self._size)
        if self._acknowledges:
            self._request(_GOT, 0.0)
        return self._answers.decode(message)


def _received(group: dist.ProcessGroup, source: int, tag: int, size: int) -> Tensor:
    """Receive a message, uint8 (size,)."""
    message = torch.empty(size, dtype=torch.uint8)
    with _translated():
        dist.recv(message, source, group=group, tag=tag)
    return message


@contextmanager
def _translated() -> Iterator[None]:
    try:
        yield
    except RuntimeError as problem:  # PyTorch has no other error for a broken connection
        raise PeerFailed(f"the process group failed: {problem}") from problem
