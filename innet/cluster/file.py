"""The schema of a cluster file. docs/cluster-file.md explains it."""

import graphlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, field_validator, model_validator

from innet.controller.cli.options import parse_ports, parse_uplink
from innet.documents import bounded_yaml, schema
from innet.errors import UsageError

_OUTLINE = "a cluster file has switches and jobs: see docs/cluster-file.md"
_MOST = 1024
Parsed = TypeVar("Parsed")


def _ports(value: object) -> object:
    """Return ``1-4,7`` as (1, 2, 3, 4, 7)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return (value,)
    return tuple(_parsed(parse_ports, value)) if isinstance(value, str) else value


def _uplink(value: object) -> object:
    """Return ``spine:5:1`` as a parent, a port and the parent's port."""
    if not isinstance(value, str):
        return value
    names = ("parent", "port", "parent_port")
    return dict(zip(names, _parsed(parse_uplink, value), strict=True))


def _parsed(parse: Callable[[str], Parsed], text: str) -> Parsed:
    """Parse text as an option of a command. Raises ValueError, which pydantic expects."""
    try:
        return parse(text)
    except UsageError as problem:
        raise ValueError(str(problem)) from None


Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9_][A-Za-z0-9._-]{0,63}$")]
Count = Annotated[int, Field(ge=0, lt=1 << 32)]
Ports = Annotated[tuple[Count, ...], BeforeValidator(_ports), Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class UplinkSpec(_Strict):
    """A link to a parent, from a port of the switch to a port of the parent."""

    parent: Name
    port: Count
    parent_port: Count


class SwitchSpec(_Strict):
    """A switch, with options of ``innet switch add``. It has no stations."""

    address: Annotated[str, Field(min_length=1)]
    ports: Ports
    device_id: Annotated[int, Field(ge=0)] = 0
    lanes: Literal[64, 256, 1024] = 256
    service_ip: str = ""
    service_mac: str = ""
    uplinks: tuple[Annotated[UplinkSpec, BeforeValidator(_uplink)], ...] = ()
    target: str = "bmv2"
    artifact: str = ""
    insecure: bool = False
    drained: bool | None = None


class JobSpec(_Strict):
    """A job, with the options of ``innet job create``. Its token is written to `token_file`."""

    switch: Name
    workers: Annotated[int, Field(ge=1, lt=1 << 32)]
    token_file: Annotated[Path, Field(strict=False)]
    slots: Count = 0
    quorum: Count = 0
    min_workers: Count = 0
    min_slots: Count = 0
    priority: Count = 0
    queue: bool = False
    lease: Count = 0


class QuotaSpec(_Strict):
    """The most that an owner of jobs may hold at once, with the options of ``innet quota set``."""

    jobs: Count = 0
    slots: Count = 0
    workers: Count = 0


class ClusterFile(_Strict):
    """A whole file: switches and jobs by their names, and quotas by the names of owners."""

    switches: Annotated[dict[Name, SwitchSpec], Field(max_length=_MOST)]
    jobs: Annotated[dict[Name, JobSpec], Field(max_length=_MOST)] = {}
    quotas: Annotated[dict[str, QuotaSpec], Field(max_length=_MOST)] = {}

    def top_down(self) -> list[str]:
        """Return the names of the switches, parents before children."""
        parents = {
            name: [uplink.parent for uplink in switch.uplinks]
            for name, switch in self.switches.items()
        }
        return [*graphlib.TopologicalSorter(parents).static_order()]

    @field_validator("jobs", "quotas", mode="before")
    @classmethod
    def _empty(cls, content: object) -> object:
        return {} if content is None else content

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if problems := [*self._problems()]:
            raise ValueError("; ".join(problems))
        return self

    def _problems(self) -> Iterator[str]:
        for name, switch in self.switches.items():
            for uplink in switch.uplinks:
                if uplink.parent not in self.switches:
                    yield f"{name!r} has the parent {uplink.parent!r}, which is not in switches"
        for name, job in self.jobs.items():
            if job.switch not in self.switches:
                yield f"the job {name!r} is on {job.switch!r}, which is not in switches"
        try:
            self.top_down()
        except graphlib.CycleError as circle:
            yield f"the uplinks form a cycle, {' to '.join(circle.args[1])}"


def load(path: Path) -> ClusterFile:
    """Read a cluster file. Raises UsageError, with the lines of the errors."""
    return schema.parse(ClusterFile, bounded_yaml.read(path), str(path), _OUTLINE, _why)


def _why(error: Any) -> str | None:
    """Return a better message for some errors of the schema."""
    if error["type"] == "extra_forbidden":
        return "this field is unknown: see docs/cluster-file.md"
    if error["type"] == "string_pattern_mismatch":
        value = bounded_yaml.quoted(error["input"])
        return f"{value} is not a name: use 1 to 64 letters, digits, '.', '_' and '-'"
    return None
