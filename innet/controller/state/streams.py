"""One worker's event queue, from the registry to the gRPC call that sends the events."""

import asyncio
import threading
from collections.abc import AsyncIterator, Iterable, Iterator
from weakref import WeakKeyDictionary

from innet.errors import InnetError, UsageError
from innet.machine.tcp import TcpConnection
from innet.rpc import innet_pb2 as pb

_Item = pb.JoinEvent | InnetError | None
_Outbox = asyncio.Queue[_Item]


class _Post:
    """Items on their way to the outboxes of one event loop, which is woken once for all that wait."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._wake, self._lock = loop.call_soon_threadsafe, threading.Lock()
        self._waiting: list[tuple[_Outbox, _Item]] = []

    def put(self, outbox: _Outbox, item: _Item) -> None:
        """Put an item into an outbox soon. Any thread may call it, and items keep their order."""
        with self._lock:
            self._waiting.append((outbox, item))
            first = len(self._waiting) == 1
        if first:
            self._wake(self._deliver)

    def _deliver(self) -> None:
        with self._lock:
            waiting, self._waiting = self._waiting, []
        for outbox, item in waiting:
            outbox.put_nowait(item)


_posts: WeakKeyDictionary[asyncio.AbstractEventLoop, _Post] = WeakKeyDictionary()


class Stream:
    """A worker's open stream, made on the event loop that sends its events.

    `job`, `nonce` and `rank`, that of the job's group, are known once the worker has asked to join.
    `certificate` has the names that the worker's certificate may have in the list of revoked ones. Any
    thread may queue events.
    """

    def __init__(
        self, connection: TcpConnection, certificate: frozenset[str] = frozenset()
    ) -> None:
        self.job, self.rank, self.nonce = "", 0, 0
        self.certificate = certificate
        self.connection = connection
        loop = asyncio.get_running_loop()
        self._post = _posts.setdefault(loop, _Post(loop))
        self._outbox: _Outbox = asyncio.Queue()

    def send(self, event: pb.JoinEvent) -> None:
        """Queue an event for the worker."""
        self._post.put(self._outbox, event)

    def end(self, problem: InnetError | None = None) -> None:
        """End the stream, with or without an error."""
        self._post.put(self._outbox, problem)

    async def events(self, first_within: float) -> AsyncIterator[pb.JoinEvent]:
        """Yield all events. Raises the error that the stream ends with.

        Raises UsageError if the worker has not asked to join after `first_within` seconds.
        """
        waiting = [await self._first(first_within)]
        while True:
            while not self._outbox.empty():
                waiting.append(self._outbox.get_nowait())
            for event in _joined(waiting):
                if event is None:
                    return
                if isinstance(event, InnetError):
                    raise event
                yield event
            waiting = [await self._outbox.get()]

    async def _first(self, within: float) -> _Item:
        try:
            return await asyncio.wait_for(self._outbox.get(), within)
        except TimeoutError:
            if self.job:  # it waits for the next generation
                return await self._outbox.get()
            return UsageError(f"no JoinRequest has come within {within:g} s: send it first")


def _joined(items: Iterable[_Item]) -> Iterator[_Item]:
    """Yield items, with departures that follow each other in one message.

    When a large job ends, sending each worker a message for each other worker would take minutes.
    """
    joined: pb.JoinEvent | None = None
    for item in items:
        if isinstance(item, pb.JoinEvent) and item.HasField("departure"):
            if joined:
                joined.departure.more.append(item.departure)
            else:
                joined = pb.JoinEvent(departure=item.departure)
            continue
        if joined:
            yield joined
            joined = None
        yield item
    if joined:
        yield joined
