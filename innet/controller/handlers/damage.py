"""Links that damage packets, in the log. Switches and workers count the packets that come in damaged."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import structlog

from innet.controller.jobs.job import Job
from innet.controller.jobs.roster import Worker
from innet.controller.state.registry import Registry

_AGAIN_AFTER_S = 10.0
_TO_SWITCH, _TO_WORKER = "to the switch", "to the worker"
_log = structlog.get_logger("innet.controller")


@dataclass
class _Link:
    """A direction of a link: the count of damaged packets when it was last logged, and the time."""

    logged: int
    at: float = float("-inf")


class DamageLog:
    """Warnings about links that damage packets, at most one in 10 s for each direction of a link.

    A packet that came in damaged was dropped, and is sent again. Call methods under the registry's
    lock.
    """

    def __init__(self, registry: Registry) -> None:
        self._registry = registry
        self._links: dict[tuple[str, str, int], _Link] = {}

    def at_switch(self, switch: str, counts: Mapping[int, int]) -> None:
        """Take in how many damaged packets have come in at each port of a switch so far.

        The first counts may be of packets from before the controller started, and are not logged.
        """
        for port, count in counts.items():
            link = self._links.setdefault((_TO_SWITCH, switch, port), _Link(count))
            if more := self._more(link, count):
                for user in self._users(switch, port) or [{}]:
                    _log.warning(
                        "packets damaged", way=_TO_SWITCH, packets=more, switch=switch, port=port,
                        **user,
                    )  # fmt: skip

    def at_worker(self, job: Job, worker: Worker, count: int) -> None:
        """Take in how many damaged packets a worker has received so far."""
        name, rank = job.spec.name, job.spec.in_group(worker.rank)
        key = (_TO_WORKER, name, rank)
        if key not in self._links:
            if not count:
                return
            self._forget_ended()
        if more := self._more(self._links.setdefault(key, _Link(0)), count):
            where = worker.where
            at = {"switch": where.switch, "port": where.port} if where else {}
            _log.warning("packets damaged", way=_TO_WORKER, packets=more, job=name, rank=rank, **at)

    def _more(self, link: _Link, count: int) -> int:
        """Return how many packets are to be logged now."""
        if count < link.logged:  # another worker, or the switch was restarted
            link.logged = 0
        now, more = self._registry.clock(), count - link.logged
        if not more or now - link.at < _AGAIN_AFTER_S:
            return 0
        link.logged, link.at = count, now
        return more

    def _users(self, switch: str, port: int) -> Iterable[dict[str, object]]:
        """Return who is at a port: workers of jobs, or a switch."""
        for name, other in self._registry.switches.items():
            for link in other.record.uplinks:
                if (link.parent, link.parent_port) == (switch, port):
                    return [{"neighbour": name}]
                if (name, link.port) == (switch, port):
                    return [{"neighbour": link.parent}]
        return [
            {"job": job.spec.name, "rank": job.spec.in_group(rank)}
            for job in self._registry.jobs_on(switch)
            for rank, where in job.roster.attachments.items()
            if (where.switch, where.port) == (switch, port)
        ]

    def _forget_ended(self) -> None:
        """Forget workers of jobs that are over."""
        jobs = self._registry.jobs
        self._links = {
            key: link for key, link in self._links.items() if key[0] == _TO_SWITCH or key[1] in jobs
        }
