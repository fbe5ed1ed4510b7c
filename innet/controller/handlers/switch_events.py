"""The events that come from switches: reports of their supervisors, and hello packets."""

import contextlib
from collections.abc import Iterator, Mapping

import structlog

from innet.controller.handlers.damage import DamageLog
from innet.controller.handlers.probes import Probes
from innet.controller.jobs.events import Actions
from innet.controller.jobs.job import Job
from innet.controller.jobs.records import Assignment, Attachment
from innet.controller.state.inventory import broadcast_domain, own_addresses, uplinks
from innet.controller.state.registry import Registry
from innet.errors import UsageError

_log = structlog.get_logger("innet.controller")


class SwitchEvents:
    """The listener of all supervisors: see :class:`innet.controller.switches.supervisor.Listener`."""

    def __init__(self, registry: Registry, probes: Probes) -> None:
        self._registry, self._probes = registry, probes
        self._damage = DamageLog(registry)

    def assignments(self, switch: str) -> list[Assignment]:
        """Return the entries that a switch should hold for the jobs."""
        with self._registry.lock:
            found = self._registry.switches.get(switch)
            return [*found.assignments.values()] if found else []

    def up(self, switch: str) -> None:
        """Note that a switch is ready for use."""
        self._changed(switch, None)
        with self._registry.lock:
            found = self._registry.switches.get(switch)
        if found:
            self._probes.send(found)

    def down(self, switch: str, problem: str) -> None:
        """Note that a switch cannot be used, or has lost its entries."""
        self._changed(switch, problem)

    def cleared(self, switch: str, job: int, term: int) -> None:
        """Note that a switch has cleared a job's cells for a term."""
        with self._job(switch, job) as known:
            if known:
                actions = known.reports.cells_cleared(switch, term, self._registry.clock())
                self._registry.commit(known, actions)

    def held(self, switch: str, job: int, term: int, ranks: frozenset[int]) -> None:
        """Note that a switch admits these workers of a job in this term."""
        with self._job(switch, job) as known:
            if known:
                actions = known.reports.entries_held(switch, term, ranks, self._registry.clock())
                self._registry.commit(known, actions)

    def refused(self, switch: str, job: int, term: int, reason: str) -> None:
        """Note that a switch has refused a job's entries."""
        with self._job(switch, job) as known:
            if known:
                actions = known.reports.entries_refused(term, reason, self._registry.clock())
                self._registry.commit(known, actions)

    def damaged(self, switch: str, counts: Mapping[int, int]) -> None:
        """Log what a switch's links have damaged."""
        with self._registry.lock:
            self._damage.at_switch(switch, counts)

    def hello(self, switch: str, nonce: int, where: Attachment) -> None:
        """Take a hello that came out of a data plane: it tells where a worker, or a probe, came in."""
        with self._registry.lock:
            if self._probes.take(nonce, where) or self._registry.closed.is_set():
                return
            job = self._registry.members.job(nonce)
            if job and switch in job.spec.switches:
                self._registry.commit(job, self._attach(job, nonce, where))

    def _attach(self, job: Job, nonce: int, where: Attachment) -> Actions:
        """Attach a worker where its hello came in, unless its address is another host's."""
        now, worker = self._registry.clock(), job.roster.find(nonce)
        if not worker or worker.where != where:
            try:
                self._check_address(nonce, where)
            except UsageError as problem:
                _log.warning(
                    "a worker's address is refused", job=job.spec.name,
                    rank=job.spec.in_group(worker.rank) if worker else None, port=where.port,
                    switch=where.switch,
                    address=where.address.mac, why=str(problem),
                )  # fmt: skip
                return job.refuse(nonce, problem, now)
        return job.hello(nonce, where, now)

    def _check_address(self, nonce: int, where: Attachment) -> None:
        switches = self._registry.switches
        area = broadcast_domain(where.switch, uplinks(switches))
        mac = where.address.mac
        others = {
            each.nonce: each.where
            for job in self._registry.jobs.values()
            for each in job.roster.workers.values()
            if each.where and each.where.address.mac == mac and each.where.switch in area
        }
        reserved = own_addresses(area, switches)
        self._registry.members.addresses.check(nonce, where, others, reserved)

    def _changed(self, switch: str, problem: str | None) -> None:
        with self._registry.lock:
            for job in self._registry.jobs_on(switch):
                actions = job.reports.switch_changed(switch, problem, self._registry.clock())
                self._registry.commit(job, actions)

    @contextlib.contextmanager
    def _job(self, switch: str, number: int) -> Iterator[Job | None]:
        """Yield the job of a switch with this id, or None, under the lock."""
        with self._registry.lock:
            jobs = self._registry.jobs_on(switch)
            yield next((job for job in jobs if job.spec.id == number), None)
