"""The state that the engine keeps for an entry: its direct counter, its direct meter, its last hit."""

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.constants import MISS
from innet.switch.engine import Engine
from innet.switch.p4runtime.counting import counted, counter_data
from innet.switch.p4runtime.entities import Table
from innet.switch.p4runtime.entry_messages import copied
from innet.switch.p4runtime.metering import meter_rates


def write_state(engine: Engine, table: Table, number: int, message: p4rt.TableEntry) -> None:
    """Set the counter of an entry if the message has a count, and its meter in any case."""
    if message.HasField("counter_data"):
        engine.entries.count(table.name, number, counted(message.counter_data))
    if table.layout.direct_meter and number != MISS:
        write_meter(engine, table, number, message)


def write_meter(engine: Engine, table: Table, number: int, message: p4rt.TableEntry) -> None:
    """Set the meter of an entry. Without a configuration in the message, it marks everything green."""
    rates = meter_rates(message.meter_config) if message.HasField("meter_config") else None
    engine.entries.set_meter(table.name, number, rates)


def with_state(
    engine: Engine, table: Table, number: int, entry: p4rt.TableEntry, wanted: p4rt.TableEntry
) -> p4rt.TableEntry:
    """Return a copy of an entry, with the parts of its state that `wanted` asks for."""
    message = copied(entry)
    if not wanted.HasField("meter_config"):
        message.ClearField("meter_config")
    if wanted.HasField("counter_data") and table.layout.direct_counter:
        message.counter_data.CopyFrom(counter_data(engine.entries.count(table.name, number)))
    if wanted.HasField("time_since_last_hit") and table.ages and number != MISS:
        elapsed = engine.entries.idle_ns(table.name, number)
        message.time_since_last_hit.elapsed_ns = elapsed
    return message
