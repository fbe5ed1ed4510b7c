"""The entries of a program's tables, and the parts of the program that work like tables.

These are sets of actions from which an entry chooses (bundles), and the parser's value sets.
"""

import ctypes
import struct
from collections.abc import Iterable, Sequence
from typing import Any

from innet.switch import ir
from innet.switch.constants import MISS, NO_BUNDLE
from innet.switch.engine.counts import Count, MeterRates, TableCounts
from innet.switch.engine.library import Library, TableCountsStruct, count_struct, meter_struct
from innet.switch.layout import (
    argument_words,
    byte_order,
    key_bytes,
    key_sizes,
    storage_bytes,
    value_set_bytes,
)

_NO_ARGUMENTS = ((ctypes.c_uint64 * 1)(), 0)


class Entries:
    """The entries of all tables of one program, with the program's own ones in them."""

    def __init__(self, library: Library, program: ir.Program) -> None:
        self._library = library
        self._tables = program.tables
        self._numbers = {table.name: i for i, table in enumerate(program.tables)}
        self._params = {action.id: action.params for action in program.actions}
        self._value_sets = {each.name: each for each in program.value_sets}
        # To the runtime, the value sets are further tables.
        self._set_numbers = {
            name: number for number, name in enumerate(self._value_sets, len(program.tables))
        }
        self._set_entries: dict[str, list[int]] = {name: [] for name in self._value_sets}
        self.initial = {table.name: self._insert_initial(table) for table in program.tables}
        """The ids of the program's own entries, by table and in the program's order."""

    def table(self, name: str) -> ir.Table:
        """Return the program's table called `name`."""
        return self._tables[self._numbers[name]]

    def insert(
        self,
        table: str,
        values: Sequence[int],
        masks: Sequence[int],
        priority: int,
        action: int,
        args: Sequence[int],
        bundle: int = NO_BUNDLE,
    ) -> int:
        """Add an entry and return its id. If several entries match, the highest priority wins.

        If the program masks a key, both the packet's value and the entry's value are masked. In a
        table with an action profile, an entry has a bundle of actions instead of an action.
        """
        layout = self.table(table)
        values = [
            value if key.mask is None else value & key.mask
            for value, key in zip(values, layout.keys, strict=True)
        ]
        key, mask = _pack_key(layout, values), _pack_key(layout, masks)
        call = action, *self._arguments(action, args), bundle
        return int(self._library.insert(self._numbers[table], key, mask, priority, *call))

    def remove(self, table: str, entry: int) -> None:
        """Remove the entry with this id."""
        self._library.remove(self._numbers[table], entry)

    def set_action(
        self,
        table: str,
        entry: int,
        action: int,
        args: Sequence[int],
        bundle: int = NO_BUNDLE,
    ) -> None:
        """Change the action of an entry, or with :data:`MISS` the default action of the table."""
        call = action, *self._arguments(action, args), bundle
        self._library.set_action(self._numbers[table], entry, *call)

    def count(self, table: str, entry: int, new: Count | None = None) -> Count:
        """Read or set an entry's direct counter."""
        raw = count_struct(new)
        number = self._numbers[table]
        self._library.entry_count(number, entry, ctypes.byref(raw), new is not None)
        return new or raw.value()

    def set_meter(self, table: str, entry: int, rates: MeterRates | None) -> None:
        """Configure an entry's direct meter. Without rates it marks every packet green."""
        self._library.set_direct_meter(self._numbers[table], entry, meter_struct(rates))

    def idle_ns(self, table: str, entry: int) -> int:
        """Return the nanoseconds since a packet last matched an entry, or since it was inserted."""
        number = self._numbers[table]
        return min(int(idle(number, entry)) for idle in self._library.on_each("entry_idle"))

    def table_counts(self, table: str) -> TableCounts:
        """Return the hits and misses of a table so far."""
        raw = TableCountsStruct()
        self._library.table_counts(self._numbers[table], ctypes.byref(raw))
        return TableCounts(raw.hits, raw.misses)

    def set_bundle(self, bundle: int, calls: Sequence[tuple[int, Sequence[int]]]) -> None:
        """Set the actions and arguments from which an entry with this bundle chooses.

        The caller numbers bundles from 0 without gaps.
        """
        numbers = ctypes.c_uint32 * max(1, len(calls))
        actions = numbers(*(action for action, _ in calls))
        parts = [self._words(action, args) for action, args in calls]
        words, _ = _array([word for part in parts for word in part])
        self._library.set_bundle(bundle, len(calls), actions, numbers(*map(len, parts)), words)

    def remove_bundle(self, bundle: int) -> None:
        """Remove a bundle that no entry uses any more."""
        self._library.remove_bundle(bundle)

    def set_values(self, name: str, members: Iterable[tuple[int, int]]) -> None:
        """Set the members of a parser's value set, as values and masks over all of its joined fields."""
        number, padding = self._set_numbers[name], -self._value_sets[name].bits % 64
        size = value_set_bytes(self._value_sets[name])
        keys = [[(part << padding).to_bytes(size, "big") for part in member] for member in members]
        with self._library.held():
            for entry in self._set_entries[name]:
                self._library.remove(number, entry)
            self._set_entries[name] = [
                int(self._library.insert(number, *key, 1, 0, *_NO_ARGUMENTS, NO_BUNDLE))
                for key in keys
            ]

    def _insert_initial(self, table: ir.Table) -> list[int]:
        if table.default_action is not None:
            self.set_action(table.name, MISS, table.default_action, table.default_args)
        return [
            self.insert(
                table.name, entry.values, entry.masks, entry.priority, entry.action, entry.args
            )
            for entry in table.entries
        ]

    def _arguments(self, action: int, args: Sequence[int]) -> tuple[Any, int]:
        return _array(self._words(action, args))

    def _words(self, action: int, args: Sequence[int]) -> list[int]:
        """Return an action's arguments as words in C's layout."""
        words: list[int] = []
        params = self._params.get(action, ())
        for arg, (_, bits) in zip(args, params, strict=True):
            size, count = storage_bytes(bits), argument_words(bits)
            packed = arg.to_bytes(size, byte_order(size)).ljust(8 * count, b"\0")
            words += struct.unpack(f"={count}Q", packed)
        return words


def _pack_key(table: ir.Table, components: Sequence[int]) -> bytes:
    parts = (
        value.to_bytes(size, byte_order(size))
        for value, size in zip(components, key_sizes(table), strict=True)
    )
    return b"".join(parts).ljust(key_bytes(table), b"\0")


def _array(words: list[int]) -> tuple[Any, int]:
    return (ctypes.c_uint64 * max(1, len(words)))(*words), len(words)
