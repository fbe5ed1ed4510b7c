"""What a topology file says: switches, servers, racks of hosts, and the links between them.

The schema is explained in docs/topologies.md. Nothing here knows ports or addresses: `plan` makes them.
"""

import graphlib
import ipaddress
import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    field_validator,
    model_validator,
)

from innet.errors import UsageError

MOST_CONTRIBUTIONS = 32
"""Of how many hosts and switches one switch can add up contributions: the bits of its bitmap."""

CONTROLLER = "ctl"
"""The name of the controller's own place in the network."""

_UNITS = {"bit": 1, "kbit": 1_000, "mbit": 1_000_000, "gbit": 1_000_000_000}


def _rate(value: object) -> object:
    """``100mbit`` as bits per second."""
    if not isinstance(value, str):
        return value
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*(bit|kbit|mbit|gbit)", value.strip().lower())
    if not found:
        raise ValueError(f"{value!r} is no rate: write it like 100mbit, 1.5gbit or 800kbit")
    return int(float(found[1]) * _UNITS[found[2]])


def _milliseconds(value: object) -> object:
    """``20ms`` as 20."""
    found = re.fullmatch(r"(\d+(?:\.\d+)?)\s*ms", value.strip()) if isinstance(value, str) else None
    if not found:
        raise ValueError(f"{value!r} is no time: write it like 20ms")
    return float(found[1])


def _uplink(value: object) -> object:
    """``spine`` for ``{to: spine}``."""
    return {"to": value} if isinstance(value, str) else value


def _hosts(value: object) -> object:
    """4 as four hosts without names."""
    if isinstance(value, int) and not isinstance(value, bool) and value > 0:
        return (None,) * value
    if isinstance(value, list | tuple) and value:
        return tuple(value)
    raise ValueError(f"hosts is {value!r}: give their number, or a list of their names")


# Interfaces are called NAME-ethPORT, and Linux allows them 15 characters.
Name = Annotated[str, Field(pattern=r"^[a-z][a-z0-9]{0,7}$")]
Port = Annotated[int, Field(ge=1, le=509)]  # 510 is the CPU port


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class LinkSpec(_Strict):
    """A link, capped the same both ways.

    `rate` is in bits per second of Ethernet frames, without preamble and checksum; None: not capped.
    `cap` is the queueing discipline that holds to it. A frame that would wait longer than `queue`
    milliseconds is dropped.
    """

    rate: Annotated[int | None, BeforeValidator(_rate), Field(ge=8_000)] = None
    cap: Literal["tbf", "htb"] = "tbf"
    queue: Annotated[float, BeforeValidator(_milliseconds), Field(gt=0)] = 20.0

    def over(self, default: "LinkSpec") -> "LinkSpec":
        """What this one says, and `default` where it says nothing."""
        return default.model_copy(update={key: getattr(self, key) for key in self.model_fields_set})


class UplinkSpec(_Strict):
    """A link to a parent, which adds up what its children have added up."""

    to: Name
    port: Port | None = None
    parent_port: Port | None = None
    link: LinkSpec = LinkSpec()


class SwitchSpec(_Strict):
    """A switch that runs the aggregation program."""

    name: Name
    kind: Literal["embedded", "bmv2"] = "embedded"
    uplinks: tuple[Annotated[UplinkSpec, BeforeValidator(_uplink)], ...] = ()


class ServerSpec(_Strict):
    """A server that adds up what switches have added up, and keeps parameters: `innet pbox parent`."""

    name: Name
    kind: Literal["pbox"] = "pbox"
    uplinks: tuple[Annotated[UplinkSpec, BeforeValidator(_uplink)], ...] = ()


class RackSpec(_Strict):
    """Hosts at a switch; those without a name are numbered."""

    switch: Name
    hosts: Annotated[tuple[Name | None, ...], BeforeValidator(_hosts)]
    ports: tuple[Port, ...] | None = None
    link: LinkSpec = LinkSpec()

    @model_validator(mode="after")
    def _a_port_for_every_host(self) -> Self:
        if self.ports is not None and len(self.ports) != len(self.hosts):
            raise ValueError(f"{len(self.ports)} ports for {len(self.hosts)} hosts: one for each")
        return self


class Topology(_Strict):
    """A whole file."""

    network: ipaddress.IPv4Network = ipaddress.IPv4Network("10.0.0.0/16")
    lanes: Literal[64, 256] = 256
    slots: Annotated[int, Field(ge=1, le=8192)] = 128
    link: LinkSpec = LinkSpec()
    switches: Annotated[tuple[SwitchSpec, ...], Field(min_length=1)]
    servers: tuple[ServerSpec, ...] = ()
    racks: Annotated[tuple[RackSpec, ...], Field(min_length=1)]

    @property
    def nodes(self) -> tuple[SwitchSpec | ServerSpec, ...]:
        """All that sums."""
        return (*self.switches, *self.servers)

    @property
    def host_names(self) -> tuple[tuple[str, ...], ...]:
        """The names of every rack's hosts: given, or h1, h2, and so on, by their rank."""
        ranks = itertools.count(1)
        return tuple(
            tuple(name or f"h{rank}" for name, rank in zip(rack.hosts, ranks, strict=False))
            for rack in self.racks
        )

    @property
    def root(self) -> str:
        """The top of the tree that the first uplinks make."""
        return _root(self.racks[0].switch, {node.name: node for node in self.nodes})

    def top_down(self) -> list[str]:
        """The names of all that sums, parents before children."""
        parents = {node.name: [uplink.to for uplink in node.uplinks] for node in self.nodes}
        return [*graphlib.TopologicalSorter(parents).static_order()]

    @field_validator("slots")
    @classmethod
    def _power_of_two(cls, slots: int) -> int:
        if slots & (slots - 1):
            raise ValueError(f"{slots} slots: it has to be a power of two")
        return slots

    @model_validator(mode="after")
    def _hangs_together(self) -> Self:
        for problem in _problems(self):
            raise ValueError(problem)
        return self


def _problems(topology: Topology) -> Iterator[str]:
    """What is wrong with a topology all of whose parts are right."""
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
                yield f"{node.name}: there is no switch or server {uplink.to!r} to link it to"
    servers = {server.name for server in topology.servers}
    for rack in topology.racks:
        if rack.switch in servers:
            yield f"a rack is at the server {rack.switch!r}: hosts belong at a switch"
        if rack.switch not in nodes:
            yield f"a rack is at the switch {rack.switch!r}, which is not there: add it to switches"
    yield from _tree_problems(topology, nodes)


def _tree_problems(
    topology: Topology, nodes: Mapping[str, SwitchSpec | ServerSpec]
) -> Iterator[str]:
    try:
        topology.top_down()
    except graphlib.CycleError as circle:
        yield f"the uplinks lead in a circle, {' to '.join(circle.args[1])}: a tree has a top"
        return
    roots = {rack.switch: _root(rack.switch, nodes) for rack in topology.racks}
    if len(set(roots.values())) > 1:
        tops = ", ".join(f"{switch} to {root}" for switch, root in roots.items())
        yield f"the racks do not hang together: the first uplinks lead from {tops}"
    below = Counter(uplink.to for node in topology.nodes for uplink in node.uplinks)
    for rack in topology.racks:
        below[rack.switch] += len(rack.hosts)
    for name, count in below.items():
        if count > MOST_CONTRIBUTIONS:
            yield f"{count} hosts and switches below {name!r}: at most {MOST_CONTRIBUTIONS} fit"
    for node in topology.nodes:
        if not below[node.name]:
            yield f"nothing is below {node.name!r}: give it a rack, or take it out"
    needed = sum(len(rack.hosts) for rack in topology.racks) + 2
    if topology.network.num_addresses - 2 < needed:
        yield f"the network {topology.network} has no room for {needed} addresses: widen it"


def _root(name: str, nodes: Mapping[str, SwitchSpec | ServerSpec]) -> str:
    """Where the first uplinks lead to."""
    while nodes[name].uplinks:
        name = nodes[name].uplinks[0].to
    return name


def load(path: Path) -> Topology:
    """Read a topology file. Raises UsageError, with the lines of what is wrong."""
    try:
        text = path.read_text()
    except (OSError, UnicodeDecodeError) as problem:
        why = problem.strerror if isinstance(problem, OSError) else "it is no text"
        raise UsageError(f"cannot read {path}: {why}") from None
    return parse(text, str(path))


def parse(text: str, source: str = "topology") -> Topology:
    """A topology from a file's text; `source` is what messages call it. Raises UsageError."""
    try:
        tree = yaml.compose(text, Loader=yaml.SafeLoader)
        content = yaml.safe_load(text)
    except yaml.YAMLError as problem:
        mark = getattr(problem, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        why = getattr(problem, "problem", None) or "it is not YAML"
        raise UsageError(f"{source}{line}: {why}") from None
    if not isinstance(content, dict):
        raise UsageError(f"{source}: a topology has switches and racks: see docs/topologies.md")
    try:
        return Topology.model_validate(content)
    except ValidationError as problem:
        # A list whose only element is wrong is too short as well: once said is enough.
        errors = problem.errors()
        telling = [error for error in errors if error["type"] != "too_short"] or errors
        raise UsageError("\n".join(_said(source, tree, error) for error in telling)) from None


def _said(source: str, tree: yaml.Node | None, error: Any) -> str:
    where = error["loc"]
    steps = ".".join(map(str, where))
    why = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "extra_forbidden":
        why = "there is no such field: see docs/topologies.md"
    elif error["type"] == "string_pattern_mismatch":
        why = (
            f"{error['input']!r} is no name: a small letter, then up to 7 small letters and digits"
        )
    return f"{source}:{_line(tree, where)}: {steps + ': ' if steps else ''}{why}"


def _line(node: yaml.Node | None, where: Sequence[int | str]) -> int:
    """The line of what is at the path `where`, or of the closest that is there."""
    line = node.start_mark.line + 1 if node else 1
    for step in where:
        following: yaml.Node | None = None
        if isinstance(node, yaml.MappingNode):
            for key, value in node.value:
                if key.value == step:
                    line, following = key.start_mark.line + 1, value
        elif isinstance(node, yaml.SequenceNode) and isinstance(step, int):
            following = node.value[step]
            line = following.start_mark.line + 1
        if following is None:  # a step that pydantic adds, or a field that is missing
            continue
        node = following
    return line
