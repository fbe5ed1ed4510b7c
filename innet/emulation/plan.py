"""A topology with all ports, addresses and links assigned. Pure and deterministic."""

import ipaddress
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

from innet.emulation.topology import CONTROLLER, LinkSpec, ServerSpec, SwitchSpec, Topology
from innet.errors import UsageError
from innet.wire.frames import Address, mac_text

_CONTROLLER_LINK = LinkSpec()  # no cap: emulations are about the workers' traffic, not this one


@dataclass(frozen=True)
class LinkEnd:
    """A node's port at the end of a link. Hosts have port 0, switches count from 1."""

    node: str
    port: int

    @property
    def interface(self) -> str:
        """Return the interface's name in Linux."""
        return f"{self.node}-eth{self.port}"


@dataclass(frozen=True)
class PlannedLink:
    """A link from a child up to its parent. The child is a host or a node that sums."""

    child: LinkEnd
    parent: LinkEnd
    spec: LinkSpec

    @property
    def name(self) -> str:
        """Return the link's name in reports."""
        return f"{self.child.node}-{self.parent.node}"


@dataclass(frozen=True)
class PlannedHost:
    """The host of a worker or of the controller.

    A worker's rank is the index of its host in :attr:`Plan.hosts`.
    """

    name: str
    address: Address
    switch: str

    @property
    def interface(self) -> str:
        """Return the name of the host's only interface."""
        return LinkEnd(self.name, 0).interface


@dataclass(frozen=True)
class PlannedSwitch:
    """A node that sums, a switch or a server, with its ports and uplinks."""

    name: str
    kind: Literal["embedded", "bmv2", "pbox"]
    device_id: int
    ports: tuple[int, ...]
    uplinks: tuple[PlannedLink, ...]


@dataclass(frozen=True)
class Plan:
    """The plan of a whole network. `hosts` are in the order of their ranks, `switches` top down.

    `service` is the address of all switches: workers send to it, and the closest switch answers.
    """

    prefix_length: int
    service: Address
    mtu: int
    lanes: int
    slots: int
    hosts: tuple[PlannedHost, ...]
    switches: tuple[PlannedSwitch, ...]
    controller: PlannedHost
    links: tuple[PlannedLink, ...]

    @property
    def root(self) -> PlannedSwitch:
        """Return the switch in which a job's sums are finished."""
        return self.switches[0]

    def port_of(self, host: PlannedHost) -> LinkEnd:
        """Return the switch's end of a host's link."""
        return next(link.parent for link in self.links if link.child.node == host.name)

    def towards_controller(self, switch: PlannedSwitch) -> int | None:
        """Return the port of a switch that leads to the controller, or None if there is none.

        A switch without a parent that is not the root has no such port, and needs none. Ordinary
        frames take first uplinks only, so no such frame reaches this switch.
        """
        if switch is not self.root:
            return switch.uplinks[0].child.port if switch.uplinks else None
        return next(link.parent.port for link in self.links if link.child.node == CONTROLLER)


def plan(topology: Topology) -> Plan:
    """Give every node of a topology its ports and addresses.

    Hosts have the first addresses of the network, and the service and the controller the last ones.
    A link whose port is missing in the file gets the lowest free port of the node. The links to hosts
    come first, then those to children, then those to parents. Raises UsageError if a port is given
    twice.
    """
    nodes = _top_down(topology)
    root = nodes[0].name
    links = _links(topology, nodes, root)
    network = topology.network
    hosts = tuple(
        PlannedHost(name, _address(network[number]), rack.switch)
        for number, (name, rack) in enumerate(
            (
                (name, rack)
                for rack, names in zip(topology.racks, topology.host_names, strict=True)
                for name in names
            ),
            start=1,
        )
    )
    switches = tuple(
        PlannedSwitch(
            node.name,
            node.kind,
            number,
            tuple(sorted(end.port for end in _ends(links) if end.node == node.name)),
            _uplinks(node.name, links),
        )
        for number, node in enumerate(nodes, start=1)
    )
    return Plan(
        network.prefixlen,
        _address(network[-2]),
        topology.mtu,
        topology.lanes,
        topology.slots,
        hosts,
        switches,
        PlannedHost(CONTROLLER, _address(network[-3]), root),
        links,
    )


def hosts_file(plan: Plan) -> str:
    """Return the names of all hosts in the form of ``/etc/hosts``."""
    hosts = (*plan.hosts, plan.controller)
    lines = ["127.0.0.1 localhost", *(f"{each.address.ip} {each.name}" for each in hosts)]
    return "\n".join(lines) + "\n"


def _top_down(topology: Topology) -> list[SwitchSpec | ServerSpec]:
    """Return all nodes that sum, parents before children, and the root first."""
    nodes = {node.name: node for node in topology.nodes}
    names = topology.top_down()
    names.remove(topology.root)
    return [nodes[name] for name in (topology.root, *names)]


def _links(
    topology: Topology, nodes: Sequence[SwitchSpec | ServerSpec], root: str
) -> tuple[PlannedLink, ...]:
    ports = _PortAllocator(topology)
    made = [
        PlannedLink(
            LinkEnd(name, 0),
            LinkEnd(
                rack.switch, ports.allocate(rack.switch, rack.ports[number] if rack.ports else None)
            ),
            rack.link.over(topology.link),
        )
        for rack, names in zip(topology.racks, topology.host_names, strict=True)
        for number, name in enumerate(names)
    ]
    ends = [
        (node.name, uplink, ports.allocate(uplink.to, uplink.parent_port))
        for node in nodes
        for uplink in node.uplinks
    ]
    made += [
        PlannedLink(
            LinkEnd(child, ports.allocate(child, uplink.port)),
            LinkEnd(uplink.to, parent_port),
            uplink.link.over(topology.link),
        )
        for child, uplink, parent_port in ends
    ]
    above = LinkEnd(root, ports.allocate(root, None))
    return (*made, PlannedLink(LinkEnd(CONTROLLER, 0), above, _CONTROLLER_LINK))


class _PortAllocator:
    """The ports in use. A port given in the file is reserved for its link."""

    def __init__(self, topology: Topology) -> None:
        self._taken: dict[str, set[int]] = {node.name: set() for node in topology.nodes}
        for rack in topology.racks:
            for port in rack.ports or ():
                self._reserve(rack.switch, port)
        for node in topology.nodes:
            for uplink in node.uplinks:
                self._reserve(node.name, uplink.port)
                self._reserve(uplink.to, uplink.parent_port)

    def allocate(self, node: str, given: int | None) -> int:
        """Return the given port, or the lowest free one."""
        if given is not None:
            return given
        port = next(each for each in range(1, 1 << 9) if each not in self._taken[node])
        self._taken[node].add(port)
        return port

    def _reserve(self, node: str, port: int | None) -> None:
        if port is None:
            return
        if port in self._taken[node]:
            raise UsageError(f"port {port} of {node} is given twice: every link needs its own")
        self._taken[node].add(port)


def _ends(links: Sequence[PlannedLink]) -> Iterator[LinkEnd]:
    for link in links:
        yield link.child
        yield link.parent


def _uplinks(node: str, links: Sequence[PlannedLink]) -> tuple[PlannedLink, ...]:
    return tuple(link for link in links if link.child.node == node)


def _address(ip: ipaddress.IPv4Address) -> Address:
    """Return a node's addresses. The MAC address is made from the IP address, so both are unique."""
    return Address(mac_text(b"\x02\x00" + ip.packed), str(ip))
