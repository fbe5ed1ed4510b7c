"""Table entries: P4Runtime's messages on one side, the engine's on the other.

The engine only matches packets; what clients can read back is kept here, as they wrote it.
"""

from collections.abc import Iterator
from dataclasses import dataclass

import grpc
from p4.v1 import p4runtime_pb2 as p4rt

from innet.switch.engine import MISS, Count, Engine
from innet.switch.refusal import Refusal, already_exists, forbidden, invalid, not_found, unsupported
from innet.switch.schema import Action, Field, Schema, Table

Key = tuple[tuple[int, ...], tuple[int, ...], int]
"""Values, masks and P4Runtime priority: what makes an entry the same entry."""


@dataclass
class _Stored:
    id: int
    message: p4rt.TableEntry


class Tables:
    """The table entries of one loaded program."""

    def __init__(self, engine: Engine, schema: Schema) -> None:
        self._engine = engine
        self._schema = schema
        self._entries: dict[int, dict[Key, _Stored]] = {number: {} for number in schema.tables}
        self._defaults: dict[int, p4rt.TableAction | None] = dict.fromkeys(schema.tables)

    def write(self, update: p4rt.Update.Type, message: p4rt.TableEntry) -> None:
        """Carry out one update. Raises Refusal, and then nothing has changed."""
        table = self._schema.table(message.table_id)
        if message.is_default_action:
            self._write_default(table, update, message)
            return
        if table.layout.entries_are_const:
            raise forbidden(f"{table.name}: the entries are part of the program")
        key = _key(table, message)
        stored = self._entries[table.id].get(key)
        if update == p4rt.Update.INSERT:
            self._insert(table, key, stored, message)
        elif stored is None:
            raise not_found(f"{table.name}: no such entry")
        elif update == p4rt.Update.MODIFY:
            self._modify(table, stored, message)
        else:
            self._engine.remove(table.name, stored.id)
            del self._entries[table.id][key]

    def read(self, wanted: p4rt.TableEntry) -> Iterator[p4rt.TableEntry]:
        """The entries that `wanted` describes; a table id of 0 stands for all tables."""
        tables = (
            [self._schema.table(wanted.table_id)]
            if wanted.table_id
            else [*self._schema.tables.values()]
        )
        for table in tables:
            if wanted.is_default_action:
                yield self._read_default(table)
                continue
            stored = self._entries[table.id]
            if wanted.match:
                key = _key(table, wanted)
                stored = {key: stored[key]} if key in stored else {}
            for each in stored.values():
                message = p4rt.TableEntry()
                message.CopyFrom(each.message)
                if wanted.HasField("counter_data") and table.layout.direct_counter:
                    _fill(message.counter_data, self._engine.entry_count(table.name, each.id))
                yield message

    def count(
        self, message: p4rt.TableEntry, new: p4rt.CounterData | None = None
    ) -> Iterator[p4rt.DirectCounterEntry]:
        """Read, or set, the direct counters of the entries that `message` describes."""
        for entry in self.read(message):
            table = self._schema.table(entry.table_id)
            if not table.layout.direct_counter:
                continue
            number = MISS if entry.is_default_action else self._stored(table, entry).id
            wanted = Count(new.packet_count, new.byte_count) if new else None
            answer = p4rt.DirectCounterEntry(table_entry=entry)
            _fill(answer.data, self._engine.entry_count(table.name, number, wanted))
            yield answer

    def _stored(self, table: Table, message: p4rt.TableEntry) -> _Stored:
        return self._entries[table.id][_key(table, message)]

    def _insert(
        self, table: Table, key: Key, stored: _Stored | None, message: p4rt.TableEntry
    ) -> None:
        if stored:
            raise already_exists(f"{table.name}: there is such an entry, with the same match")
        if len(self._entries[table.id]) >= table.size:
            raise Refusal(
                grpc.StatusCode.RESOURCE_EXHAUSTED,
                f"{table.name}: all {table.size} entries are in use",
            )
        action, args = _action(table, message.action)
        values, masks, priority = key
        rank = priority if table.needs_priority else 1 + sum(mask.bit_count() for mask in masks)
        number = self._engine.insert(table.name, values, masks, rank, action.number, args)
        self._entries[table.id][key] = _Stored(number, _kept(message))

    def _modify(self, table: Table, stored: _Stored, message: p4rt.TableEntry) -> None:
        if message.HasField("counter_data") and table.layout.direct_counter:
            data = message.counter_data
            count = Count(data.packet_count, data.byte_count)
            self._engine.entry_count(table.name, stored.id, count)
        if message.HasField("action"):
            action, args = _action(table, message.action)
            self._engine.set_action(table.name, stored.id, action.number, args)
            stored.message = _kept(message)

    def _write_default(
        self, table: Table, update: p4rt.Update.Type, message: p4rt.TableEntry
    ) -> None:
        if update != p4rt.Update.MODIFY:
            raise invalid(f"{table.name}: the default entry can only be modified")
        if table.layout.default_is_const:
            raise forbidden(f"{table.name}: the default action is constant")
        if message.match or message.priority:
            raise invalid(f"{table.name}: the default entry has no match and no priority")
        if message.HasField("action"):
            action, args = _action(table, message.action)
            self._engine.set_action(table.name, MISS, action.number, args)
            self._defaults[table.id] = message.action
        elif (original := table.layout.default_action) is not None:
            self._engine.set_action(table.name, MISS, original, table.layout.default_args)
            self._defaults[table.id] = None

    def _read_default(self, table: Table) -> p4rt.TableEntry:
        message = p4rt.TableEntry(table_id=table.id, is_default_action=True)
        written, layout = self._defaults[table.id], table.layout
        if written:
            message.action.CopyFrom(written)
        elif layout.default_action is not None:
            action = table.action(layout.default_action)
            message.action.action.action_id = action.id
            for param, value in zip(action.params, layout.default_args, strict=True):
                message.action.action.params.add(param_id=param.id, value=encode(value))
        return message


def encode(value: int) -> bytes:
    """A number as P4Runtime's canonical byte string: the shortest that holds it."""
    return value.to_bytes(max(1, (value.bit_length() + 7) // 8), "big")


def _key(table: Table, message: p4rt.TableEntry) -> Key:
    matches = {match.field_id: match for match in message.match}
    if len(matches) != len(message.match):
        raise invalid(f"{table.name}: a field is matched twice")
    values, masks = [], []
    for field in table.fields:
        value, mask = _match(table, field, matches.pop(field.id, None))
        if value & ~mask:
            raise invalid(f"{table.name}.{field.name}: bits outside of the mask are set")
        values.append(value)
        masks.append(mask)
    if matches:
        raise invalid(f"{table.name}: no match field has id {min(matches)}")
    if table.needs_priority != (message.priority > 0):
        need = "needs a priority above 0" if table.needs_priority else "takes no priority"
        raise invalid(f"{table.name}: an entry of this table {need}")
    return tuple(values), tuple(masks), message.priority


def _match(table: Table, field: Field, match: p4rt.FieldMatch | None) -> tuple[int, int]:
    """A field's value and mask."""
    where = f"{table.name}.{field.name}"
    if match is None:
        if field.match == "exact":
            raise invalid(f"{where}: an exact match cannot be left out")
        return 0, 0
    kind = match.WhichOneof("field_match_type")
    if kind != field.match:
        raise invalid(f"{where}: the match is {kind}, the field's kind is {field.match}")
    if kind == "exact":
        return field.parse(match.exact.value), field.full
    if kind == "optional":
        return field.parse(match.optional.value), field.full
    if kind == "ternary":
        value, mask = field.parse(match.ternary.value), field.parse(match.ternary.mask)
        if mask == 0:
            raise invalid(f"{where}: leave a match without mask bits out")
        return value, mask
    length = match.lpm.prefix_len
    if not 0 < length <= field.bits:
        raise invalid(f"{where}: a prefix length of {length}, of {field.bits} bits")
    return field.parse(match.lpm.value), field.full ^ (field.full >> length)


def _action(table: Table, message: p4rt.TableAction) -> tuple[Action, list[int]]:
    if message.WhichOneof("type") != "action":
        if message.WhichOneof("type"):
            raise unsupported(f"{table.name}: action profiles are not supported")
        raise invalid(f"{table.name}: the entry has no action")
    call = message.action
    if call.action_id not in table.actions:
        raise invalid(f"{table.name}: has no action with id {call.action_id:#x}")
    action = table.actions[call.action_id]
    given = {param.param_id: param.value for param in call.params}
    if sorted(given) != sorted(param.id for param in action.params) or len(given) != len(
        call.params
    ):
        names = ", ".join(param.name for param in action.params) or "none"
        raise invalid(f"{action.name}: its parameters are {names}, each once")
    return action, [param.parse(given[param.id]) for param in action.params]


def _kept(message: p4rt.TableEntry) -> p4rt.TableEntry:
    copy = p4rt.TableEntry()
    copy.CopyFrom(message)
    copy.ClearField("counter_data")
    return copy


def _fill(data: p4rt.CounterData, count: Count) -> None:
    data.packet_count, data.byte_count = count.packets, count.bytes
