"""Who may write: of all controllers with an open stream, the one with the highest election id.

P4Runtime specification, "Client Arbitration and Controller Replication". Only the default role exists.
"""

import queue
import threading
from dataclasses import dataclass, field

import grpc
from google.rpc import code_pb2
from p4.v1 import p4runtime_pb2 as p4rt

from innet.switch.refusal import Refusal, forbidden, invalid, not_found


@dataclass(eq=False)
class Client:
    """A controller's open stream; what it is to hear is put into `outbox`, None at the end."""

    outbox: "queue.SimpleQueue[p4rt.StreamMessageResponse | None]" = field(
        default_factory=queue.SimpleQueue
    )
    election: int | None = None


class Arbitration:
    """The open streams of one device."""

    def __init__(self, device_id: int) -> None:
        self._device_id = device_id
        self._clients: set[Client] = set()
        self._lock = threading.Lock()
        self._highest = 0

    def enter(self, client: Client, message: p4rt.MasterArbitrationUpdate) -> None:
        """A stream's arbitration update. Raises Refusal, after which the stream must close."""
        self.check_device(message.device_id)
        if message.HasField("role") and (message.role.id or message.role.name):
            raise Refusal(grpc.StatusCode.UNIMPLEMENTED, "only the default role is supported")
        election = number(message.election_id)
        with self._lock:
            others = self._clients - {client}
            if election and any(each.election == election for each in others):
                raise invalid(f"election id {election} is another client's")
            before = self._primary()
            client.election = election
            self._clients.add(client)
            self._highest = max(self._highest, election)
            after = self._primary()
            self._notify(self._clients if after is not before or client is after else {client})

    def leave(self, client: Client) -> None:
        """A stream has closed."""
        with self._lock:
            was_primary = self._primary() is client
            self._clients.discard(client)
            if was_primary:
                self._notify(self._clients)

    def check(self, device_id: int, election_id: p4rt.Uint128) -> None:
        """Raise Refusal unless a request with these ids comes from the primary."""
        self.check_device(device_id)
        primary = self.primary()
        if primary is None or primary.election != number(election_id):
            raise forbidden("only the primary controller may change this switch")

    def check_device(self, device_id: int) -> None:
        """Raise Refusal unless this is the device that is meant."""
        if device_id != self._device_id:
            raise not_found(f"this is device {self._device_id}, not {device_id}")

    def primary(self) -> Client | None:
        """The stream of the controller in charge, if there is one."""
        with self._lock:
            return self._primary()

    def close(self) -> None:
        """End all streams."""
        with self._lock:
            for client in self._clients:
                client.outbox.put(None)

    def _primary(self) -> Client | None:
        # A primary that left stays the highest: a lower id does not inherit its place.
        return next(
            (each for each in self._clients if each.election and each.election == self._highest),
            None,
        )

    def _notify(self, clients: set[Client]) -> None:
        primary = self._primary()
        for client in clients:
            message = p4rt.StreamMessageResponse()
            update = message.arbitration
            update.device_id = self._device_id
            update.election_id.high, update.election_id.low = divmod(self._highest, 1 << 64)
            if client is primary:
                update.status.code = code_pb2.OK
            else:
                update.status.code = code_pb2.ALREADY_EXISTS if primary else code_pb2.NOT_FOUND
                update.status.message = "another client is primary" if primary else "no primary"
            client.outbox.put(message)


def number(election_id: p4rt.Uint128) -> int:
    """A 128-bit election id as a number; 0 is nobody's."""
    return int(election_id.high) << 64 | int(election_id.low)
