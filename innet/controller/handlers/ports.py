"""A change of the ports that a switch has."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from innet.controller.jobs.job import Job
from innet.controller.jobs.records import SwitchRecord
from innet.controller.state.inventory import Switches
from innet.controller.state.validation import check_ports
from innet.controller.switches.targets.choice import find
from innet.errors import ControllerError


def with_ports(
    record: SwitchRecord, ports: Sequence[int], switches: Switches, jobs: Iterable[Job]
) -> SwitchRecord:
    """Return the record of a switch with other ports.

    Raises UsageError if the switch cannot have them. Raises ControllerError if a port is left out
    that a worker of a job, or a link to another switch, is attached to.
    """
    check_ports(find(record.target), ports)
    for port, user in _users(record, switches, jobs):
        if port not in ports:
            raise ControllerError(f"port {port} of {record.name!r} is in use by {user}: include it")
    return replace(record, ports=tuple(ports))


def _users(
    record: SwitchRecord, switches: Switches, jobs: Iterable[Job]
) -> Iterable[tuple[int, str]]:
    """Yield the ports in use, each with its user."""
    for link in record.uplinks:
        yield link.port, f"the uplink to {link.parent!r}"
    for other in switches.values():
        for link in other.record.uplinks:
            if link.parent == record.name:
                yield link.parent_port, f"the switch {other.record.name!r} below"
    for job in jobs:
        for each in job.roster.admitted:
            if each.where and each.where.switch == record.name and each.where.port in record.ports:
                yield each.where.port, f"worker {each.rank} of the job {job.spec.name!r}"
