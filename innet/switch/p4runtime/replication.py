"""The packet replication engine: multicast groups and clone sessions in P4Runtime's terms."""

from collections.abc import Iterable, Iterator

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.constants import MAX_GROUPS, MAX_SESSIONS
from innet.switch.engine import Engine
from innet.switch.p4runtime.entities import encode
from innet.switch.p4runtime.refusals import already_exists, invalid, not_found

_MAX_INSTANCES, _MAX_PORTS = 1 << 16, 1 << 32


class Replication:
    """The groups and sessions of one engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self._groups: dict[int, p4rt.MulticastGroupEntry] = {}
        self._sessions: dict[int, p4rt.CloneSessionEntry] = {}

    def write(self, kind: p4rt.Update.Type, entry: p4rt.PacketReplicationEngineEntry) -> None:
        """Insert, modify or delete a group or a session. Raises Refusal."""
        which = entry.WhichOneof("type")
        if which == "multicast_group_entry":
            self._write_group(kind, entry.multicast_group_entry)
        elif which == "clone_session_entry":
            self._write_session(kind, entry.clone_session_entry)
        else:
            raise invalid("the entry is neither a multicast group nor a clone session")

    def read(
        self, wanted: p4rt.PacketReplicationEngineEntry
    ) -> Iterator[p4rt.PacketReplicationEngineEntry]:
        """Yield one group or session, for number 0 all of one kind, or all of both kinds."""
        which = wanted.WhichOneof("type")
        if which != "clone_session_entry":
            number = wanted.multicast_group_entry.multicast_group_id
            for group in self._groups.values():
                if number in (0, group.multicast_group_id):
                    yield p4rt.PacketReplicationEngineEntry(multicast_group_entry=group)
        if which != "multicast_group_entry":
            number = wanted.clone_session_entry.session_id
            for session in self._sessions.values():
                if number in (0, session.session_id):
                    yield p4rt.PacketReplicationEngineEntry(clone_session_entry=session)

    def _write_group(self, kind: p4rt.Update.Type, group: p4rt.MulticastGroupEntry) -> None:
        number = group.multicast_group_id
        if not 0 < number < MAX_GROUPS:
            raise invalid(f"multicast group {number}: the id has to be from 1 to {MAX_GROUPS - 1}")
        _check(kind, f"multicast group {number}", exists=number in self._groups)
        if kind == p4rt.Update.DELETE:
            self._engine.set_group(number, [])
            del self._groups[number]
            return
        self._engine.set_group(number, _replicas(group.replicas))
        self._groups[number] = p4rt.MulticastGroupEntry()
        self._groups[number].CopyFrom(group)
        _shorten(self._groups[number].replicas)

    def _write_session(self, kind: p4rt.Update.Type, session: p4rt.CloneSessionEntry) -> None:
        number = session.session_id
        if not 0 < number < MAX_SESSIONS:
            raise invalid(f"clone session {number}: the id has to be from 1 to {MAX_SESSIONS - 1}")
        _check(kind, f"clone session {number}", exists=number in self._sessions)
        if kind == p4rt.Update.DELETE:
            self._engine.set_session(number, [])
            del self._sessions[number]
            return
        max_bytes, service = session.packet_length_bytes, session.class_of_service
        if max_bytes < 0:
            raise invalid(f"clone session {number}: the packet length {max_bytes} is negative")
        if service >= self._engine.priority_queues:
            raise invalid(
                f"clone session {number}: the class of service {service} is too high: "
                f"the switch has {self._engine.priority_queues} priority queues"
            )
        self._engine.set_session(number, _replicas(session.replicas), max_bytes, service)
        self._sessions[number] = p4rt.CloneSessionEntry()
        self._sessions[number].CopyFrom(session)
        _shorten(self._sessions[number].replicas)


def _check(kind: p4rt.Update.Type, what: str, *, exists: bool) -> None:
    if kind == p4rt.Update.INSERT and exists:
        raise already_exists(f"{what} exists already: modify it")
    if kind != p4rt.Update.INSERT and not exists:
        raise not_found(f"there is no {what}")


def _shorten(replicas: Iterable[p4rt.Replica]) -> None:
    """Put the ports of replicas into canonical form."""
    for replica in replicas:
        if replica.port:
            replica.port = encode(int.from_bytes(replica.port, "big"))


def _replicas(replicas: Iterable[p4rt.Replica]) -> list[tuple[int, int]]:
    found = [_replica(each) for each in replicas]
    if len(set(found)) < len(found):
        raise invalid("two replicas have the same port and instance")
    return found


def _replica(replica: p4rt.Replica) -> tuple[int, int]:
    if replica.instance >= _MAX_INSTANCES:
        raise invalid(
            f"the instance {replica.instance} of a replica has to be below {_MAX_INSTANCES}"
        )
    kind = replica.WhichOneof("port_kind")
    if kind == "egress_port":
        return replica.egress_port, replica.instance
    port = int.from_bytes(replica.port, "big")
    if not replica.port or port >= _MAX_PORTS:
        raise invalid("the port of a replica is missing or too large")
    return port, replica.instance
