"""One configuration of the switch: a program, and all of its state that P4Runtime can write and read."""

from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import Any

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.engine import Engine
from innet.switch.p4runtime import registers
from innet.switch.p4runtime.counting import Counters
from innet.switch.p4runtime.digests import Digests
from innet.switch.p4runtime.direct_resources import DirectResources
from innet.switch.p4runtime.metering import Meters
from innet.switch.p4runtime.profiles import Profiles
from innet.switch.p4runtime.reconcile import (
    keep_counters,
    keep_entries,
    keep_registers,
    keep_values,
)
from innet.switch.p4runtime.refusals import invalid, unsupported
from innet.switch.p4runtime.replication import Replication
from innet.switch.p4runtime.schema import Schema
from innet.switch.p4runtime.tables import Tables
from innet.switch.p4runtime.value_sets import ValueSets

Writer = Callable[["p4rt.Update.Type", Any], None]
Reader = Callable[[Any], Iterable[Any]]


class Pipeline:
    """The contents of an engine, by P4Runtime's names.

    Raises UnsupportedProgram if the configuration's P4Info does not belong to the engine's program.
    """

    def __init__(self, engine: Engine, config: p4rt.ForwardingPipelineConfig) -> None:
        self.engine, self.config = engine, config
        self.schema = schema = Schema(config.p4info, engine.program)
        profiles = Profiles(engine, schema)
        self.tables = tables = Tables(engine, schema, profiles)
        direct = DirectResources(engine, schema, tables)
        self.digests = digests = Digests(engine, schema.digests)
        counters, meters = Counters(engine, schema), Meters(engine, schema)
        sets = ValueSets(engine, schema)
        replication = Replication(engine)
        self._writers: dict[str, Writer] = {
            "table_entry": tables.write,
            "counter_entry": _modified(counters.write),
            "direct_counter_entry": _modified(direct.write_counter),
            "meter_entry": _modified(meters.write),
            "direct_meter_entry": _modified(direct.write_meter),
            "register_entry": _modified(lambda entry: registers.write(engine, schema, entry)),
            "action_profile_member": profiles.write_member,
            "action_profile_group": profiles.write_group,
            "value_set_entry": sets.write,
            "packet_replication_engine_entry": replication.write,
            "digest_entry": digests.write,
        }
        self._readers: dict[str, Reader] = {
            "table_entry": tables.read,
            "counter_entry": counters.read,
            "direct_counter_entry": direct.read_counters,
            "meter_entry": meters.read,
            "direct_meter_entry": direct.read_meters,
            "register_entry": lambda wanted: registers.read(engine, schema, wanted),
            "action_profile_member": profiles.members,
            "action_profile_group": profiles.groups,
            "value_set_entry": sets.read,
            "packet_replication_engine_entry": replication.read,
            "digest_entry": digests.read,
        }
        self._saved: dict[str, Callable[[Any], Callable[[], None]]] = {
            "counter_entry": counters.saved,
            "meter_entry": meters.saved,
            "register_entry": lambda entry: registers.saved(engine, schema, entry),
        }
        self._existing: dict[str, Callable[[Any], Any]] = {
            "table_entry": tables.existing,
            "direct_counter_entry": direct.existing_counter,
            "direct_meter_entry": direct.existing_meter,
        }

    def write(self, update: p4rt.Update) -> None:
        """Carry out one update. Raises Refusal, and then nothing has changed."""
        if update.type == p4rt.Update.UNSPECIFIED:
            raise invalid("the update has no type")
        kind = update.entity.WhichOneof("entity")
        if not kind:
            raise invalid("the update has no entity")
        if kind not in self._writers:
            raise unsupported(f"{kind} cannot be written here")
        self._writers[kind](update.type, getattr(update.entity, kind))

    def read(self, entity: p4rt.Entity) -> Iterator[p4rt.Entity]:
        """Yield all entities that `entity` describes. Raises Refusal."""
        kind = entity.WhichOneof("entity")
        if not kind:
            raise invalid("the request has an empty entity: ask for one kind of entities")
        if kind not in self._readers:
            raise unsupported(f"{kind} cannot be read here")
        for found in self._readers[kind](getattr(entity, kind)):
            yield p4rt.Entity(**{kind: found})

    def existing(self, entity: p4rt.Entity) -> Iterable[p4rt.Entity]:
        """Return the present state of an entity, in a form that can be written again. Raises Refusal."""
        kind = entity.WhichOneof("entity")
        if kind not in self._existing:
            return self.read(entity)
        # Here `read` would not do. It compares more than the key, and without a match it reads the
        # whole table.
        found = self._existing[kind](getattr(entity, kind))
        return [p4rt.Entity(**{kind: found})] if found else []

    def undo(self, update: p4rt.Update) -> Callable[[], None]:
        """Return a function that undoes an update which follows at once. Raises Refusal."""
        kind = update.entity.WhichOneof("entity")
        if kind in self._saved:
            return self._saved[kind](getattr(update.entity, kind))
        if update.type == p4rt.Update.INSERT:
            return partial(self.write, p4rt.Update(type=p4rt.Update.DELETE, entity=update.entity))
        back = p4rt.Update.INSERT if update.type == p4rt.Update.DELETE else p4rt.Update.MODIFY
        before = [p4rt.Update(type=back, entity=each) for each in self.existing(update.entity)]

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


def _modified(write: Callable[[Any], None]) -> Writer:
    """Return a writer of entities that always exist and can only be modified."""

    def writer(kind: p4rt.Update.Type, entry: Any) -> None:
        if kind != p4rt.Update.MODIFY:
            raise invalid("counters, meters and registers can only be modified")
        write(entry)

    return writer
