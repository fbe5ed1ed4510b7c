"""The entries that a switch holds: the controller's own, and those of its jobs."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from innet.controller.jobs.records import Assignment, SwitchRecord
from innet.controller.switches import entries
from innet.controller.switches.names import all_groups
from innet.controller.switches.p4runtime import SwitchConnection
from innet.controller.switches.reconcile import Difference, Held, by_key, difference, key
from innet.controller.switches.targets.interface import Target
from innet.errors import SwitchError

_log = structlog.get_logger("innet.controller")


@dataclass(frozen=True)
class _Entities:
    """A job's entities in a switch: `inward` admits its workers, `outward` brings them results."""

    job: Assignment
    inward: Held
    outward: Held


class HeldEntries:
    """The entities in a switch, `held` by their keys, as far as one connection knows them.

    `present` returns the record with the ports and uplinks that the switch has at present. `silent`
    returns the ports that must not be flooded. Methods raise SwitchError.
    """

    def __init__(
        self,
        connection: SwitchConnection,
        target: Target,
        present: Callable[[], SwitchRecord],
        silent: Callable[[], frozenset[int]],
    ) -> None:
        self.held: Held = {}
        self._connection, self._target = connection, target
        self._present, self._silent = present, silent
        self._entities: dict[int, _Entities] = {}
        self._own = self._own_entities()
        self._forwarding = entries.Forwarding(connection.names)

    @property
    def own_held(self) -> bool:
        """Return whether the switch holds some of the controller's own entries."""
        return not self._own.keys().isdisjoint(self.held)

    def hold(self, jobs: Sequence[Assignment]) -> dict[int, str]:
        """Make the switch hold its own entries and those of these jobs, and nothing else.

        Returns, by job, why the switch refused a job's entries.
        """
        try:
            return self._hold(jobs)
        except SwitchError:
            self.recollect()  # another client may have written as well
            return self._hold(jobs)

    def drift(self) -> list[str]:
        """Read the switch's entries, and describe how they differ from those that were held."""
        found, describe = self._read(), self._connection.names.describe
        drift = difference(self.held, found)
        missing = [f"{describe(each)} is missing" for each in drift.delete]
        changed = [f"{describe(each)} was changed" for each in drift.modify]
        strange = [f"{describe(each)} is not the controller's" for each in drift.insert]
        if drift:
            self.held = found
        return missing + changed + strange

    def recollect(self) -> None:
        """Read the switch's entries, if the connection works."""
        if self._connection.broken:
            raise SwitchError(self._connection.broken)
        self.held = self._read()

    def _read(self) -> Held:
        names = self._connection.names
        tables = [names.whole(table) for table in self._target.tables]
        return by_key(self._connection.read(*tables, all_groups()))

    def _own_entities(self) -> Held:
        """Return the switch's own entities. Links that close a loop are left out of the flood group."""
        names, silent, record = self._connection.names, self._silent(), self._present()
        ports = [port for port in record.ports if port not in silent]
        return by_key(entries.own_entities(names, record.service, ports, record.uplinks))

    def _hold(self, jobs: Sequence[Assignment]) -> dict[int, str]:
        self._own = self._own_entities()
        refused = {job.job: why for job in jobs if (why := self._target.objection(job))}
        jobs = [job for job in jobs if job.job not in refused]
        self._entities = {job.job: self._entities_of(job) for job in jobs}
        forwarding = self._forwarding.entities(jobs, self._present().stations)
        wanted = {**self._own, **forwarding}
        for each in self._entities.values():
            wanted.update(each.inward)
            wanted.update(each.outward)
        self._remove_all_but(wanted)
        self._apply(self._missing(self._own))
        for number, each in self._entities.items():
            try:
                self._apply(self._missing(each.outward))
                self._apply(self._missing(each.inward))
            except SwitchError as problem:
                self.recollect()
                refused[number] = str(problem)
        self._forward(forwarding)
        return refused

    def _entities_of(self, job: Assignment) -> _Entities:
        """Return a job's entities, made anew only if the job has changed."""
        before = self._entities.get(job.job)
        if before and before.job == job:
            return before
        names = self._connection.names
        inward, outward = entries.inward_entities(names, job), entries.outward_entities(names, job)
        return _Entities(job, by_key(inward), by_key(outward))

    def _remove_all_but(self, wanted: Held) -> None:
        # Entries that let workers contribute go first, before anything else changes.
        names = self._connection.names
        gone = [entity for at, entity in self.held.items() if at not in wanted]
        for inward in (True, False):
            some = [each for each in gone if entries.is_inward(names, each) == inward]
            self._apply(Difference(some, [], []))

    def _missing(self, wanted: Held) -> Difference:
        """Return the changes after which the switch holds at least these entities."""
        held = {at: self.held[at] for at in wanted if at in self.held}
        change = difference(held, wanted)
        modified = {id(each) for each in change.modify}
        # Keep the wanted entities in place of equal ones that were read, so the next comparison is quick.
        self.held.update((at, wanted[at]) for at in held if id(wanted[at]) not in modified)
        return change

    def _apply(self, change: Difference) -> None:
        connection = self._connection
        if change.delete:
            connection.delete(*change.delete)
        if change.modify:
            connection.modify(*change.modify)
        if change.insert:
            connection.insert(*change.insert)
        for entity in change.delete:
            del self.held[key(entity)]
        self.held.update(by_key([*change.modify, *change.insert]))

    def _forward(self, forwarding: Held) -> None:
        """Forward ordinary frames for the workers' hosts to their ports.

        Frames arrive without such an entry too, because they are flooded to all ports. So a refused
        entry is no reason to refuse a worker.
        """
        try:
            self._apply(self._missing(forwarding))
        except SwitchError as problem:
            self.recollect()
            _log.warning("some hosts' frames go to all ports", why=str(problem))
