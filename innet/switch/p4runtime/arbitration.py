"""The arbitration of writers: a role's controller with the highest election id is primary.

It follows "Client Arbitration and Controller Replication" in the P4Runtime specification. A role is
a name. Every role may do everything, because there is no common format for the configuration of a
role.
"""

import contextlib
import queue
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from innet.p4runtime import code_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.p4runtime.refusals import (
    failed_precondition,
    forbidden,
    invalid,
    not_found,
    unsupported,
)

_MAX_WAITING = 4096


@dataclass(eq=False)
class ControllerStream:
    """A controller's open stream. Messages to it are put into `outbox`, and None ends the stream.

    The stream has no role before its first arbitration update, and no election id unless its
    controller wants to be primary.
    """

    outbox: "queue.SimpleQueue[p4rt.StreamMessageResponse | None]" = field(
        default_factory=queue.SimpleQueue
    )
    role: str | None = None
    election: int | None = None
    has_ended: bool = False

    def offer(self, message: p4rt.StreamMessageResponse) -> None:
        """Put a message into the outbox, unless the controller is far behind."""
        if self.outbox.qsize() < _MAX_WAITING:
            self.outbox.put(message)


@dataclass
class _Role:
    """The connected controllers of one role, and the highest election id that the role has had."""

    streams: set[ControllerStream] = field(default_factory=set)
    highest: int | None = None

    def primary(self) -> ControllerStream | None:
        # The id of a primary that has left stays the highest. A lower id does not become primary.
        if self.highest is None:
            return None
        return next((each for each in self.streams if each.election == self.highest), None)


class Arbitration:
    """The open streams of one device, by role. The name of the default role is empty."""

    def __init__(self, device_id: int) -> None:
        self.device_id = device_id
        self._roles: dict[str, _Role] = {}
        self._lock = threading.Lock()
        # Held while a primary changes the switch, so that the next primary waits.
        self._changing = threading.RLock()

    def enter(self, stream: ControllerStream, message: p4rt.MasterArbitrationUpdate) -> None:
        """Process a stream's arbitration update. Raises Refusal, after which the stream must close."""
        name = self._check_update(stream, message)
        election = number(message.election_id) if message.HasField("election_id") else None
        with self._changing, self._lock:
            if stream.has_ended:  # while the update waited
                return
            role = self._roles.setdefault(name, _Role())
            others = role.streams - {stream}
            if election is not None and any(each.election == election for each in others):
                raise invalid(
                    f"election id {election} belongs to another controller: choose another one"
                )
            before = role.primary()
            stream.role, stream.election = name, election
            role.streams.add(stream)
            if election is not None:
                role.highest = max(role.highest or 0, election)
            after = role.primary()
            changed = after is not before or after is stream
            self._notify(name, role, role.streams if changed else {stream})

    def leave(self, stream: ControllerStream) -> None:
        """Forget a stream that has closed."""
        with self._lock:
            stream.has_ended = True
            role = self._roles.get(stream.role) if stream.role is not None else None
            if role is None:
                return
            was_primary = role.primary() is stream
            role.streams.discard(stream)
            if was_primary:
                self._notify(stream.role or "", role, role.streams)

    @contextlib.contextmanager
    def as_primary(self, device_id: int, role: str, election_id: p4rt.Uint128) -> Iterator[None]:
        """Keep the sender of these ids primary inside the context. Raises Refusal if it is not."""
        with self._changing:
            self.check_primary(device_id, role, number(election_id))
            yield

    def check_primary(self, device_id: int, role: str, election: int) -> None:
        """Raise Refusal unless the role's primary has this election id at the moment."""
        self.check_device(device_id)
        with self._lock:
            known = self._roles.get(role)
            primary = known.primary() if known else None
        if role and known is None:
            raise not_found(f"no controller has had the role {role!r}")
        if primary is None or primary.election != election:
            raise forbidden("only the primary controller may change this switch")

    def check_device(self, device_id: int) -> None:
        """Raise Refusal unless this is the id of the device."""
        if device_id != self.device_id:
            raise not_found(f"this is device {self.device_id}, not {device_id}")

    def send(self, message: p4rt.StreamMessageResponse) -> None:
        """Send a message to the primary controllers. A controller that does not keep up misses it."""
        for stream in self.primaries():
            stream.offer(message)

    def primaries(self) -> list[ControllerStream]:
        """Return the streams of the primary controllers, one for each role that has a primary."""
        with self._lock:
            found = [role.primary() for role in self._roles.values()]
        return [stream for stream in found if stream]

    def close(self) -> None:
        """End all streams."""
        with self._lock:
            for role in self._roles.values():
                for stream in role.streams:
                    stream.outbox.put(None)

    def _check_update(self, stream: ControllerStream, message: p4rt.MasterArbitrationUpdate) -> str:
        """Return the role that the update is for. Raises Refusal."""
        if stream.role is not None and message.device_id != self.device_id:
            raise failed_precondition(
                f"this stream is of device {self.device_id}: open another one"
            )
        self.check_device(message.device_id)
        name = str(message.role.name)
        if message.role.id:
            raise unsupported("roles have names in this version of P4Runtime, not ids")
        if stream.role not in (None, name):
            raise failed_precondition(f"this stream has the role {stream.role!r}: open another one")
        if message.role.HasField("config"):
            raise invalid("a role cannot be configured here: every role may do everything")
        return name

    def _notify(self, name: str, role: _Role, streams: set[ControllerStream]) -> None:
        primary = role.primary()
        for stream in streams:
            message = p4rt.StreamMessageResponse()
            update = message.arbitration
            update.device_id = self.device_id
            if name:
                update.role.name = name
            if role.highest is not None:
                update.election_id.high, update.election_id.low = divmod(role.highest, 1 << 64)
            if stream is primary:
                update.status.code = code_pb2.OK
            else:
                update.status.code = code_pb2.ALREADY_EXISTS if primary else code_pb2.NOT_FOUND
                update.status.message = f"{'another' if primary else 'no'} controller is primary"
            stream.outbox.put(message)


def number(election_id: p4rt.Uint128) -> int:
    """Return a 128-bit election id as a number."""
    return int(election_id.high) << 64 | int(election_id.low)
