"""Idle workers of many jobs in a few processes, for measurements of the controller.

Every worker has a connection of its own, and a coroutine in place of a process. The worker does
what :mod:`innet.host.membership` does: it joins, sends hello packets through the switch until it is
admitted, sends heartbeats, answers ``Recover``, and opens its stream again when that has broken. It
sums nothing.
"""

import asyncio
import contextlib
import itertools
import multiprocessing
import random
import socket
import threading
from collections.abc import Callable, Coroutine, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Self

import grpc

from innet.rpc import innet_pb2 as pb
from innet.rpc import innet_pb2_grpc as rpc
from innet.wire.check import seal
from innet.wire.frames import Address, encapsulation
from innet.wire.layout import HEADER_BYTES, Kind
from innet.wire.records import blank

_SPAWNING = multiprocessing.get_context("spawn")  # gRPC does not survive a fork
_CHANNEL = (
    ("grpc.use_local_subchannel_pool", 1),  # a connection of its own
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1000),
)
_FIRST_HELLO, _SLOWEST_HELLO, _BEAT_EVERY = 0.1, 1.6, 1.0  # seconds, as those of a worker
_FIRST_PAUSE, _LONGEST_PAUSE = 0.1, 1.0
_LOOK_EVERY = 0.001
_FINAL = {
    grpc.StatusCode.ALREADY_EXISTS,
    grpc.StatusCode.FAILED_PRECONDITION,
    grpc.StatusCode.INVALID_ARGUMENT,
    grpc.StatusCode.NOT_FOUND,
}
_STARTS_WITHIN = _ENDS_WITHIN = 60.0


@dataclass(frozen=True)
class Seat:
    """The data with which one worker joins. `number` is unique, and makes the worker's address."""

    job: str
    token: str
    rank: int
    number: int

    @property
    def address(self) -> Address:
        """Return the address from which the worker sends."""
        high, low = divmod(self.number, 256)
        return Address(f"02:00:00:02:{high:02x}:{low:02x}", f"10.1.{high}.{low}", 20000)


class Fleet:
    """Idle workers in processes of their own, which begin to join one controller at once.

    `going` is the number of workers that have an open stream and know their job's term. `terms` counts
    the changes of term that workers were told of. `beating` says whether they send heartbeats.
    """

    def __init__(self, controller: str, seats: Sequence[Seat], links: Sequence[str]) -> None:
        self._counts = [_SPAWNING.Array("q", 3, lock=False) for _ in links]
        self._beating, self._over = _SPAWNING.Value("b", 1, lock=False), _SPAWNING.Event()
        together = _SPAWNING.Barrier(len(links) + 1)
        shares = [seats[start :: len(links)] for start in range(len(links))]
        self._processes = [
            _SPAWNING.Process(
                target=_work,
                args=(controller, *each, self._beating, together, self._over),
                daemon=True,
            )
            for each in zip(shares, links, self._counts, strict=True)
        ]
        for process in self._processes:
            process.start()
        together.wait(_STARTS_WITHIN)

    @property
    def going(self) -> int:
        """Return the number of workers with an open stream and a term."""
        return sum(each[0] for each in self._counts)

    @property
    def terms(self) -> int:
        """Return how often a worker was told of a term other than its last one."""
        return sum(each[1] for each in self._counts)

    def all_stopped(self) -> None:
        """Wait until no worker has a stream."""
        pause = threading.Event()
        while self.going:
            pause.wait(_LOOK_EVERY)

    def beat(self, *, beating: bool) -> None:
        """Let the workers send heartbeats from now on, or not."""
        self._beating.value = beating

    def close(self) -> None:
        """End the workers' processes, and with them their streams."""
        self._over.set()
        for process in self._processes:
            process.join(_ENDS_WITHIN)
            process.kill()


@contextlib.contextmanager
def fleet(controller: str, seats: Sequence[Seat], links: Sequence[str]) -> Iterator[Fleet]:
    """Yield idle workers at these seats, in one process for each of `links`, cables made of UDP."""
    with contextlib.closing(Fleet(controller, seats, links)) as workers:
        yield workers


def seats(jobs: dict[str, str], workers: int) -> list[Seat]:
    """Return the seats of jobs with so many `workers` each, given the jobs' tokens by name."""
    numbers = itertools.count(1)
    return [Seat(*job, rank, next(numbers)) for job in jobs.items() for rank in range(workers)]


def _work(
    controller: str,
    seats: Sequence[Seat],
    link: str,
    counts: Any,
    beating: Any,
    together: Any,
    over: Any,
) -> None:
    near, far = (_endpoint(end) for end in link.removeprefix("udp:").split("/"))
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as cable:
        cable.bind(near)
        cable.connect(far)
        together.wait(_STARTS_WITHIN)
        workers = [Member(controller, each, counts, beating, cable) for each in seats]
        asyncio.run(until(over, [each.run() for each in workers]))


async def until(over: Any, coroutines: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines until an event of multiprocessing is set, or until the parent process ends.

    Raises the error of one of them.
    """
    if parent := multiprocessing.parent_process():
        asyncio.get_running_loop().add_reader(parent.sentinel, over.set)
    tasks = [asyncio.create_task(each) for each in coroutines]
    ends = asyncio.create_task(asyncio.to_thread(over.wait))
    await asyncio.wait([ends, *tasks], return_when=asyncio.FIRST_COMPLETED)
    over.set()
    for each in tasks:
        each.cancel()
    for outcome in await asyncio.gather(*tasks, return_exceptions=True):
        if outcome and not isinstance(outcome, asyncio.CancelledError):
            raise outcome


class Member:
    """A worker's membership, as a coroutine. Subclasses may do more with an invitation or a term."""

    def __init__(
        self,
        controller: str,
        seat: Seat,
        counts: Any,
        beating: Any,
        cable: socket.socket | None = None,
    ) -> None:
        self._controller, self._seat, self._cable = controller, seat, cable
        self._counts, self._beating = counts, beating
        self._jitter = random.Random(seat.number)  # noqa: S311 - the same in every run
        self._request = pb.JoinRequest(job=seat.job, rank=seat.rank, token=seat.token)
        self._said, self._pace = _Messages(), _BEAT_EVERY
        self._admitted, self._going, self._term = asyncio.Event(), False, 0

    async def run(self) -> None:
        """Keep a stream open until cancelled. When one ends, open the next."""
        pause = _FIRST_PAUSE
        async with grpc.aio.insecure_channel(self._controller, options=_CHANNEL) as channel:
            while True:
                try:
                    await self._hold_stream(channel)
                except grpc.aio.AioRpcError as problem:
                    if problem.code() in _FINAL:
                        raise
                pause = _FIRST_PAUSE if self._going else min(2 * pause, _LONGEST_PAUSE)
                self._counts[2] += self._going
                self._go(going=False)
                await asyncio.sleep(pause * self._jitter.uniform(0.5, 1))

    async def _hold_stream(self, channel: grpc.aio.Channel) -> None:
        self._said, self._pace = _Messages(), _BEAT_EVERY
        self._said.put_nowait(pb.WorkerMessage(join=self._request))
        tasks = [asyncio.create_task(self._beat())]
        try:
            async for event in rpc.ControllerStub(channel).Join(self._said):
                if event.HasField("invitation"):
                    tasks.append(asyncio.create_task(self._say_hello(event.invitation)))
                self._take(event)
        finally:
            self._said.put_nowait(None)
            for each in tasks:
                each.cancel()

    def _take(self, event: pb.JoinEvent) -> None:
        match event.WhichOneof("event"):
            case "invitation":
                self._request.nonce = event.invitation.nonce
            case "admission":
                self.admitted(event.admission)
                self._admitted.set()
            case "recover":
                self.stop()
                self._said.put_nowait(pb.WorkerMessage(ready=pb.Ready(term=event.recover.term)))
            case "resume":
                if event.resume.term != self._term:
                    self.begin(event.resume)
                self._counts[1] += event.resume.term != self._term
                self._term = event.resume.term
                self._go(going=True)
            case "pace":
                self._pace = event.pace.heartbeat_s

    def _go(self, *, going: bool) -> None:
        self._counts[0] += going - self._going
        self._going = going

    async def _beat(self) -> None:
        beat = pb.WorkerMessage(heartbeat=pb.Heartbeat(progress=pb.Progress(exchange=1)))
        await asyncio.sleep(self._jitter.uniform(0, _BEAT_EVERY))
        while True:
            if self._beating.value and self._admitted.is_set():
                self._said.put_nowait(beat)
            await asyncio.sleep(self._pace)

    def admitted(self, admission: pb.Admission) -> None:
        """Note what the controller says of the job."""

    def stop(self) -> None:
        """Take part in no sum from now on, until the next term."""

    def begin(self, resume: pb.Resume) -> None:
        """Begin a term."""

    def hello(self, invitation: pb.Invitation) -> Callable[[], object]:
        """Return a function that sends a hello packet."""
        to, mine, cable = invitation.service, self._seat.address, self._cable
        service = Address(to.mac, to.ip, to.udp_port)
        hello = blank(1, 0, Kind.HELLO, encapsulation(mine, service, HEADER_BYTES))
        hello["sequence"] = invitation.nonce
        seal(hello, int.from_bytes(mine.ip_bytes), mine.udp_port)
        return lambda: cable and cable.send(hello.tobytes())

    async def _say_hello(self, invitation: pb.Invitation) -> None:
        send, pause = self.hello(invitation), _FIRST_HELLO
        while not self._admitted.is_set():
            send()
            await asyncio.sleep(pause)
            pause = min(2 * pause, _SLOWEST_HELLO)


class _Messages(asyncio.Queue[pb.WorkerMessage | None]):
    """A queue that gRPC takes messages from, until it takes None."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> pb.WorkerMessage:
        if message := await self.get():
            return message
        raise StopAsyncIteration


def _endpoint(text: str) -> tuple[str, int]:
    ip, _, port = text.rpartition(":")
    return ip, int(port)
