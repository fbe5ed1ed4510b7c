"""The controller's switches, and the links between them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from innet.controller.defaults import uplink_address
from innet.controller.jobs.records import Assignment, SwitchRecord, Uplink
from innet.controller.jobs.slots import SwitchAllocator
from innet.controller.state import messages
from innet.controller.switches.supervisor import Supervisor
from innet.controller.switches.targets.choice import find
from innet.controller.switches.targets.interface import Program
from innet.errors import AlreadyExists, NotFound, UsageError
from innet.rpc import innet_pb2 as pb
from innet.rpc import words
from innet.wire.frames import Address


@dataclass(eq=False)
class Switch:
    """A switch with its allocated slots and its supervisor.

    `found` tells, by port, where a probe sent out of an uplink came in. The text is empty if it
    came in at the right port.
    """

    record: SwitchRecord
    program: Program
    allocator: SwitchAllocator
    supervisor: Supervisor
    assignments: dict[str, Assignment] = field(default_factory=dict)  # by job
    found: dict[int, str] = field(default_factory=dict)

    def assign(self, job: str, assignment: Assignment) -> None:
        """Set the entries that the switch should hold for a job."""
        if assignment != self.assignments.get(job):
            self.assignments[job] = assignment
            self.supervisor.wake()

    def unassign(self, job: str) -> None:
        """Drop the entries for a job that is over."""
        if self.assignments.pop(job, None):
            self.supervisor.wake()

    def view(self) -> pb.Switch:
        """Return the switch as clients see it."""
        slots = self.allocator.slots
        view = messages.switch_view(
            self.record, slots.slots, slots.free, reachable=self.supervisor.problem is None
        )
        view.problem = self.supervisor.problem or ""
        view.taken = self.supervisor.taken
        for link in view.uplinks:
            link.found = self.found.get(link.port, "")
            link.probed = link.port in self.found
        return view

    @property
    def probed(self) -> bool:
        """Return whether the far end of every uplink is known."""
        return all(link.port in self.found for link in self.record.uplinks)


Switches = Mapping[str, Switch]


def uplinks(switches: Switches) -> dict[str, tuple[Uplink, ...]]:
    """Return the uplinks of all switches, by name."""
    return {name: each.record.uplinks for name, each in switches.items()}


def contributors(switches: Switches) -> dict[str, int]:
    """Return the most contributors of a job at each switch."""
    return {name: find(each.record.target).contributors for name, each in switches.items()}


def without_middle_quorums(
    switches: Switches, uplinks: Mapping[str, tuple[Uplink, ...]]
) -> list[str]:
    """Return the switches in the middle of a fabric whose kind does not allow sums of a quorum."""
    parents = {link.parent for links in uplinks.values() for link in links}
    return [
        name
        for name, links in uplinks.items()
        if links and name in parents and not find(switches[name].record.target).results_begin_chunks
    ]


def drained(switches: Switches) -> frozenset[str]:
    """Return the drained switches."""
    return frozenset(name for name, each in switches.items() if each.record.drained)


def children(name: str, switches: Switches) -> list[str]:
    """Return the switches that have a link up to this one."""
    above = uplinks(switches).items()
    return [below for below, links in above if name in {link.parent for link in links}]


def descendants(name: str, switches: Switches) -> set[str]:
    """Return all switches below this one."""
    below = children(name, switches)
    return {*below}.union(*(descendants(each, switches) for each in below))


def broadcast_domain(switch: str, uplinks: Mapping[str, tuple[Uplink, ...]]) -> set[str]:
    """Return this switch and all switches that ordinary frames can reach from it."""
    links = [(below, link.parent) for below, each in uplinks.items() for link in each]
    found, before = {switch}, set[str]()
    while found != before:
        before = set(found)
        found |= {end for link in links if found & {*link} for end in link}
    return found


def own_addresses(names: Iterable[str], switches: Switches) -> list[Address]:
    """Return the addresses of these switches: those for workers, and those for each other."""
    records = [switches[name].record for name in names if name in switches]
    links = [link for each in records for link in each.uplinks]
    return [each.service for each in records] + [uplink_address(each.parent_port) for each in links]


def silent_ports(record: SwitchRecord, switches: Switches) -> frozenset[int]:
    """Return the ports of a switch that must not be flooded.

    Only first uplinks are part of the bridge. Over further uplinks, floods would go round in circles.
    """
    mine = {link.port for link in record.uplinks[1:]}
    below = {
        link.parent_port
        for each in switches.values()
        for link in each.record.uplinks[1:]
        if link.parent == record.name
    }
    return frozenset(mine | below)


def check_links(record: SwitchRecord, switches: Switches) -> None:
    """Raise InnetError unless a switch can have the uplinks of its record. `switches` are all others.

    Its parents must have been added before.
    """
    mine: set[int] = set()
    for link in record.uplinks:
        if link.parent == record.name:
            raise UsageError(
                f"the switch {record.name!r} cannot be its own parent: name another switch"
            )
        if link.parent not in switches:
            raise NotFound(f"there is no switch {link.parent!r}: add parents first")
        parent = switches[link.parent].record
        _check_seals(record, parent)
        for port, owner in (link.port, record), (link.parent_port, parent):
            if port not in owner.ports:
                raise UsageError(
                    f"the uplink {words.uplink(link)}: {owner.name!r} has no port {port}; it has "
                    f"{', '.join(map(str, owner.ports))}"
                )
        if link.port in mine:
            raise UsageError(
                f"port {link.port} has two uplinks: give each uplink a port of its own"
            )
        mine.add(link.port)
        _check_free(link, record, switches)
        if parent.lanes != record.lanes:
            raise UsageError(
                f"{record.name!r} has {record.lanes} lanes and its parent {parent.name!r} "
                f"{parent.lanes}: give all switches of a tree the same number"
            )
        if parent.service != record.service:
            raise UsageError(
                f"{record.name!r} serves {record.service.ip} and its parent {parent.name!r} "
                f"{parent.service.ip}: give all switches of a tree the same address"
            )


def _check_seals(record: SwitchRecord, parent: SwitchRecord) -> None:
    if find(record.target).seals != find(parent.target).seals:
        raise UsageError(
            f"{record.name!r} is a {record.target} and its parent {parent.name!r} a {parent.target}: "
            "one of them adds a check to its packets, and the other cannot; connect switches of one kind"
        )


def _check_free(link: Uplink, record: SwitchRecord, switches: Switches) -> None:
    taken = [each for each in record.uplinks if each is not link and _same_end(each, link)]
    for other in switches.values():
        taken += [each for each in other.record.uplinks if _same_end(each, link)]
        if other.record.name == link.parent:
            taken += [each for each in other.record.uplinks if each.port == link.parent_port]
    if taken:
        raise AlreadyExists(
            f"the uplink {words.uplink(link)}: port {link.parent_port} of {link.parent!r} has a link "
            "already: use another port"
        )


def _same_end(one: Uplink, other: Uplink) -> bool:
    return (one.parent, one.parent_port) == (other.parent, other.parent_port)
