"""The default entries of tables: the program's own ones, and those that clients have written."""

from innet.p4runtime import p4runtime_pb2 as p4rt
from innet.switch.constants import MISS, NO_ACTION, NO_BUNDLE
from innet.switch.engine import Engine
from innet.switch.p4runtime.counting import counted
from innet.switch.p4runtime.entities import Table
from innet.switch.p4runtime.entry_messages import canonical, set_action
from innet.switch.p4runtime.entry_state import write_state
from innet.switch.p4runtime.profiles import Profiles
from innet.switch.p4runtime.refusals import forbidden, invalid


class DefaultEntries:
    """The default entries of one loaded program."""

    def __init__(self, engine: Engine, profiles: Profiles) -> None:
        self._engine, self._profiles = engine, profiles
        self._written: dict[int, p4rt.TableEntry] = {}
        self._bundles: dict[int, int] = {}

    @property
    def written(self) -> list[p4rt.TableEntry]:
        """Return the default entries that clients have written."""
        return [*self._written.values()]

    def is_written(self, table: Table) -> bool:
        """Return whether a client has written the default entry of a table."""
        return table.id in self._written

    def read(self, table: Table) -> p4rt.TableEntry:
        """Return the default entry of a table. It has no action if the table has none."""
        if table.id in self._written:
            return self._written[table.id]
        message = p4rt.TableEntry(table_id=table.id, is_default_action=True)
        layout = table.layout
        if layout.default_action is not None:
            set_action(message.action, table, layout.default_action, layout.default_args)
        return message

    def write(self, table: Table, update: p4rt.Update.Type, message: p4rt.TableEntry) -> None:
        """Carry out one update. An entry without an action restores the program's own one.

        Raises Refusal, and then nothing has changed.
        """
        if update != p4rt.Update.MODIFY:
            raise invalid(f"{table.name}: the default entry can only be modified")
        if table.layout.default_is_const:
            raise forbidden(f"{table.name}: the default action is constant")
        if message.match or message.priority:
            raise invalid(f"{table.name}: the default entry has no match and no priority")
        change = self._set if message.HasField("action") else self._restore
        bundle = change(table, message)
        self._profiles.release(table, self._bundles.get(table.id, NO_BUNDLE))
        self._bundles[table.id] = bundle

    def _set(self, table: Table, message: p4rt.TableEntry) -> int:
        held = self._bundles.get(table.id, NO_BUNDLE)
        call = self._profiles.resolve(table, message.action, held)
        with self._engine.held():
            self._engine.entries.set_action(table.name, MISS, *call)
            write_state(self._engine, table, MISS, message)
        self._written[table.id] = canonical(message)
        return call[-1]

    def _restore(self, table: Table, message: p4rt.TableEntry) -> int:
        layout = table.layout
        action = NO_ACTION if layout.default_action is None else layout.default_action
        with self._engine.held():
            self._engine.entries.set_action(table.name, MISS, action, layout.default_args)
            if layout.direct_counter:
                self._engine.entries.count(table.name, MISS, counted(message.counter_data))
        self._written.pop(table.id, None)
        return NO_BUNDLE
