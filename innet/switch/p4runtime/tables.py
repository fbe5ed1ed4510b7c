"""Table entries through P4Runtime: messages on one side, the engine's entries on the other.

The engine only matches packets. This module keeps the entries as clients wrote them, so that they
can be read back.
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from dataclasses import field as dataclass_field

import grpc
from p4.v1 import p4runtime_pb2 as p4rt

from innet.switch.constants import MISS, NO_ACTION, NO_BUNDLE
from innet.switch.engine import Count, Engine
from innet.switch.p4runtime.counting import counted, counter_data
from innet.switch.p4runtime.metering import meter_rates
from innet.switch.p4runtime.profiles import Call, Profiles, call
from innet.switch.p4runtime.refusal import (
    Refusal,
    already_exists,
    forbidden,
    invalid,
    not_found,
    unsupported,
)
from innet.switch.p4runtime.schema import Field, Schema, Table, ValueSet, encode

_NS = 1_000_000_000
_SHORTEST_SCAN = 0.01  # seconds

Key = tuple[tuple[int, ...], tuple[int, ...], int]
"""The identity of an entry: its values, its masks and its P4Runtime priority."""


@dataclass
class _Stored:
    id: int
    message: p4rt.TableEntry
    bundle: int = NO_BUNDLE
    idle_from: int = dataclass_field(default_factory=time.monotonic_ns)
    """The time in ns at which the idle timeout last began, if no packet has matched since."""


class Tables:
    """The table entries of one loaded program."""

    def __init__(self, engine: Engine, schema: Schema) -> None:
        self._engine = engine
        self._schema = schema
        self._entries: dict[int, dict[Key, _Stored]] = {number: {} for number in schema.tables}
        self.profiles = Profiles(engine, schema)
        self._defaults: dict[int, p4rt.TableEntry] = {}
        self._default_bundles = dict.fromkeys(schema.tables, NO_BUNDLE)
        for table in schema.tables.values():
            self._store_initial(table)

    def write(self, update: p4rt.Update.Type, message: p4rt.TableEntry) -> None:
        """Carry out one update. Raises Refusal, and then nothing has changed."""
        table = self._schema.table(message.table_id)
        if message.is_const:
            raise invalid(f"{table.name}: an entry that is constant cannot be written")
        if update != p4rt.Update.DELETE:  # a deletion reads only the key
            _check_content(table, message)
        if message.is_default_action:
            self._write_default(table, update, message)
            return
        if table.is_const and (update != p4rt.Update.MODIFY or message.HasField("action")):
            raise forbidden(f"{table.name}: the entries are part of the program")
        if not table.fields:
            raise invalid(f"{table.name}: has no key, and so no entries but the default one")
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
            self._release(table, stored.bundle)
            del self._entries[table.id][key]

    def read(self, wanted: p4rt.TableEntry) -> Iterator[p4rt.TableEntry]:
        """Yield the entries that `wanted` describes. A table id of 0 stands for all tables."""
        if not wanted.table_id:
            for table in self._schema.tables.values():
                yield from self._read_table(table, wanted, {})
            return
        table = self._schema.table(wanted.table_id)
        _check_timeout(table, wanted, reading=True)
        parts = match_key(table, wanted) if wanted.match else None
        filters = {
            name: getattr(wanted, name)
            for name in ("priority", "controller_metadata", "metadata")
            if getattr(wanted, name)
        }
        for entry in self._read_table(table, wanted, filters):
            if parts and match_key(table, entry) != parts:
                continue
            if _action_id(wanted) and _action_id(entry) != _action_id(wanted):
                continue
            yield entry

    def existing(self, message: p4rt.TableEntry) -> p4rt.TableEntry | None:
        """Return the entry with the key of `message` in a form that can be written again, or None."""
        table = self._schema.table(message.table_id)
        asked = p4rt.TableEntry(is_default_action=message.is_default_action)
        asked.counter_data.SetInParent()
        asked.meter_config.SetInParent()
        if message.is_default_action:
            return self._with_state(table, MISS, self._default(table), asked)
        stored = self._entries[table.id].get(_key(table, message))
        if not stored:
            return None
        entry = self._with_state(table, stored.id, stored.message, asked)
        if entry.is_const:
            entry.ClearField("is_const")
            entry.ClearField("action")
        return entry

    def written_defaults(self) -> list[p4rt.TableEntry]:
        """Return the default entries that clients have written."""
        return [*self._defaults.values()]

    def count(self, message: p4rt.TableEntry) -> Iterator[p4rt.DirectCounterEntry]:
        """Yield the direct counters of the entries that `message` describes."""
        wanted = p4rt.TableEntry()
        wanted.CopyFrom(message)
        wanted.counter_data.SetInParent()
        for entry in self.read(wanted):
            if self._schema.table(entry.table_id).layout.direct_counter:
                answer = p4rt.DirectCounterEntry(table_entry=entry, data=entry.counter_data)
                answer.table_entry.ClearField("counter_data")
                yield answer

    def set_count(self, counter: p4rt.DirectCounterEntry) -> None:
        """Set an entry's direct counter. Raises Refusal."""
        message = counter.table_entry
        table = self._schema.table(message.table_id)
        stored = None if message.is_default_action else self._stored(table, message)
        if not table.layout.direct_counter:
            raise invalid(f"{table.name}: has no direct counter")
        number = stored.id if stored else MISS
        self._engine.entry_count(table.name, number, counted(counter.data))

    def meters(self, message: p4rt.TableEntry) -> Iterator[p4rt.DirectMeterEntry]:
        """Yield the direct meters of the entries that `message` describes."""
        wanted = p4rt.TableEntry()
        wanted.CopyFrom(message)
        wanted.meter_config.SetInParent()
        for entry in self.read(wanted):
            if self._schema.table(entry.table_id).layout.direct_meter:
                answer = p4rt.DirectMeterEntry(table_entry=entry)
                if entry.HasField("meter_config"):
                    answer.config.CopyFrom(entry.meter_config)
                answer.table_entry.ClearField("meter_config")
                yield answer

    def set_meter(self, message: p4rt.DirectMeterEntry) -> None:
        """Configure the direct meter of an entry. Raises Refusal."""
        entry = p4rt.TableEntry()
        entry.CopyFrom(message.table_entry)
        entry.ClearField("meter_config")
        if message.HasField("config"):
            entry.meter_config.CopyFrom(message.config)
        table = self._schema.table(entry.table_id)
        if message.HasField("counter_data"):
            raise unsupported(f"{table.name}: colours are not counted")
        if not table.layout.direct_meter:
            raise invalid(f"{table.name}: has no direct meter")
        if entry.is_default_action:
            raise unsupported(f"{table.name}: the default entry is not metered")
        stored = self._stored(table, entry)
        self._write_meter(table, stored.id, entry)
        _copy_meter(entry, stored.message)

    def idle(self) -> tuple[list[p4rt.TableEntry], float | None]:
        """Return the entries whose idle timeout is over, and the seconds until the next may be."""
        over, waits, now = [], [], time.monotonic_ns()
        for table in self._schema.tables.values():
            for stored in self._entries[table.id].values() if table.ages else ():
                timeout = stored.message.idle_timeout_ns
                if not timeout:
                    continue
                idle = min(self._engine.idle_ns(table.name, stored.id), now - stored.idle_from)
                if idle >= timeout:
                    over.append(_idle_message(stored.message))
                    stored.idle_from, idle = now, 0
                waits.append((timeout - idle) / _NS)
        return over, max(_SHORTEST_SCAN, min(waits)) if waits else None

    def _read_table(
        self, table: Table, wanted: p4rt.TableEntry, filters: dict[str, object]
    ) -> Iterator[p4rt.TableEntry]:
        if wanted.is_default_action:
            yield self._with_state(table, MISS, self._default(table), wanted)
            return
        for stored in self._entries[table.id].values():
            if all(getattr(stored.message, name) == value for name, value in filters.items()):
                yield self._with_state(table, stored.id, stored.message, wanted)

    def _with_state(
        self, table: Table, number: int, entry: p4rt.TableEntry, wanted: p4rt.TableEntry
    ) -> p4rt.TableEntry:
        """Return a copy of an entry, with the parts of its data plane state that `wanted` asks for."""
        message = p4rt.TableEntry()
        message.CopyFrom(entry)
        if not wanted.HasField("meter_config"):
            message.ClearField("meter_config")
        if wanted.HasField("counter_data") and table.layout.direct_counter:
            count = self._engine.entry_count(table.name, number)
            message.counter_data.CopyFrom(counter_data(count))
        if wanted.HasField("time_since_last_hit") and table.ages and number != MISS:
            elapsed = self._engine.idle_ns(table.name, number)
            message.time_since_last_hit.elapsed_ns = elapsed
        return message

    def _stored(self, table: Table, message: p4rt.TableEntry) -> _Stored:
        stored = self._entries[table.id].get(_key(table, message))
        if not stored:
            raise not_found(f"{table.name}: no such entry")
        return stored

    def _store_initial(self, table: Table) -> None:
        """Store the program's own entries, with the priorities that P4Runtime gives them."""
        numbers = self._engine.initial_entries[table.name]
        for number, entry in zip(numbers, table.layout.entries, strict=True):
            message = p4rt.TableEntry(table_id=table.id, is_const=table.is_const)
            for each, value, mask in zip(table.fields, entry.values, entry.masks, strict=True):
                _add_match(message, each, value, mask)
            if table.needs_priority:
                message.priority = entry.priority
            _set_action(message.action, table, entry.action, entry.args)
            self._entries[table.id][_key(table, message)] = _Stored(number, message)

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
        does = self._resolve(table, message.action)
        values, masks, priority = key
        rank = priority if table.needs_priority else 1 + sum(mask.bit_count() for mask in masks)
        with self._engine.held():
            number = self._engine.insert(table.name, values, masks, rank, *does)
            self._write_count(table, number, message)
            self._write_meter(table, number, message)
        self._entries[table.id][key] = _Stored(number, _kept(message), does[-1])

    def _modify(self, table: Table, stored: _Stored, message: p4rt.TableEntry) -> None:
        if stored.message.is_const:
            self._write_count(table, stored.id, message)
            self._write_meter(table, stored.id, message)
            _copy_meter(message, stored.message)
            return
        does = self._resolve(table, message.action)
        with self._engine.held():
            self._engine.set_action(table.name, stored.id, *does)
            self._write_count(table, stored.id, message)
            self._write_meter(table, stored.id, message)
        self._release(table, stored.bundle)
        stored.message, stored.bundle = _kept(message), does[-1]
        stored.idle_from = time.monotonic_ns()

    def _write_count(self, table: Table, number: int, message: p4rt.TableEntry) -> None:
        if message.HasField("counter_data"):
            self._engine.entry_count(table.name, number, counted(message.counter_data))

    def _write_meter(self, table: Table, number: int, message: p4rt.TableEntry) -> None:
        if table.layout.direct_meter:
            rates = meter_rates(message.meter_config) if message.HasField("meter_config") else None
            self._engine.set_entry_meter(table.name, number, rates)

    def _resolve(self, table: Table, action: p4rt.TableAction) -> tuple[int, Sequence[int], int]:
        """Return an entry's action, arguments and bundle. The bundle is held. Raises Refusal."""
        if table.profile:
            return NO_ACTION, (), self.profiles.hold(table, action)
        return *_action(table, action), NO_BUNDLE

    def _release(self, table: Table, bundle: int) -> None:
        if bundle != NO_BUNDLE:
            self.profiles.release(table, bundle)

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
            does = self._resolve(table, message.action)
            with self._engine.held():
                self._engine.set_action(table.name, MISS, *does)
                self._write_count(table, MISS, message)
            self._defaults[table.id] = _kept(message)
        else:
            layout = table.layout
            original = NO_ACTION if layout.default_action is None else layout.default_action
            does = original, layout.default_args, NO_BUNDLE
            with self._engine.held():
                self._engine.set_action(table.name, MISS, *does)
                if layout.direct_counter:
                    self._engine.entry_count(table.name, MISS, Count(0, 0))
            self._defaults.pop(table.id, None)
        self._release(table, self._default_bundles[table.id])
        self._default_bundles[table.id] = does[-1]

    def _default(self, table: Table) -> p4rt.TableEntry:
        if table.id in self._defaults:
            return self._defaults[table.id]
        message = p4rt.TableEntry(table_id=table.id, is_default_action=True)
        layout = table.layout
        if layout.default_action is not None:
            _set_action(message.action, table, layout.default_action, layout.default_args)
        return message


def _key(table: Table, message: p4rt.TableEntry) -> Key:
    values, masks = match_key(table, message)
    if table.needs_priority != (message.priority > 0):
        need = "needs a priority above 0" if table.needs_priority else "takes no priority"
        raise invalid(f"{table.name}: an entry of this table {need}")
    return values, masks, message.priority


def match_key(
    table: Table | ValueSet, message: p4rt.TableEntry | p4rt.ValueSetMember
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Return the value and mask of each field in an entry or a member. Raises Refusal."""
    matches = {match.field_id: match for match in message.match}
    if len(matches) != len(message.match):
        raise invalid(f"{table.name}: a field is matched twice")
    values, masks = [], []
    for field in table.fields:
        value, mask = _match(table, field, matches.pop(field.id, None))
        if field.match != "range" and value & ~mask:
            raise invalid(f"{table.name}.{field.name}: bits outside of the mask are set")
        values.append(value)
        masks.append(mask)
    if matches:
        raise invalid(f"{table.name}: no match field has id {min(matches)}")
    return tuple(values), tuple(masks)


def _match(table: Table | ValueSet, field: Field, match: p4rt.FieldMatch | None) -> tuple[int, int]:
    """Return a field's value and mask, or the bounds of its range."""
    where = f"{table.name}.{field.name}"
    if match is None:
        if field.match == "exact":
            raise invalid(f"{where}: an exact match cannot be left out")
        return 0, field.full if field.match == "range" else 0
    kind = match.WhichOneof("field_match_type")
    if kind != field.match:
        raise invalid(f"{where}: the match is {kind}, the field's kind is {field.match}")
    if kind == "exact":
        return field.parse(match.exact.value), field.full
    if kind == "range":
        return _range(where, field, match.range)
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


def _range(where: str, field: Field, match: p4rt.FieldMatch.Range) -> tuple[int, int]:
    """Return the bounds of a range."""
    low, high = field.parse(match.low), field.parse(match.high)
    if low > high:
        raise invalid(f"{where}: the range begins at {low:#x} and ends at {high:#x}")
    if (low, high) == (0, field.full):
        raise invalid(f"{where}: leave a range of everything out")
    return low, high


def _action(table: Table, message: p4rt.TableAction) -> Call:
    if not message.WhichOneof("type"):
        raise invalid(f"{table.name}: the entry has no action")
    if message.WhichOneof("type") != "action":
        raise invalid(f"{table.name}: has no action profile: its entries have actions")
    return call(table.name, table.actions, message.action)


def _action_id(message: p4rt.TableEntry) -> int:
    return int(message.action.action.action_id)


def _set_action(
    message: p4rt.TableAction, table: Table, number: int, args: tuple[int, ...]
) -> None:
    action = table.action(number)
    message.action.action_id = action.id
    for param, value in zip(action.params, args, strict=True):
        message.action.params.add(param_id=param.id, value=encode(value))


def _add_match(message: p4rt.TableEntry, each: Field, value: int, mask: int) -> None:
    """Add a match of one of the program's own entries, unless it matches everything."""
    if (value, mask) == (0, each.full if each.match == "range" else 0) and each.match != "exact":
        return
    match = message.match.add(field_id=each.id)
    if each.match == "lpm":
        match.lpm.value, match.lpm.prefix_len = encode(value), mask.bit_count()
    elif each.match == "range":
        match.range.low, match.range.high = encode(value), encode(mask)
    elif each.match == "ternary":
        match.ternary.value, match.ternary.mask = encode(value), encode(mask)
    else:
        getattr(match, each.match).value = encode(value)


def _check_content(table: Table, message: p4rt.TableEntry) -> None:
    _check_timeout(table, message)
    if message.HasField("counter_data") and not table.layout.direct_counter:
        raise invalid(f"{table.name}: has no direct counter")
    _check_meter(table, message)
    action = table.actions.get(_action_id(message))
    if action and not (action.as_default if message.is_default_action else action.in_entries):
        where = "be the default action" if message.is_default_action else "stand in entries"
        raise forbidden(f"{table.name}: {action.name} cannot {where}")


def _check_timeout(table: Table, message: p4rt.TableEntry, *, reading: bool = False) -> None:
    """Raise Refusal for an invalid timeout. See "Idle-timeout" in the P4Runtime specification."""
    if message.idle_timeout_ns < 0:
        raise invalid(f"{table.name}: the idle timeout is negative")
    if message.HasField("time_since_last_hit") and not reading:
        raise invalid(f"{table.name}: the time since the last hit cannot be written")
    if not (message.idle_timeout_ns or message.HasField("time_since_last_hit")):
        return
    if not table.ages:
        raise invalid(f"{table.name}: the program gives this table no support_timeout")
    if message.is_default_action:
        raise invalid(f"{table.name}: the default entry has no idle timeout")


def _idle_message(entry: p4rt.TableEntry) -> p4rt.TableEntry:
    message = p4rt.TableEntry()
    message.CopyFrom(entry)
    message.ClearField("action")
    return message


def _kept(message: p4rt.TableEntry) -> p4rt.TableEntry:
    """Return an entry as a client can read it back, with all byte strings in canonical form."""
    copy = p4rt.TableEntry()
    copy.CopyFrom(message)
    copy.ClearField("counter_data")
    for match in copy.match:
        kind = match.WhichOneof("field_match_type")
        _shorten(getattr(match, kind))
    kind = copy.action.WhichOneof("type")
    shot = copy.action.action_profile_action_set.action_profile_actions if kind else ()
    actions = [copy.action.action] if kind == "action" else [each.action for each in shot]
    for param in (param for action in actions for param in action.params):
        _shorten(param)
    return copy


def _check_meter(table: Table, message: p4rt.TableEntry) -> None:
    if message.HasField("meter_counter_data"):
        raise unsupported(f"{table.name}: colours are not counted")
    if not message.HasField("meter_config"):
        return
    if not table.layout.direct_meter:
        raise invalid(f"{table.name}: has no direct meter")
    if message.is_default_action:
        raise unsupported(f"{table.name}: the default entry is not metered")
    meter_rates(message.meter_config)


def _copy_meter(source: p4rt.TableEntry, target: p4rt.TableEntry) -> None:
    target.ClearField("meter_config")
    if source.HasField("meter_config"):
        target.meter_config.CopyFrom(source.meter_config)


def _shorten(message: object) -> None:
    for name in ("value", "mask", "low", "high"):
        if hasattr(message, name):
            setattr(message, name, getattr(message, name).lstrip(b"\0") or b"\0")
