"""Changes of the ports and uplinks that a switch has."""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from innet.controller.jobs.job import Job
from innet.controller.jobs.records import SwitchRecord, Uplink
from innet.controller.state.inventory import Switches, check_links, descendants
from innet.controller.state.validation import check_ports
from innet.controller.switches.targets.choice import find
from innet.errors import ControllerError, UsageError


def with_ports(
    record: SwitchRecord, ports: Sequence[int], switches: Switches, jobs: Iterable[Job]
) -> SwitchRecord:
    """Return the record of a switch with other ports.

    Raises UsageError if the switch cannot have them. Raises ControllerError if a port is left out
    that a worker of a job, a station, or a link to another switch, is attached to.
    """
    check_ports(find(record.target), ports)
    stations = ((each.port, f"the station {each.mac}") for each in record.stations)
    for port, user in (*_users(record, switches, jobs), *stations):
        if port not in ports:
            raise ControllerError(f"port {port} of {record.name!r} is in use by {user}: include it")
    return replace(record, ports=tuple(ports))


def with_uplinks(
    record: SwitchRecord, uplinks: Iterable[Uplink], switches: Switches, jobs: Iterable[Job]
) -> SwitchRecord:
    """Return the record of a switch with other uplinks.

    Raises UsageError if it cannot have them, and ControllerError if one needs a port that a worker or
    another switch is attached to.
    """
    changed = replace(record, uplinks=tuple(uplinks))
    below = descendants(record.name, switches)
    taken = dict(_users(replace(record, uplinks=()), switches, jobs))
    for link in changed.uplinks:
        if link.parent in below:
            raise UsageError(
                f"{link.parent!r} is below {record.name!r} and cannot be its parent: name another switch"
            )
        if user := taken.get(link.port):
            raise ControllerError(
                f"port {link.port} of {record.name!r} is in use by {user}: use another port"
            )
    check_links(changed, {name: each for name, each in switches.items() if name != record.name})
    return changed


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
                rank = job.spec.in_group(each.rank)
                yield each.where.port, f"worker {rank} of the job {job.spec.name!r}"
