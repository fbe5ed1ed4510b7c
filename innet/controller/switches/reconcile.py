"""The difference between the entities in a switch and the wanted ones, for any program."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from innet.p4runtime import p4runtime_pb2 as p4rt

Key = tuple[object, ...]
"""The identity of an entity: its table and match, or the number of its multicast group."""

Held = dict[Key, p4rt.Entity]
"""Table entries and multicast groups by their keys."""


@dataclass(frozen=True)
class Difference:
    """Changes to be written to a switch."""

    delete: list[p4rt.Entity]
    modify: list[p4rt.Entity]
    insert: list[p4rt.Entity]

    def __bool__(self) -> bool:
        return bool(self.delete or self.modify or self.insert)

    def __iter__(self) -> Iterator[tuple[str, p4rt.Entity]]:
        for name in ("delete", "modify", "insert"):
            for entity in getattr(self, name):
                yield name, entity


def by_key(entities: Iterable[p4rt.Entity]) -> Held:
    """Return entities by their keys."""
    return {key(entity): entity for entity in entities}


def difference(held: Mapping[Key, p4rt.Entity], wanted: Mapping[Key, p4rt.Entity]) -> Difference:
    """Return the changes that make a switch that holds `held` hold `wanted`."""
    return Difference(
        [entity for at, entity in held.items() if at not in wanted],
        [entity for at, entity in wanted.items() if at in held and not _same(held[at], entity)],
        [entity for at, entity in wanted.items() if at not in held],
    )


def key(entity: p4rt.Entity) -> Key:
    """Return the key of a table entry or of a multicast group."""
    if entity.HasField("table_entry"):
        entry = entity.table_entry
        return ("table", entry.table_id, *sorted(_match(field) for field in entry.match))
    return ("group", _group(entity).multicast_group_id)


def _same(one: p4rt.Entity, other: p4rt.Entity) -> bool:
    return one is other or _content(one) == _content(other)


def _content(entity: p4rt.Entity) -> object:
    if entity.HasField("table_entry"):
        action = entity.table_entry.action.action
        return action.action_id, sorted((p.param_id, _number(p.value)) for p in action.params)
    return sorted(
        (each.egress_port or _number(each.port), each.instance) for each in _group(entity).replicas
    )


def _match(field: p4rt.FieldMatch) -> tuple[int, int, int]:
    if field.HasField("lpm"):
        return field.field_id, _number(field.lpm.value), field.lpm.prefix_len
    return field.field_id, _number(field.exact.value), -1


def _group(entity: p4rt.Entity) -> p4rt.MulticastGroupEntry:
    return entity.packet_replication_engine_entry.multicast_group_entry


def _number(value: bytes) -> int:
    """Return the number in a byte string. Some switches send leading zeros, which do not count."""
    return int.from_bytes(value, "big")
