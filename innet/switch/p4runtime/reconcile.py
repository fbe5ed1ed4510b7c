"""RECONCILE_AND_COMMIT: the transfer of entities and values from one program to the next.

Entries, groups and sessions have to fit the new program. Counts and registers continue where the
new program has the same ones.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterable, Iterator

import grpc

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.rpc.status import Refusal
from innet.switch.engine import Engine
from innet.switch.engine.arrays import portions
from innet.switch.p4runtime.entities import Counter
from innet.switch.p4runtime.refusals import invalid

Read = Callable[[p4rt.Entity], Iterable[p4rt.Entity]]
Write = Callable[[p4rt.Update], None]

# Entities come after the entities that they refer to.
_INSERTED = (
    ("action_profile_member",),
    ("action_profile_group",),
    ("table_entry",),
    ("packet_replication_engine_entry", "multicast_group_entry"),
    ("packet_replication_engine_entry", "clone_session_entry"),
    ("digest_entry",),
)
_MODIFIED = (("value_set_entry",), ("meter_entry",), ("direct_meter_entry",))


def keep_entries(read: Read, write: Write, defaults: Iterable[p4rt.TableEntry]) -> None:
    """Write all entities that `read` yields, and the default entries, with `write`. Raises Refusal."""
    for path in _INSERTED:
        for entity in _all(read, path):
            if not entity.table_entry.is_const:
                _keep(write, p4rt.Update.INSERT, entity)
    for path in _MODIFIED:
        for entity in _all(read, path):
            if _is_written(entity):
                _keep(write, p4rt.Update.MODIFY, entity)
    for entry in defaults:
        _keep(write, p4rt.Update.MODIFY, p4rt.Entity(table_entry=entry))


def keep_values(read: Read, write: Write) -> None:
    """Transfer the counts of the direct counters that the new program has too."""
    defaults = p4rt.Entity()
    defaults.direct_counter_entry.table_entry.is_default_action = True
    counted = itertools.chain(_all(read, ("direct_counter_entry",)), read(defaults))
    for entity in counted:
        with contextlib.suppress(Refusal):
            write(p4rt.Update(type=p4rt.Update.MODIFY, entity=entity))


def keep_registers(old: Engine, new: Engine) -> None:
    """Transfer the registers that both programs have."""
    for register in new.program.registers:
        if register in old.program.registers:
            for first, count in portions(0, register.size):
                cells = old.arrays.raw_register(register.name, first, count)
                new.arrays.set_raw_register(register.name, first, cells)


def keep_counters(old: Engine, new: Engine, counters: Iterable[tuple[Counter, Counter]]) -> None:
    """Transfer the cells of counters, each under its old and its new form."""
    for was, counter in counters:
        for first, count in portions(0, min(was.size, counter.size)):
            cells = old.arrays.counts(was.name, first, count)
            new.arrays.set_counts(counter.name, first, cells)


def _is_written(entity: p4rt.Entity) -> bool:
    """Return whether a meter has a configuration, or a value set has members."""
    if entity.WhichOneof("entity") == "value_set_entry":
        return bool(entity.value_set_entry.members)
    return bool(
        entity.meter_entry.HasField("config") or entity.direct_meter_entry.HasField("config")
    )


def _all(read: Read, path: tuple[str, ...]) -> Iterator[p4rt.Entity]:
    wanted = part = p4rt.Entity()
    for name in path:
        part = getattr(part, name)
        part.SetInParent()
    try:
        yield from read(wanted)
    except Refusal as refusal:
        if refusal.code != grpc.StatusCode.UNIMPLEMENTED:
            raise


def _keep(write: Write, kind: p4rt.Update.Type, entity: p4rt.Entity) -> None:
    try:
        write(p4rt.Update(type=kind, entity=entity))
    except Refusal as refusal:
        raise invalid(f"the forwarding state does not fit the new program: {refusal}") from None
