"""The clock of the controller: as time passes, leases end and waiting jobs go on."""

import threading

import structlog

from innet.controller.jobs.job import Job
from innet.controller.state.registry import Registry

_TICKS_PER_LEASE, _LONGEST_TICK = 10, 0.5
_LATE = 0.3  # of a lease
_log = structlog.get_logger("innet.controller")


class Clock:
    """The thread that lets time pass for a registry, until the registry is closed."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def start(self) -> None:
        """Start the thread."""
        threading.Thread(target=self._run, name="innet-leases", daemon=True).start()

    def _run(self) -> None:
        registry = self._registry
        period = min(registry.policy.lease_s / _TICKS_PER_LEASE, _LONGEST_TICK)
        last = registry.clock()
        while not registry.closed.wait(period):
            with registry.lock:
                now = registry.clock()
                try:
                    self._tick(now, now - last - period)
                except Exception:  # noqa: BLE001 - whatever it is
                    # Time goes on.
                    _log.exception("a tick failed")
                last = now

    def _tick(self, now: float, late: float) -> None:
        registry = self._registry
        if registry.closed.is_set():
            return
        for nonce, why in registry.members.given_up(now):
            if job := registry.members.job(nonce):
                registry.commit(job, job.expel(nonce, why, now))
        registry.members.keep_pace()
        for job in list(registry.jobs.values()):
            try:
                self._tick_job(job, now, late)
            except Exception:  # noqa: BLE001 - whatever it is
                # Time continues for all other jobs. What failed is tried again at the next tick.
                _log.exception("a job's tick failed", job=job.spec.name)
        registry.grant_slots()  # a worker that has come or left may have changed the order
        registry.lend_slots()

    def _tick_job(self, job: Job, now: float, late: float) -> None:
        registry = self._registry
        if late > registry.policy.lease_s * _LATE:
            job.excuse(late)  # not their silence: the controller stood still
        heartbeat_s = registry.members.pace.heartbeat_s
        registry.commit(job, [*job.tick(now), *registry.waits.follow(job, now, heartbeat_s)])
        registry.slot_watch.follow(job, registry.switches[job.spec.switch].record.lanes)
        if job.roster.expired(now):
            name, lease = job.spec.name, job.spec.lease_s
            registry.end(job, f"the job {name!r} had no worker for {lease:g} s")
