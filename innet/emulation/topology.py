"""The schema of a topology file: switches, servers, racks of hosts, and the links between them.

docs/topologies.md explains the schema. `plan` chooses the addresses, and the ports that a file omits.
"""

import graphlib
import ipaddress
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    field_validator,
    model_validator,
)

from innet.controller.jobs.records import Attachment, Uplink
from innet.controller.jobs.trees import Fabric, loads, most_contributors
from innet.documents import bounded_yaml, schema
from innet.documents.bounded_yaml import quoted
from innet.wire.frames import USUAL_MTU, Address
from innet.wire.layout import MOST_CONTRIBUTORS
from innet.wire.records import least_mtu

MAX_CONTRIBUTIONS = MOST_CONTRIBUTORS
"""The most hosts and switches whose contributions one switch can sum: the bits of its bitmap."""

CONTROLLER = "ctl"
"""The name of the controller's host in the network."""

MAX_NODES = 128
"""The most nodes of each kind: switches, servers, and racks."""

MAX_PORTS = 509
"""The most ports of a switch: port 510 is the CPU's."""

_NUMBER = r"([0-9]{1,12}(?:\.[0-9]{1,12})?)"
_UNITS = {"bit": 1, "kbit": 1_000, "mbit": 1_000_000, "gbit": 1_000_000_000}


def _rate(value: object) -> object:
    """Return ``100mbit`` as bits per second."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(rf"{_NUMBER}\s*(bit|kbit|mbit|gbit)", value.strip().lower())
    if not found:
        raise ValueError(
            f"{quoted(value)} is not a rate: write it like 100mbit, 1.5gbit or 800kbit"
        )
    return int(float(found[1]) * _UNITS[found[2]])


def _milliseconds(value: object) -> object:
    """Return ``20ms`` as 20."""
    found = re.fullmatch(rf"{_NUMBER}\s*ms", value.strip()) if isinstance(value, str) else None
    if not found:
        raise ValueError(f"{quoted(value)} is not a time: write it like 20ms")
    return float(found[1])


def _uplink(value: object) -> object:
    """Return ``{to: spine}`` for ``spine``."""
    return {"to": value} if isinstance(value, str) else value


def _hosts(value: object) -> object:
    """Return 4 as four hosts without names."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= MAX_PORTS:
        return (None,) * value
    if isinstance(value, list | tuple) and 0 < len(value) <= MAX_PORTS:
        return tuple(value)
    raise ValueError(
        f"hosts is {quoted(value)}: give their number, up to {MAX_PORTS}, or a list of their names"
    )


# Interfaces are called NAME-ethPORT, and Linux allows them 15 characters.
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{0,7}$")]
Port = Annotated[int, Field(ge=1, le=MAX_PORTS)]

Rate = Annotated[int, Field(ge=8_000, le=10**12)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LinkSpec(_Strict):
    """A link with the same cap in both directions.

    `rate` is in bits per second of Ethernet frames, without preamble and checksum; None means no
    cap. `cap` is the queueing discipline that enforces it. A frame that would wait longer than
    `queue` milliseconds is dropped.
    """

    rate: Annotated[Rate | None, BeforeValidator(_rate)] = None
    cap: Literal["tbf", "htb"] = "tbf"
    queue: Annotated[float, BeforeValidator(_milliseconds), Field(gt=0, le=60_000)] = 20.0

    def over(self, default: "LinkSpec") -> "LinkSpec":
        """Return this specification, with fields that are not set taken from `default`."""
        return default.model_copy(update={key: getattr(self, key) for key in self.model_fields_set})


class UplinkSpec(_Strict):
    """A link to a parent, which sums what its children have summed."""

    to: Name
    port: Port | None = None
    parent_port: Port | None = None
    link: LinkSpec = LinkSpec()


Uplinks = Annotated[
    tuple[Annotated[UplinkSpec, BeforeValidator(_uplink)], ...],
    Field(max_length=MAX_CONTRIBUTIONS),
]


class SwitchSpec(_Strict):
    """A switch that runs the aggregation program."""

    name: Name
    kind: Literal["embedded", "bmv2"] = "embedded"
    uplinks: Uplinks = ()


class ServerSpec(_Strict):
    """A server, `innet pbox rack-server`, that adds up switches' sums and keeps parameters."""

    name: Name
    kind: Literal["pbox"] = "pbox"
    uplinks: Uplinks = ()


class RackSpec(_Strict):
    """Hosts at a switch. Hosts without a name are numbered."""

    switch: Name
    hosts: Annotated[tuple[Name | None, ...], BeforeValidator(_hosts)]
    ports: tuple[Port, ...] | None = None
    link: LinkSpec = LinkSpec()

    @model_validator(mode="after")
    def _a_port_for_every_host(self) -> Self:
        if self.ports is not None and len(self.ports) != len(self.hosts):
            raise ValueError(
                f"{len(self.ports)} ports for {len(self.hosts)} hosts: give one for each"
            )
        return self


class Topology(_Strict):
    """A whole file."""

    network: ipaddress.IPv4Network = ipaddress.IPv4Network("10.0.0.0/16")
    mtu: Annotated[int, Field(ge=USUAL_MTU, le=9216)] = USUAL_MTU
    lanes: Literal[64, 256, 1024] = 256
    slots: Annotated[int, Field(ge=1, le=8192)] = 128
    link: LinkSpec = LinkSpec()
    switches: Annotated[tuple[SwitchSpec, ...], Field(min_length=1, max_length=MAX_NODES)]
    servers: Annotated[tuple[ServerSpec, ...], Field(max_length=MAX_NODES)] = ()
    racks: Annotated[tuple[RackSpec, ...], Field(min_length=1, max_length=MAX_NODES)]

    @property
    def nodes(self) -> tuple[SwitchSpec | ServerSpec, ...]:
        """Return all nodes that sum."""
        return (*self.switches, *self.servers)

    @property
    def host_names(self) -> tuple[tuple[str, ...], ...]:
        """Return the names of every rack's hosts.

        A host without a name gets the name hN, where N is its number among all hosts, from 1 on.
        """
        ranks = itertools.count(1)
        return tuple(
            tuple(name or f"h{rank}" for name, rank in zip(rack.hosts, ranks, strict=False))
            for rack in self.racks
        )

    @property
    def root(self) -> str:
        """Return the top of the tree that the first uplinks make."""
        return _root(self.racks[0].switch, {node.name: node for node in self.nodes})

    def top_down(self) -> list[str]:
        """Return the names of all nodes that sum, parents before children."""
        parents = {node.name: [uplink.to for uplink in node.uplinks] for node in self.nodes}
        return [*graphlib.TopologicalSorter(parents).static_order()]

    @field_validator("slots")
    @classmethod
    def _power_of_two(cls, slots: int) -> int:
        if slots & (slots - 1):
            raise ValueError(f"{slots} slots: give a power of two")
        return slots

    @model_validator(mode="after")
    def _packets_fit_in_frames(self) -> Self:
        if self.mtu < (needed := least_mtu(self.lanes)):
            raise ValueError(
                f"packets with {self.lanes} lanes need an mtu of {needed}: add `mtu: 9000`"
            )
        return self

    @model_validator(mode="after")
    def _is_consistent(self) -> Self:
        for problem in _problems(self):
            raise ValueError(problem)
        return self


def _problems(topology: Topology) -> Iterator[str]:
    """Yield the problems of a topology whose fields are each valid."""
    nodes = {node.name: node for node in topology.nodes}
    names = Counter(node.name for node in topology.nodes)
    names.update(itertools.chain.from_iterable(topology.host_names))
    for name, count in names.items():
        if count > 1:
            yield f"{count} nodes are called {name!r}: every host and switch needs a name of its own"
        if name == CONTROLLER:
            yield f"the name {name!r} is the controller's: choose another"
    for node in topology.nodes:
        for uplink in node.uplinks:
            if uplink.to not in nodes:
                yield f"{node.name}: its parent {uplink.to!r} is not in switches or servers: add it"
    servers = {server.name for server in topology.servers}
    for rack in topology.racks:
        if rack.switch in servers:
            yield f"a rack is attached to the server {rack.switch!r}: attach it to a switch"
        if rack.switch not in nodes:
            yield f"a rack is attached to {rack.switch!r}, which is not in switches: add it there"
    yield from _tree_problems(topology, nodes)


def _tree_problems(
    topology: Topology, nodes: Mapping[str, SwitchSpec | ServerSpec]
) -> Iterator[str]:
    try:
        topology.top_down()
    except graphlib.CycleError as circle:
        yield f"the uplinks form a cycle, {' to '.join(circle.args[1])}: remove one of them"
        return
    roots = {rack.switch: _root(rack.switch, nodes) for rack in topology.racks}
    if len(set(roots.values())) > 1:
        tops = ", ".join(f"{switch} to {root}" for switch, root in roots.items())
        yield f"the racks are not in one tree: the first uplinks lead from {tops}"
    below = Counter(uplink.to for node in topology.nodes for uplink in node.uplinks)
    for rack in topology.racks:
        below[rack.switch] += len(rack.hosts)
    for name, count in below.items():
        if count > MAX_CONTRIBUTIONS:
            yield f"{count} hosts and switches below {name!r}: it can have {MAX_CONTRIBUTIONS}"
    yield from _crowds(topology)
    for node in topology.nodes:
        if not below[node.name]:
            yield f"nothing is below {node.name!r}: give it a rack, or remove it"
    needed = sum(len(rack.hosts) for rack in topology.racks) + 2
    if topology.network.num_addresses - 2 < needed:
        yield f"the network {topology.network} is too small for {needed} addresses: use a shorter prefix"


def _crowds(topology: Topology) -> Iterator[str]:
    """Yield the nodes at which the controller would refuse workers: each level of a tree takes a bit."""
    uplinks = {
        node.name: tuple(Uplink(each.to, at, at) for at, each in enumerate(node.uplinks))
        for node in topology.nodes
    }
    at = [rack.switch for rack in topology.racks for _ in rack.hosts]
    trees, nowhere = Fabric.below(topology.root, uplinks).trees(at), Address("", "")
    workers = {rank: Attachment(0, nowhere, switch) for rank, switch in enumerate(at)}
    for tree in trees:
        most = most_contributors(trees)
        for name, count in loads(tree, workers).items():
            if count > most:
                yield f"{count} hosts and switches below {name!r}: in its tree it can have {most}"


def _root(name: str, nodes: Mapping[str, SwitchSpec | ServerSpec]) -> str:
    """Return the node that the first uplinks lead to."""
    while nodes[name].uplinks:
        name = nodes[name].uplinks[0].to
    return name


def load(path: Path) -> Topology:
    """Read a topology file. Raises UsageError, with the lines of the errors."""
    return parse(bounded_yaml.read(path), str(path))


def parse(text: str, source: str = "topology") -> Topology:
    """Return the topology in a file's text. Messages call the file `source`. Raises UsageError."""
    return schema.parse(
        Topology, text, source, "a topology has switches and racks: see docs/topologies.md", _why
    )


def _why(error: Any) -> str | None:
    """Return a better message for some errors of the schema."""
    if error["type"] == "extra_forbidden":
        return "this field is unknown: see docs/topologies.md"
    if error["type"] == "string_pattern_mismatch":
        value = quoted(error["input"])
        return f"{value} is not a name: use a small letter, then up to 7 small letters and digits"
    return None
