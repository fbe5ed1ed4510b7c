"""One worker's event queue, from the registry to the gRPC call that sends the events."""

import queue
from collections.abc import Iterator

from innet.errors import InnetError, UsageError
from innet.machine.tcp import Connection
from innet.rpc import innet_pb2 as pb


class Stream:
    """A worker's open stream. `job`, `rank` and `nonce` are known once the worker has asked to join.

    `certificate` is the fingerprint of the worker's certificate, or empty without TLS.
    """

    def __init__(self, connection: Connection, certificate: str = "") -> None:
        self.job, self.rank, self.nonce = "", 0, 0
        self.certificate = certificate
        self.connection = connection
        self._outbox: queue.SimpleQueue[pb.JoinEvent | InnetError | None] = queue.SimpleQueue()

    def send(self, event: pb.JoinEvent) -> None:
        """Queue an event for the worker."""
        self._outbox.put(event)

    def end(self, problem: InnetError | None = None) -> None:
        """End the stream, with or without an error."""
        self._outbox.put(problem)

    def events(self, first_within: float) -> Iterator[pb.JoinEvent]:
        """Yield all events. Raises the error that the stream ends with.

        Raises UsageError if the worker has not asked to join after `first_within` seconds.
        """
        event = self._first(first_within)
        while event is not None:
            if isinstance(event, InnetError):
                raise event
            yield event
            event = self._outbox.get()

    def _first(self, within: float) -> pb.JoinEvent | InnetError | None:
        try:
            return self._outbox.get(timeout=within)
        except queue.Empty:
            if self.job:  # it waits for the next generation
                return self._outbox.get()
            return UsageError(f"no JoinRequest has come within {within:g} s: send it first")
