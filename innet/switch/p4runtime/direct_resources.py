"""Direct counters and meters through P4Runtime: DirectCounterEntry and DirectMeterEntry messages."""

from collections.abc import Callable, Iterator
from functools import partial

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.constants import MISS
from innet.switch.engine import Engine
from innet.switch.p4runtime.counting import counted
from innet.switch.p4runtime.entry_messages import copied, copy_meter
from innet.switch.p4runtime.entry_state import write_meter
from innet.switch.p4runtime.refusals import invalid, unsupported
from innet.switch.p4runtime.schema import Schema
from innet.switch.p4runtime.tables import Tables


class DirectCounters:
    """The direct counters of one loaded program."""

    def __init__(self, engine: Engine, schema: Schema, tables: Tables) -> None:
        self._engine, self._schema, self._tables = engine, schema, tables

    def write(self, message: p4rt.DirectCounterEntry) -> None:
        """Set an entry's counter. Raises Refusal."""
        entry = message.table_entry
        table = self._schema.table(entry.table_id)
        number = MISS if entry.is_default_action else self._tables.stored(table, entry).id
        if not table.layout.direct_counter:
            raise invalid(f"{table.name}: has no direct counter")
        self._engine.entries.count(table.name, number, counted(message.data))

    def saved(self, message: p4rt.DirectCounterEntry) -> Callable[[], None]:
        """Return a function that sets an entry's counter to its present count. Raises Refusal."""
        entry = self._tables.existing(message.table_entry)
        before = p4rt.DirectCounterEntry(table_entry=entry, data=entry.counter_data)
        return partial(self.write, before)

    def read(self, wanted: p4rt.DirectCounterEntry) -> Iterator[p4rt.DirectCounterEntry]:
        """Yield the counters of the entries that `wanted` describes. Raises Refusal."""
        entries = copied(wanted.table_entry)
        entries.counter_data.SetInParent()
        for entry in self._tables.read(entries):
            if self._schema.table(entry.table_id).layout.direct_counter:
                answer = p4rt.DirectCounterEntry(table_entry=entry, data=entry.counter_data)
                answer.table_entry.ClearField("counter_data")
                yield answer


class DirectMeters:
    """The direct meters of one loaded program."""

    def __init__(self, engine: Engine, schema: Schema, tables: Tables) -> None:
        self._engine, self._schema, self._tables = engine, schema, tables

    def write(self, message: p4rt.DirectMeterEntry) -> None:
        """Configure an entry's meter. Raises Refusal."""
        entry = copied(message.table_entry)
        entry.ClearField("meter_config")
        if message.HasField("config"):
            entry.meter_config.CopyFrom(message.config)
        table = self._schema.table(entry.table_id)
        if message.HasField("counter_data"):
            raise unsupported(f"{table.name}: counts of colours are not supported")
        if not table.layout.direct_meter:
            raise invalid(f"{table.name}: has no direct meter")
        if entry.is_default_action:
            raise unsupported(f"{table.name}: a meter of the default entry is not supported")
        stored = self._tables.stored(table, entry)
        write_meter(self._engine, table, stored.id, entry)
        copy_meter(entry, stored.message)

    def saved(self, message: p4rt.DirectMeterEntry) -> Callable[[], None]:
        """Return a function that configures an entry's meter as it is now. Raises Refusal."""
        return partial(self.write, _meter(self._tables.existing(message.table_entry)))

    def read(self, wanted: p4rt.DirectMeterEntry) -> Iterator[p4rt.DirectMeterEntry]:
        """Yield the meters of the entries that `wanted` describes. Raises Refusal."""
        entries = copied(wanted.table_entry)
        entries.meter_config.SetInParent()
        for entry in self._tables.read(entries):
            if self._schema.table(entry.table_id).layout.direct_meter:
                yield _meter(entry)


def _meter(entry: p4rt.TableEntry) -> p4rt.DirectMeterEntry:
    """Return an entry's meter, which has no configuration if the entry has none."""
    answer = p4rt.DirectMeterEntry(table_entry=entry)
    if entry.HasField("meter_config"):
        answer.config.CopyFrom(entry.meter_config)
    answer.table_entry.ClearField("meter_config")
    return answer
