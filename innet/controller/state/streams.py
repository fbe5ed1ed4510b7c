"""One worker's event queue, from the registry to the gRPC call that sends the events."""

import asyncio
from collections.abc import AsyncIterator

from innet.errors import InnetError, UsageError
from innet.machine.tcp import TcpConnection
from innet.rpc import innet_pb2 as pb


class Stream:
    """A worker's open stream, made on the event loop that sends its events.

    `job`, `rank` and `nonce` are known once the worker has asked to join. `certificate` is the
    fingerprint of the worker's certificate, or empty without TLS. Any thread may queue events.
    """

    def __init__(self, connection: TcpConnection, certificate: str = "") -> None:
        self.job, self.rank, self.nonce = "", 0, 0
        self.certificate = certificate
        self.connection = connection
        self._loop = asyncio.get_running_loop()
        self._outbox: asyncio.Queue[pb.JoinEvent | InnetError | None] = asyncio.Queue()

    def send(self, event: pb.JoinEvent) -> None:
        """Queue an event for the worker."""
        self._put(event)

    def end(self, problem: InnetError | None = None) -> None:
        """End the stream, with or without an error."""
        self._put(problem)

    async def events(self, first_within: float) -> AsyncIterator[pb.JoinEvent]:
        """Yield all events. Raises the error that the stream ends with.

        Raises UsageError if the worker has not asked to join after `first_within` seconds.
        """
        event = await self._first(first_within)
        while event is not None:
            if isinstance(event, InnetError):
                raise event
            yield event
            event = await self._outbox.get()

    def _put(self, item: pb.JoinEvent | InnetError | None) -> None:
        self._loop.call_soon_threadsafe(self._outbox.put_nowait, item)

    async def _first(self, within: float) -> pb.JoinEvent | InnetError | None:
        try:
            return await asyncio.wait_for(self._outbox.get(), within)
        except TimeoutError:
            if self.job:  # it waits for the next generation
                return await self._outbox.get()
            return UsageError(f"no JoinRequest has come within {within:g} s: send it first")
