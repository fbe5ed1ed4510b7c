"""The controller as a whole: its parts, and their start with the state of an earlier controller."""

from collections.abc import Iterable

import structlog

from innet.controller.handlers.clock import Clock
from innet.controller.handlers.hellos import Hellos
from innet.controller.handlers.job_requests import JobRequests
from innet.controller.handlers.joins import Joins
from innet.controller.handlers.probes import Probes
from innet.controller.handlers.quota_requests import QuotaRequests
from innet.controller.handlers.switch_events import SwitchEvents
from innet.controller.handlers.switch_factory import SwitchFactory
from innet.controller.handlers.switch_requests import SwitchRequests
from innet.controller.handlers.worker_events import WorkerEvents
from innet.controller.jobs.job import Job
from innet.controller.jobs.records import JobRecord, SwitchRecord
from innet.controller.jobs.trees import Fabric
from innet.controller.state.inventory import contributors, drained, uplinks
from innet.controller.state.registry import Policy, Registry
from innet.controller.state.store import Store
from innet.errors import UsageError
from innet.rpc import tls

_log = structlog.get_logger("innet.controller")


class Controller:
    """A controller: requests about `switches`, `jobs` and `quotas`, and events from `workers`.

    `joins` takes the first message of each worker. With an `identity` it talks to switches over TLS.
    """

    def __init__(self, store: Store, policy: Policy, identity: tls.Identity | None = None) -> None:
        self.identity = identity
        self._registry = Registry(store, policy)
        probes = Probes(self._registry)
        events = SwitchEvents(self._registry, probes)
        self._hellos = Hellos(events.hello, self._registry.together)
        self._factory = SwitchFactory(self._registry, events, self._hellos, identity)
        state = store.load()
        self.switches = SwitchRequests(self._registry, self._factory, probes)
        self.jobs = JobRequests(self._registry, state.last_id, state.last_number)
        self.quotas = QuotaRequests(self._registry)
        self._registry.quotas.update(state.quotas)
        self.workers = WorkerEvents(self._registry)
        self.joins = Joins(self._registry, self.workers.hear)
        self._restore_switches(state.switches)
        self._restore_jobs(state.jobs)
        if state.switches:
            _log.info("state restored", switches=len(state.switches), jobs=len(state.jobs))
        self._hellos.start()
        for switch in self._registry.switches.values():
            switch.supervisor.start()
        Clock(self._registry).start()

    def close(self) -> None:
        """Disconnect from all switches and workers, which continue."""
        self._hellos.close()
        self._registry.close()

    def _restore_switches(self, records: Iterable[SwitchRecord]) -> None:
        for each in records:
            try:
                self._registry.switches[each.name] = self._factory.make(each)
            except UsageError as problem:  # the folder of its binary is gone
                raise UsageError(f"the switch {each.name!r}: {problem}") from None

    def _restore_jobs(self, records: Iterable[JobRecord]) -> None:
        registry, now = self._registry, self._registry.clock()
        for record in records:
            spec = record.spec
            fabric = Fabric.of(
                spec.switches, uplinks(registry.switches), contributors(registry.switches)
            )
            job = Job.restored(record, registry.invitation(spec.switch), fabric, now)
            if record.slot_range:
                for allocator in registry.allocators(spec.switches):
                    allocator.reserve(record.slot_range, fabric.most_entries(spec.workers))
            registry.jobs[spec.name] = job
            registry.members.restore(job)
            registry.remember(record)
            # The switches may have been drained after this term of the job began.
            registry.commit(job, job.reports.drain(drained(registry.switches), now))
        registry.members.await_return(now)  # from now on their silence counts
