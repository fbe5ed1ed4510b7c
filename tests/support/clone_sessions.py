"""Clone sessions, and the elections that precede them."""

import itertools

from innet.p4runtime import p4runtime_pb2 as p4rt

ROOM = bytes(13)


"""The room in which the egress of a test's program writes its observations."""


ELECTIONS = itertools.count(1)


def session(number: int, *replicas: tuple[int, int], **settings: int) -> p4rt.Entity:
    """Return a clone session of (port, instance) copies."""
    entity = p4rt.Entity()
    message = entity.packet_replication_engine_entry.clone_session_entry
    message.session_id = number
    for port, instance in replicas:
        message.replicas.add(egress_port=port, instance=instance)
    for name, value in settings.items():
        setattr(message, name, value)
    return entity
