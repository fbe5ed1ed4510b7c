"""The resources that a program takes of a Tofino, from the assembly of p4c-barefoot."""

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Self

from innet.errors import CompilerError

STAGES = {"Tofino": 12, "Tofino2": 20}

_CONTAINERS = {
    "Tofino": {"W": 64, "H": 96, "B": 64, "TW": 32, "TH": 48, "TB": 32},
    "Tofino2": {
        "W": 48, "H": 72, "B": 48, "MW": 16, "MH": 24, "MB": 16, "DW": 16, "DH": 24, "DB": 16
    },
}  # fmt: skip
"""The number of containers of each kind in a packet header vector."""

_KINDS = {"": "normal", "T": "tagalong", "M": "mocha", "D": "dark"}
_BITS = {"W": 32, "H": 16, "B": 8}
_LOGICAL = {"exact_match", "ternary_match", "hash_action", "gateway"}


@dataclass(frozen=True)
class Stage:
    """The tables, memory blocks and units that one match-action stage uses, or has."""

    tables: int
    srams: int
    tcams: int
    map_rams: int
    stateful_alus: int
    hash_units: int


LIMITS = Stage(tables=16, srams=80, tcams=24, map_rams=48, stateful_alus=4, hash_units=6)
"""The resources of every stage, on either chip."""


@dataclass(frozen=True)
class Containers:
    """The packet header vector's containers of one kind: their bits, and how many are in use."""

    kind: str
    bits: int
    used: int
    available: int


@dataclass(frozen=True)
class ResourceReport:
    """The resources that a program takes of a chip.

    `chain` is the longest chain of ingress tables in which each reads what the previous one writes,
    and so needs a later stage.
    """

    chip: str
    stages_available: int
    stages: list[Stage]
    containers: list[Containers]
    chain: list[str]

    @classmethod
    def of(cls, assembly: str) -> Self:
        """Read an assembly. Raises CompilerError if the text is not one for a Tofino."""
        target = re.search(r"^  target: (\w+)$", assembly, re.MULTILINE)
        if not target or target[1] not in STAGES:
            raise CompilerError("this is not an assembly that p4c-barefoot made for a Tofino")
        tables = _tables(assembly)
        stages = 1 + max((table.stage for table in tables), default=-1)
        return cls(
            chip=target[1],
            stages_available=STAGES[target[1]],
            stages=[_sum(each for each in tables if each.stage == n) for n in range(stages)],
            containers=_containers(assembly, _CONTAINERS[target[1]]),
            chain=_chain(assembly),
        )

    @classmethod
    def from_json(cls, text: str) -> Self:
        """Return the report that `to_json` wrote."""
        found = json.loads(text)
        found["stages"] = [Stage(**each) for each in found["stages"]]
        found["containers"] = [Containers(**each) for each in found["containers"]]
        return cls(**found)

    def to_json(self) -> str:
        """Return the form in which the report is kept beside the program."""
        return json.dumps(asdict(self), indent=1) + "\n"


def lines(report: ResourceReport) -> Iterator[str]:
    """Yield the lines of the report, in words and Markdown tables."""
    yield f"{report.chip}: {len(report.stages)} of {report.stages_available} stages"
    yield ""
    names = [each.name for each in fields(Stage)]
    yield _row("stage", *(name.replace("_", " ") for name in names))
    yield _row(*["---"] * (len(names) + 1))
    for number, stage in enumerate(report.stages):
        yield _row(number, *(getattr(stage, name) for name in names))
    yield _row("all", *(sum(getattr(each, name) for each in report.stages) for name in names))
    yield _row("of", *(getattr(LIMITS, name) * report.stages_available for name in names))
    yield ""
    yield _row("PHV containers", "used", "of")
    yield _row("---", "---", "---")
    for each in report.containers:
        yield _row(f"{each.kind}, {each.bits} bits", each.used, each.available)
    yield ""
    yield f"longest dependency chain: {len(report.chain)} tables, {' → '.join(report.chain)}"


def _row(*cells: object) -> str:
    return f"| {' | '.join(map(str, cells))} |"


# -- the assembly --------------------------------------------------------------------------------


@dataclass
class _Table:
    """A table of the assembly: its direction, stage, kind and name, and the lines below its header."""

    gress: str
    stage: int
    kind: str
    name: str
    body: list[str] = field(default_factory=list)


def _tables(assembly: str) -> list[_Table]:
    tables: list[_Table] = []
    stage, gress, table = 0, "", None
    for line in assembly.splitlines():
        if header := re.match(r"stage (\d+) (\w+):", line):
            stage, gress, table = int(header[1]), header[2], None
        elif line and not line.startswith(" "):
            gress = ""
        elif gress and (header := re.match(r"  (\w+) (\S+)(?: \d+)?:$", line)):
            table = _Table(gress, stage, header[1], header[2])
            tables.append(table)
        elif table:
            table.body.append(line)
    return tables


def _sum(tables: Iterable[_Table]) -> Stage:
    every = list(tables)
    matching = [each for each in every if each.kind == "ternary_match"]
    others = [each for each in every if each.kind not in {"ternary_match", "phase0_match"}]
    return Stage(
        tables=sum(each.kind in _LOGICAL for each in every),
        srams=sum(_blocks(each, "column") for each in others),
        tcams=sum(_blocks(each, "column") for each in matching),
        map_rams=sum(_blocks(each, "maprams") for each in others),
        stateful_alus=sum(each.kind == "stateful" for each in every),
        hash_units=len({unit for each in every for unit in _hash_units(each)}),
    )


def _blocks(table: _Table, key: str) -> int:
    """Return the number of memory blocks that a table lists.

    The forms are ``key: 7``, ``key: [ 0, 1 ]``, and a list of these below the key.
    """
    count, below = 0, False
    for line in table.body:
        if found := re.match(rf"    {key}:(.*)", line):
            count += len(re.findall(r"\d+", found[1]))
            below = not found[1].strip()
        elif below and line.startswith("    - "):
            count += len(re.findall(r"\d+", line))
        else:
            below = False
    return count


def _hash_units(table: _Table) -> Iterator[str]:
    body = "\n".join(table.body)
    for block in re.findall(r"^    hash_dist:\n((?:      \d+: .*\n)+)", body, re.MULTILINE):
        yield from re.findall(r"^      (\d+):", block, re.MULTILINE)


def _containers(assembly: str, available: Mapping[str, int]) -> list[Containers]:
    section = re.findall(r"^phv \w+:\n((?: .*\n)+)", assembly, re.MULTILINE)
    used = {name for text in section for name in re.findall(r"\b[TMD]?[WHB]\d+\b", text)}
    return [
        Containers(
            _KINDS[kind[:-1]],
            _BITS[kind[-1]],
            sum(name.rstrip("0123456789") == kind for name in used),
            number,
        )
        for kind, number in available.items()
    ]


# -- dependencies --------------------------------------------------------------------------------

_FIELD = re.compile(r"(?<![\w$])(?:hdr|meta|ig_intr_md\w*)\.[\w$.-]*\w")
"""A name of the program's in the assembly. Slices of a field have their own names."""

_CONTAINER = re.compile(r"\b([TMD]?[WHB]\d+)(?:\((\d+)(?:\.\.(\d+))?\))?")
"""A container, or some of its bits."""


@dataclass(frozen=True)
class _FieldLocation:
    """The location of a field in some stages: bits of a container."""

    name: str
    stages: range
    container: str
    bits: range


def _chain(assembly: str) -> list[str]:
    """Return the longest chain of ingress tables in which each reads what the previous one writes."""
    locations = list(_locations(assembly))
    chains: list[
        tuple[int, set[str], list[str]]
    ] = []  # its last stage, the fields written there, the chain
    for stage, name, body in _matching(assembly):
        reads, writes = _fields(stage, body, locations)
        before = [chain for last, written, chain in chains if last < stage and written & reads]
        chains.append((stage, writes, [*max(before, key=len, default=[]), name]))
    return max((chain for *_, chain in chains), key=len, default=[])


def _matching(assembly: str) -> Iterator[tuple[int, str, list[str]]]:
    """Yield the ingress tables that match, each with the lines of the memories named after it."""
    bodies: dict[tuple[int, str], list[str]] = defaultdict(list)
    for table in _tables(assembly):
        if table.gress == "ingress":
            bodies[table.stage, table.name.partition("$")[0]] += table.body
    for (stage, name), body in bodies.items():
        yield stage, name, body


def _locations(assembly: str) -> Iterator[_FieldLocation]:
    text = re.search(r"^phv ingress:\n((?: .*\n)+)", assembly, re.MULTILINE)
    for name, where in re.findall(r"^  (\S+): (.*)$", text[1] if text else "", re.MULTILINE):
        for stages, container, low, high in re.findall(
            r"(?:stage ([\d.]+): )?\b([TMD]?[WHB]\d+)(?:\((\d+)(?:\.\.(\d+))?\))?", where
        ):
            first, _, last = stages.partition("..") if stages else ("0", "", "99")
            yield _FieldLocation(
                name,
                range(int(first), int(last or first) + 1),
                container,
                _bits(low, high),
            )


def _bits(low: str, high: str) -> range:
    return range(int(low), int(high or low) + 1) if low else range(32)


def _fields(
    stage: int, body: Iterable[str], locations: list[_FieldLocation]
) -> tuple[set[str], set[str]]:
    """Return the fields that a table reads, and those that it writes."""
    reads, writes = set(), set()
    for line in body:
        if instruction := re.match(r"      - ([\w-]+) ([^,]*),(.*)", line):
            writes.update(_FIELD.findall(instruction[2]))
            if container := _CONTAINER.match(instruction[2]):
                bits = _bits(container[2] or "", container[3] or "")
                writes.update(_in(locations, stage + 1, container[1], bits))
            reads.update(_FIELD.findall(instruction[3]))
        elif re.match(r" +(exact|ternary|byte) group|      match:", line):
            reads.update(_FIELD.findall(line))
    return reads, writes


def _in(
    locations: Iterable[_FieldLocation], stage: int, container: str, bits: range
) -> Iterator[str]:
    """Yield the fields that are in these bits of a container at the beginning of a stage."""
    for location in locations:
        overlap = location.bits.start < bits.stop and bits.start < location.bits.stop
        if location.container == container and stage in location.stages and overlap:
            yield location.name
