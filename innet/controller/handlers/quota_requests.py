"""Requests about quotas: setting and showing them."""

import structlog

from innet.controller.jobs.quotas import NO_QUOTA, Holding
from innet.controller.state import validation
from innet.controller.state.registry import Registry
from innet.rpc import innet_pb2 as pb

_log = structlog.get_logger("innet.controller")


class QuotaRequests:
    """The requests about a registry's quotas. Any thread may make them. They raise InnetError."""

    def __init__(self, registry: Registry) -> None:
        self._registry = registry

    def set(self, request: pb.SetQuotaRequest) -> pb.Quota:
        """Set the quota of an owner, or the quota of all owners that have none of their own.

        Running jobs go on, even if they exceed it.
        """
        validation.check_quota(request)
        owner, registry = request.name, self._registry
        quota = Holding(request.most_jobs, request.most_slots, request.most_workers)
        with registry.lock:
            registry.check_open()
            registry.store.save_quota(owner, quota)
            registry.quotas.pop(owner, None)
            if quota != NO_QUOTA:
                registry.quotas[owner] = quota
            _log.info(
                "quota", owner=owner, jobs=quota.jobs, slots=quota.slots, workers=quota.workers
            )
            registry.grant_slots()
            return self._view(owner)

    def listed(self, owner: str | None = None) -> pb.ListQuotasResponse:
        """Return the quotas and their use: an `owner`'s, or those of all who have a job or a quota."""
        registry = self._registry
        with registry.lock:
            owners = {job.spec.owner for job in registry.jobs.values()} | registry.quotas.keys()
            shown = sorted(owners - {""}) if owner is None else [owner]
            return pb.ListQuotasResponse(quotas=map(self._view, shown))

    def _view(self, owner: str) -> pb.Quota:
        quota, use = self._registry.quota(owner), self._registry.held(owner)
        return pb.Quota(
            name=owner, most_jobs=quota.jobs, most_slots=quota.slots, most_workers=quota.workers,
            jobs=use.jobs, slots=use.slots, workers=use.workers,
            by_default=owner not in self._registry.quotas and quota != NO_QUOTA,
        )  # fmt: skip
