"""P4Runtime's messages about a program's tables, counters and packets, made and read by name."""

from collections.abc import Mapping, Sequence
from typing import Any

from innet.p4runtime import p4info_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt

Match = Mapping[str, int | tuple[int, int]]
"""Match values by field name. That of an lpm field is (value, prefix length)."""


class Names:
    """A program's P4Info, with lookups by name."""

    def __init__(self, info: p4info_pb2.P4Info) -> None:
        self._tables = {each.preamble.alias: each for each in info.tables}
        self._actions = {each.preamble.alias: each for each in info.actions}
        self._counters = {each.preamble.alias: each for each in info.counters}
        self._headers = {each.preamble.name: each for each in info.controller_packet_metadata}

    def size(self, table: str) -> int:
        """Return how many entries a table has room for."""
        return int(self._tables[table].size)

    def knows(self, table: str) -> bool:
        """Return whether the program has a table of this name."""
        return table in self._tables

    def whole(self, table: str) -> p4rt.Entity:
        """Return the entity that, when read, matches all entries of a table."""
        entity = p4rt.Entity()
        entity.table_entry.table_id = self._tables[table].preamble.id
        return entity

    def describe(self, entity: p4rt.Entity) -> str:
        """Return a description of a table entry or a multicast group, for people."""
        if entity.HasField("table_entry"):
            number = entity.table_entry.table_id
            tables = self._tables.items()
            name = next(name for name, each in tables if each.preamble.id == number)
            return f"an entry of the table {name!r}"
        entry = entity.packet_replication_engine_entry.multicast_group_entry
        return f"the multicast group {entry.multicast_group_id}"

    def is_of(self, table: str, entity: p4rt.Entity) -> bool:
        """Return whether an entity is an entry of a table."""
        layout = self._tables.get(table)
        return layout is not None and bool(entity.table_entry.table_id == layout.preamble.id)

    def entry(
        self, table: str, match: Match, action: str = "", params: Mapping[str, int] | None = None
    ) -> p4rt.Entity:
        """Return a table entry. Without an action it is enough to delete the entry."""
        layout = self._tables[table]
        entity = p4rt.Entity()
        entry = entity.table_entry
        entry.table_id = layout.preamble.id
        for field in layout.match_fields:
            if field.name in match:
                component = entry.match.add(field_id=field.id)
                _fill_match(component, field.bitwidth, match[field.name])
        if action:
            call = self._actions[action]
            entry.action.action.action_id = call.preamble.id
            for param in call.params:
                value = _bytes((params or {})[param.name])
                entry.action.action.params.add(param_id=param.id, value=value)
        return entity

    def all_bits(self, action: str, param: str) -> int:
        """Return the number in which every bit of an action's parameter is set."""
        [bits] = [each.bitwidth for each in self._actions[action].params if each.name == param]
        return (1 << int(bits)) - 1

    def counter(self, name: str, index: int, packets: int | None = None) -> p4rt.Entity:
        """Return a cell of an indirect counter."""
        entity = p4rt.Entity()
        entity.counter_entry.counter_id = self._counters[name].preamble.id
        entity.counter_entry.index.index = index
        if packets is not None:
            entity.counter_entry.data.packet_count = packets
        return entity

    def packet_out(self, payload: bytes, **metadata: int) -> p4rt.StreamMessageRequest:
        """Return a packet-out. Metadata that are not given are zero."""
        message = p4rt.StreamMessageRequest()
        message.packet.payload = payload
        for field in self._headers["packet_out"].metadata:
            value = _bytes(metadata.get(field.name, 0))
            message.packet.metadata.add(metadata_id=field.id, value=value)
        return message

    def packet_in(self, packet: p4rt.PacketIn) -> dict[str, int]:
        """Return a packet-in's metadata by name."""
        names = {field.id: field.name for field in self._headers["packet_in"].metadata}
        return {
            names[each.metadata_id]: int.from_bytes(each.value, "big") for each in packet.metadata
        }


def group(number: int, replicas: Sequence[tuple[int, int]]) -> p4rt.Entity:
    """Return a multicast group of (port, instance) copies."""
    entity = p4rt.Entity()
    entry = entity.packet_replication_engine_entry.multicast_group_entry
    entry.multicast_group_id = number
    for port, instance in replicas:
        entry.replicas.add(egress_port=port, instance=instance)
    return entity


def all_groups() -> p4rt.Entity:
    """Return the entity that, when read, matches all multicast groups."""
    entity = p4rt.Entity()
    entity.packet_replication_engine_entry.multicast_group_entry.SetInParent()
    return entity


def _fill_match(component: Any, bits: int, value: int | tuple[int, int]) -> None:
    if isinstance(value, tuple):
        number, length = value
        component.lpm.value, component.lpm.prefix_len = _bytes(number), length
    else:
        component.exact.value = _bytes(value)
        if value >> bits:
            raise ValueError(f"{value} does not fit {bits} bits")


def _bytes(value: int) -> bytes:
    """Return P4Runtime's canonical byte string: the shortest that holds the number."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")
