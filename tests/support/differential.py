"""The same program, entries and packets through BMv2 and through the embedded switch.

``python tests/support/differential.py record [PROGRAM...]`` records what BMv2 does in ``vectors/``, from
which :func:`replay` can compare the embedded switch to it where there is no BMv2.
``python tests/support/differential.py compare PROGRAM SEED...`` shows where the two differ.
"""

import hashlib
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from compared_switches import Output, Target, bmv2, embedded
from contributions import quorum_scenario, rack_scenario, tree_scenario
from google.protobuf import text_format
from scenarios import Scenario, scenario
from tiny_programs import FOLDER, Program, program

from innet.p4.artifacts import SLOTS, artifact
from innet.p4runtime import p4info_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt

VECTORS = Path(__file__).parent / "vectors"
RECORDED_SCENARIOS, RECORDED_PACKETS = 3, 40

NOT_COMPARABLE = {
    "extern_assertions": "BMv2 ends when an assertion fails",
    "extern_hash_random": "random numbers differ",
    "extern_random": "random numbers differ",
    "parse_endless": "BMv2 is never done with a packet that is parsed for ever",
    "parse_index": "an index outside of a header stack ends BMv2",
    "parse_union_element": "asking whether a union of a stack is valid ends BMv2",
    "path_forever": "BMv2 is never done with a packet that is recirculated for ever",
    "path_time": "time differs",
}
"""Programs whose packets the two switches need not treat alike, and why."""

NOT_RECORDED = {"innet-256", "innet-1024"}
"""Programs that are only compared live: their vectors would be long, and they equal innet-64."""

WHOLE = frozenset({"parse_stack"})
"""Programs that read headers which damaged packets lack. BMv2 then reads those of an earlier packet."""

_AGGREGATION = {f"innet-{lanes}": lanes for lanes in SLOTS}
_TREES = {"tree-64": tree_scenario, "quorum-64": quorum_scenario}
"""The program of innet-64 with a parent: all contributions are in every result, or only a quorum's."""


@dataclass(frozen=True)
class Outcome:
    """A switch's results: the accepted updates, the output for each packet, and the counters."""

    accepted: list[bool]
    outputs: list[list[Output]]
    counters: list[str]


def names() -> list[str]:
    """Return the programs that both switches should run alike, and that have vectors."""
    small = sorted(path.name.split(".")[0] for path in FOLDER.glob("*.p4info.txtpb"))
    names = [*_AGGREGATION, *_TREES, *small]
    return [name for name in names if name not in {*NOT_COMPARABLE, *NOT_RECORDED}]


def load(name: str) -> Program:
    """Return a compiled program by name."""
    if name in _AGGREGATION or name in _TREES:
        made = artifact(_AGGREGATION.get(name, 64))
        return Program(made.json, made.p4info)
    return program(name)


def draw(name: str, seed: int, packets: int) -> Scenario:
    """Return a random scenario of a program."""
    if name in _AGGREGATION:  # hardly any random packet is a worker's
        return rack_scenario(seed, packets, _AGGREGATION[name])
    if name in _TREES:
        return _TREES[name](seed, packets)
    return scenario(load(name), seed, packets, whole=name in WHOLE)


def carry_out(target: Target, given: Scenario, info: p4info_pb2.P4Info) -> Outcome:
    """Carry out a scenario."""
    accepted = [target.write(update) for update in given.updates]
    outputs = [target.send(port, frame) for port, frame in given.packets]
    return Outcome(accepted, outputs, counters(target, info))


def counters(target: Target, info: p4info_pb2.P4Info) -> list[str]:
    """Return all cells of all counters that have counted something, as text."""
    wanted = []
    for each in info.counters:
        wanted.append(p4rt.Entity())
        wanted[-1].counter_entry.counter_id = each.preamble.id
    for each in info.direct_counters:
        wanted.append(p4rt.Entity())
        wanted[-1].direct_counter_entry.table_entry.table_id = each.direct_table_id
    tables = {each.preamble.id: each for each in info.tables}
    cells = [cell for entity in wanted for cell in target.read(entity)]
    for cell in cells:
        if cell.HasField("direct_counter_entry"):
            entry = cell.direct_counter_entry.table_entry
            _normalize(entry, tables[entry.table_id])
    return sorted(
        text_format.MessageToString(cell, as_one_line=True)
        for cell in cells
        if cell.counter_entry.data.packet_count or cell.direct_counter_entry.data.packet_count
    )


def _normalize(entry: p4rt.TableEntry, table: Any) -> None:
    """Keep only the fields that identify an entry, in a form that both switches share."""
    entry.ClearField("action")
    if table.has_initial_entries:
        entry.ClearField("priority")  # each switch makes other priorities of P4's
        entry.ClearField("is_const")
    full = {each.id: (1 << each.bitwidth) - 1 for each in table.match_fields}
    kept = [
        match
        for match in entry.match
        if not match.HasField("range")
        or int.from_bytes(match.range.low, "big") > 0
        or int.from_bytes(match.range.high, "big") < full[match.field_id]
    ]
    kept.sort(key=lambda match: match.field_id)
    entry.ClearField("match")
    entry.match.extend(kept)


def differences(given: Scenario, wanted: Outcome, got: Outcome) -> list[str]:
    """Return the differences of two outcomes, in words."""
    found = []
    for update, left, right in zip(given.updates, wanted.accepted, got.accepted, strict=True):
        if left != right:
            text = text_format.MessageToString(update, as_one_line=True)
            found.append(f"BMv2 {_did(left)}, innet-switch {_did(right)} the update: {text}")
    for number, (packet, left, right) in enumerate(
        zip(given.packets, wanted.outputs, got.outputs, strict=True)
    ):
        if left != right:
            port, frame = packet
            found.append(
                f"packet {number}, to port {port}: {frame.hex()}\n"
                f"    BMv2:         {_show(left)}\n    innet-switch: {_show(right)}"
            )
    found += [f"only BMv2 has: {cell}" for cell in wanted.counters if cell not in got.counters]
    found += [
        f"only innet-switch has: {cell}" for cell in got.counters if cell not in wanted.counters
    ]
    return found


def _did(accepted: bool) -> str:
    return "takes" if accepted else "refuses"


def _show(outputs: list[Output]) -> str:
    return ", ".join(f"{port}: {frame.hex()}" for port, frame in outputs) or "nothing"


def compare(name: str, seed: int, packets: int) -> list[str]:
    """Put one random scenario through both switches. Returns their differences, in words."""
    running = load(name)
    given = draw(name, seed, packets)
    with bmv2(running) as left, embedded(running) as right:
        wanted = carry_out(left, given, running.p4info)
        return differences(given, wanted, carry_out(right, given, running.p4info))


# -- recorded vectors ----------------------------------------------------------------------------

_FORMAT = (
    "of each scenario: updates, with whether BMv2 takes them; packets as [port, frame, outputs], an "
    "output as [port, new bytes, how many bytes of the frame's end follow them]; counters"
)


def record(name: str) -> None:
    """Record BMv2's behaviour in some random scenarios."""
    running = load(name)
    texts = []
    for given in telling_scenarios(name):
        with bmv2(running) as target:
            outcome = carry_out(target, given, running.p4info)
        lines = (json.dumps(line, separators=(",", ":")) for line in _lines(given, outcome))
        texts.append("[" + ",\n".join(lines) + "]")
    head = {"program": hashlib.sha256(running.json).hexdigest(), "format": _FORMAT}
    VECTORS.mkdir(exist_ok=True)
    body = ",\n".join([json.dumps(head), *texts])
    (VECTORS / f"{name}.json").write_text(f"[{body}]\n")


def telling_scenarios(name: str) -> list[Scenario]:
    """Return the few scenarios with the most answers, because in others hardly a packet survives."""
    running = load(name)
    answers = []
    for seed in range(1, 13):
        given = draw(name, seed, RECORDED_PACKETS)
        with embedded(running) as target:
            outcome = carry_out(target, given, running.p4info)
        answers.append((len({tuple(outputs) for outputs in outcome.outputs}), -seed, given))
    return [given for *_, given in sorted(answers, reverse=True)[:RECORDED_SCENARIOS]]


def _lines(given: Scenario, outcome: Outcome) -> Iterator[Any]:
    for update, accepted in zip(given.updates, outcome.accepted, strict=True):
        yield [text_format.MessageToString(update, as_one_line=True), accepted]
    for (port, frame), outputs in zip(given.packets, outcome.outputs, strict=True):
        yield [port, frame.hex(), [_pack(frame, *output) for output in outputs]]
    yield from outcome.counters


def recorded(name: str) -> tuple[str, list[tuple[Scenario, Outcome]]]:
    """Return a recorded vector: the digest of the program's JSON, and each scenario with its outcome."""
    head, *scenarios = json.loads((VECTORS / f"{name}.json").read_text())
    return head["program"], [_parse(lines) for lines in scenarios]


def _parse(lines: list[Any]) -> tuple[Scenario, Outcome]:
    given, outcome = Scenario(), Outcome([], [], [])
    for line in lines:
        match line:
            case str():
                outcome.counters.append(line)
            case [str(text), accepted]:
                given.updates.append(text_format.Parse(text, p4rt.Update()))
                outcome.accepted.append(accepted)
            case [port, text, outputs]:
                frame = bytes.fromhex(text)
                given.packets.append((port, frame))
                outcome.outputs.append([_unpack(frame, *output) for output in outputs])
    return given, outcome


def replay(name: str, cores: int = 1, most: int | None = None) -> list[str]:
    """Repeat the scenarios of a recorded vector. Returns the differences, in words.

    With `most`, it repeats only so many of them.
    """
    running = load(name)
    digest, scenarios = recorded(name)
    if digest != hashlib.sha256(running.json).hexdigest():
        return [f"{name} was compiled anew: python tests/support/differential.py record {name}"]
    found = []
    for given, wanted in list(scenarios)[:most]:
        with embedded(running, cores) as target:
            found += differences(given, wanted, carry_out(target, given, running.p4info))
    return found


def _pack(frame: bytes, port: int, output: bytes) -> list[Any]:
    same = 0
    while same < min(len(frame), len(output)) and frame[-same - 1] == output[-same - 1]:
        same += 1
    return [port, output[: len(output) - same].hex(), same]


def _unpack(frame: bytes, port: int, new: str, same: int) -> Output:
    return port, bytes.fromhex(new) + frame[len(frame) - same :]


def _main(command: str, *arguments: str) -> None:
    if command == "record":
        for name in arguments or names():
            record(name)
        return
    name, *seeds = arguments
    for seed in seeds:
        sys.stdout.write("\n".join([f"{name}, seed {seed}:", *compare(name, int(seed), 300), ""]))


if __name__ == "__main__":
    _main(*sys.argv[1:])
