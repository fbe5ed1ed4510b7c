"""One configuration of the switch: a program, and all of its state that P4Runtime can write and read."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any, Protocol

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.engine import Engine
from innet.switch.p4runtime.counting import Counters
from innet.switch.p4runtime.digests import Digests
from innet.switch.p4runtime.direct_resources import DirectCounters, DirectMeters
from innet.switch.p4runtime.metering import Meters
from innet.switch.p4runtime.profiles import Profiles
from innet.switch.p4runtime.reconcile import (
    keep_counters,
    keep_entries,
    keep_registers,
    keep_values,
)
from innet.switch.p4runtime.refusals import invalid, unsupported
from innet.switch.p4runtime.registers import Registers
from innet.switch.p4runtime.replication import Replication
from innet.switch.p4runtime.schema import Schema
from innet.switch.p4runtime.tables import Tables
from innet.switch.p4runtime.value_sets import ValueSets

Writer = Callable[["p4rt.Update.Type", Any], None]
Reader = Callable[[Any], Iterable[Any]]


class Cells(Protocol):
    """Entities that always exist, so that clients can only modify them."""

    def write(self, entry: Any, /) -> None:
        """Modify the cells that an entry describes. Raises Refusal."""

    def saved(self, entry: Any, /) -> Callable[[], None]:
        """Return a function that sets an entry's cells to their present state. Raises Refusal."""

    def read(self, wanted: Any, /) -> Iterator[Any]:
        """Yield the cells that `wanted` describes. Raises Refusal."""


class Pipeline:
    """The contents of an engine, by P4Runtime's names.

    Raises UnsupportedProgram if the configuration's P4Info does not belong to the engine's program.
    """

    def __init__(self, engine: Engine, config: p4rt.ForwardingPipelineConfig) -> None:
        self.engine, self.config = engine, config
        self.schema = schema = Schema(config.p4info, engine.program)
        profiles = Profiles(engine, schema)
        self.tables = tables = Tables(engine, schema, profiles)
        self.digests = digests = Digests(engine, schema.digests)
        sets = ValueSets(engine, schema)
        replication = Replication(engine)
        self._cells: dict[str, Cells] = {
            "counter_entry": Counters(engine, schema),
            "direct_counter_entry": DirectCounters(engine, schema, tables),
            "meter_entry": Meters(engine, schema),
            "direct_meter_entry": DirectMeters(engine, schema, tables),
            "register_entry": Registers(engine, schema),
        }
        self._writers: dict[str, Writer] = {
            "table_entry": tables.write,
            "action_profile_member": profiles.write_member,
            "action_profile_group": profiles.write_group,
            "value_set_entry": sets.write,
            "packet_replication_engine_entry": replication.write,
            "digest_entry": digests.write,
        }
        self._readers: dict[str, Reader] = {
            **{kind: cells.read for kind, cells in self._cells.items()},
            "table_entry": tables.read,
            "action_profile_member": profiles.members,
            "action_profile_group": profiles.groups,
            "value_set_entry": sets.read,
            "packet_replication_engine_entry": replication.read,
            "digest_entry": digests.read,
        }

    def write(self, update: p4rt.Update) -> None:
        """Carry out one update. Raises Refusal, and then nothing has changed."""
        if update.type == p4rt.Update.UNSPECIFIED:
            raise invalid("the update has no type")
        kind = update.entity.WhichOneof("entity")
        if not kind:
            raise invalid("the update has no entity")
        entry = getattr(update.entity, kind)
        if kind in self._writers:
            self._writers[kind](update.type, entry)
        elif kind not in self._cells:
            raise unsupported(f"{kind} cannot be written here")
        elif update.type != p4rt.Update.MODIFY:
            raise invalid("counters, meters and registers can only be modified")
        else:
            self._cells[kind].write(entry)

    def read(self, entity: p4rt.Entity) -> Iterator[p4rt.Entity]:
        """Yield all entities that `entity` describes. Raises Refusal."""
        kind = entity.WhichOneof("entity")
        if not kind:
            raise invalid("the request has an empty entity: ask for one kind of entities")
        if kind not in self._readers:
            raise unsupported(f"{kind} cannot be read here")
        for found in self._readers[kind](getattr(entity, kind)):
            yield p4rt.Entity(**{kind: found})

    def undo(self, update: p4rt.Update) -> Callable[[], None]:
        """Return a function that undoes an update which follows at once. Raises Refusal."""
        kind = update.entity.WhichOneof("entity")
        if kind in self._cells:
            return self._cells[kind].saved(getattr(update.entity, kind))
        if update.type == p4rt.Update.INSERT:
            return partial(self.write, p4rt.Update(type=p4rt.Update.DELETE, entity=update.entity))
        back = p4rt.Update.INSERT if update.type == p4rt.Update.DELETE else p4rt.Update.MODIFY
        if kind == "table_entry":
            found = [p4rt.Entity(table_entry=self.tables.existing(update.entity.table_entry))]
        else:
            found = list(self.read(update.entity))
        before = [p4rt.Update(type=back, entity=each) for each in found]

        def restore() -> None:
            for each in before:
                self.write(each)

        return restore

    def adopt(self, old: "Pipeline") -> None:
        """Write everything that was written to another pipeline to this one. Raises Refusal."""
        for entry in list(self.tables.read(p4rt.TableEntry())):
            if entry.table_id in old.schema.tables and not entry.is_const:
                self.tables.write(p4rt.Update.DELETE, entry)
        keep_entries(old.read, self.write, old.tables.defaults.written)

    def adopt_values(self, old: "Pipeline") -> None:
        """Take over counts and registers, as far as this pipeline has them too."""
        counters = old.schema.counters
        both = [(counters[i], each) for i, each in self.schema.counters.items() if i in counters]
        keep_counters(old.engine, self.engine, both)
        keep_values(old.read, self.write)
        keep_registers(old.engine, self.engine)
