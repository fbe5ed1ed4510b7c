"""Table entries through P4Runtime: messages on one side, the engine's entries on the other.

The engine only matches packets. This module keeps the entries as clients wrote them, so that they
can be read back.
"""

from collections.abc import Iterator

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.constants import MISS
from innet.switch.engine import Engine
from innet.switch.p4runtime.aging import Aging, StoredEntry
from innet.switch.p4runtime.default_entries import DefaultEntries
from innet.switch.p4runtime.entities import Table
from innet.switch.p4runtime.entry_messages import (
    action_id,
    canonical,
    check_content,
    check_timeout,
    copy_meter,
    set_action,
)
from innet.switch.p4runtime.entry_state import with_state, write_state
from innet.switch.p4runtime.matches import Key, add_match, entry_key, match_key
from innet.switch.p4runtime.profiles import Profiles
from innet.switch.p4runtime.refusals import already_exists, exhausted, forbidden, invalid, not_found
from innet.switch.p4runtime.schema import Schema


class Tables:
    """The table entries of one loaded program."""

    def __init__(self, engine: Engine, schema: Schema, profiles: Profiles) -> None:
        self._engine, self._schema, self._profiles = engine, schema, profiles
        self.defaults = DefaultEntries(engine, profiles)
        self.aging = Aging(engine)
        self._entries: dict[int, dict[Key, StoredEntry]] = {
            table.id: dict(self._initial(table)) for table in schema.tables.values()
        }

    def write(self, update: p4rt.Update.Type, message: p4rt.TableEntry) -> None:
        """Carry out one update. Raises Refusal, and then nothing has changed."""
        table = self._schema.table(message.table_id)
        if message.is_const:
            raise invalid(f"{table.name}: only the program can make an entry constant")
        if update != p4rt.Update.DELETE:  # a deletion reads only the key
            check_content(table, message)
        if message.is_default_action:
            self.defaults.write(table, update, message)
            return
        if table.is_const and (update != p4rt.Update.MODIFY or message.HasField("action")):
            raise forbidden(
                f"{table.name}: the entries are constant, because they are part of the program"
            )
        if not table.fields:
            raise invalid(f"{table.name}: has no key, so it has only a default entry")
        if update == p4rt.Update.INSERT:
            self._insert(table, message)
        elif update == p4rt.Update.MODIFY:
            self._modify(table, self.stored(table, message), message)
        else:
            stored = self.stored(table, message)
            self._engine.entries.remove(table.name, stored.id)
            self._profiles.release(table, stored.bundle)
            self.aging.forget(stored)
            del self._entries[table.id][entry_key(table, message)]

    def read(self, wanted: p4rt.TableEntry) -> Iterator[p4rt.TableEntry]:
        """Yield the entries that `wanted` describes. A table id of 0 stands for all tables."""
        if not wanted.table_id:
            for table in self._schema.tables.values():
                yield from self._read_table(table, wanted, {})
            return
        table = self._schema.table(wanted.table_id)
        check_timeout(table, wanted, reading=True)
        parts = match_key(table, wanted) if wanted.match else None
        filters = {
            name: getattr(wanted, name)
            for name in ("priority", "controller_metadata", "metadata")
            if getattr(wanted, name)
        }
        for entry in self._read_table(table, wanted, filters):
            if parts and match_key(table, entry) != parts:
                continue
            if action_id(wanted) and action_id(entry) != action_id(wanted):
                continue
            yield entry

    def stored(self, table: Table, message: p4rt.TableEntry) -> StoredEntry:
        """Return the entry with the key of `message`. Raises Refusal if there is none."""
        stored = self._entries[table.id].get(entry_key(table, message))
        if not stored:
            raise not_found(f"{table.name}: there is no entry with this match")
        return stored

    def existing(self, message: p4rt.TableEntry) -> p4rt.TableEntry:
        """Return the entry with the key of `message` in a form that can be written again.

        Reading would not do: it compares more than the key, and without a match it reads the whole
        table. Raises Refusal if there is no such entry.
        """
        table = self._schema.table(message.table_id)
        wanted = p4rt.TableEntry()
        wanted.counter_data.SetInParent()
        wanted.meter_config.SetInParent()
        if message.is_default_action:
            entry = with_state(self._engine, table, MISS, self.defaults.read(table), wanted)
            if not self.defaults.is_written(table):
                entry.ClearField("action")  # which restores the program's own one
            return entry
        stored = self.stored(table, message)
        entry = with_state(self._engine, table, stored.id, stored.message, wanted)
        if entry.is_const:
            entry.ClearField("is_const")
            entry.ClearField("action")
        return entry

    def _read_table(
        self, table: Table, wanted: p4rt.TableEntry, filters: dict[str, object]
    ) -> Iterator[p4rt.TableEntry]:
        if wanted.is_default_action:
            yield with_state(self._engine, table, MISS, self.defaults.read(table), wanted)
            return
        for stored in self._entries[table.id].values():
            if all(getattr(stored.message, name) == value for name, value in filters.items()):
                yield with_state(self._engine, table, stored.id, stored.message, wanted)

    def _initial(self, table: Table) -> Iterator[tuple[Key, StoredEntry]]:
        """Yield the program's own entries, with the priorities that P4Runtime gives them."""
        numbers = self._engine.entries.initial[table.name]
        for number, entry in zip(numbers, table.layout.entries, strict=True):
            message = p4rt.TableEntry(table_id=table.id, is_const=table.is_const)
            for each, value, mask in zip(table.fields, entry.values, entry.masks, strict=True):
                add_match(message, each, value, mask)
            if table.needs_priority:
                message.priority = entry.priority
            set_action(message.action, table, entry.action, entry.args)
            yield entry_key(table, message), StoredEntry(number, message)

    def _insert(self, table: Table, message: p4rt.TableEntry) -> None:
        key = entry_key(table, message)
        if key in self._entries[table.id]:
            raise already_exists(
                f"{table.name}: there is an entry with this match already: modify it"
            )
        if len(self._entries[table.id]) >= table.size:
            raise exhausted(f"{table.name}: all {table.size} entries are in use: delete one first")
        call = self._profiles.resolve(table, message.action)
        values, masks, priority = key
        rank = priority if table.needs_priority else 1 + sum(mask.bit_count() for mask in masks)
        with self._engine.held():
            number = self._engine.entries.insert(table.name, values, masks, rank, *call)
            write_state(self._engine, table, number, message)
        stored = StoredEntry(number, canonical(message), call[-1])
        self._entries[table.id][key] = stored
        self.aging.watch(table.name, stored)

    def _modify(self, table: Table, stored: StoredEntry, message: p4rt.TableEntry) -> None:
        if stored.message.is_const:
            write_state(self._engine, table, stored.id, message)
            copy_meter(message, stored.message)
            return
        call = self._profiles.resolve(table, message.action, stored.bundle)
        with self._engine.held():
            self._engine.entries.set_action(table.name, stored.id, *call)
            write_state(self._engine, table, stored.id, message)
        self._profiles.release(table, stored.bundle)
        stored.message, stored.bundle = canonical(message), call[-1]
        self.aging.watch(table.name, stored)
