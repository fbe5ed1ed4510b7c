"""Random table entries and packets for any program, made from its compiler's output.

Entries come from the P4Info and packets from the parser. They take their values from one small
pool, so that many packets match an entry. The result depends only on the program and the seed.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from p4runtime_client import encode, group
from random_frames import Aim, Frames
from random_values import PORTS, Json, Values, constants
from tiny_programs import Program

from innet.p4runtime import p4runtime_pb2 as p4rt

GROUPS = SESSIONS = MEMBERS = (1, 2, 3)
_MOST_ENTRIES = 10

Update = p4rt.Update


@dataclass
class Scenario:
    """A scenario for a switch: first the updates, one by one, then the packets, one by one."""

    updates: list[p4rt.Update] = field(default_factory=list)
    packets: list[tuple[int, bytes]] = field(default_factory=list)


def scenario(program: Program, seed: int, packets: int, *, whole: bool = False) -> Scenario:
    """Return random entries and packets of at least one byte. With `whole`, no packet is damaged."""
    chance = random.Random(seed)
    document = json.loads(program.json)
    values = Values(chance, set(constants(document)))
    made = Scenario(list(_Entries(chance, values, program).updates()))
    aims = [*_constant_aims(document), *_aims(made.updates, program.p4info, document)]
    frames = Frames(chance, values, document, aims, whole=whole)
    made.packets = [(chance.choice(PORTS), frames.frame()) for _ in range(packets)]
    return made


# -- what packets should match -------------------------------------------------------------------


def _tables(document: Json) -> dict[str, list[tuple[str, str]]]:
    """Return the key fields of every table."""
    pipelines = document["pipelines"]
    return {
        table["name"]: [tuple(key["target"]) for key in table["key"]]
        for pipeline in pipelines
        for table in pipeline["tables"]
    }


def _aims(updates: list[p4rt.Update], info: Any, document: Json) -> Iterator[Aim]:
    """Yield the matches of the entries that the updates insert."""
    keys = _tables(document)
    tables = {each.preamble.id: each for each in info.tables}
    for update in updates:
        entry = update.entity.table_entry
        if not entry.match:
            continue
        table = tables[entry.table_id]
        targets = zip(table.match_fields, keys[table.preamble.name], strict=True)
        places = {each.id: (target, each.bitwidth) for each, target in targets}
        yield {
            places[match.field_id][0]: _component(match, places[match.field_id][1])
            for match in entry.match
        }


def _component(match: p4rt.FieldMatch, bits: int) -> tuple[int, int]:
    kind = match.WhichOneof("field_match_type")
    component, full = getattr(match, kind), (1 << bits) - 1
    if kind == "range":
        return int.from_bytes(component.low, "big"), full
    value = int.from_bytes(component.value, "big")
    if kind == "ternary":
        return value, int.from_bytes(component.mask, "big")
    return value, full ^ (full >> component.prefix_len) if kind == "lpm" else full


def _constant_aims(document: Json) -> Iterator[Aim]:
    """Yield the matches of the program's own entries."""
    keys = _tables(document)
    for pipeline in document["pipelines"]:
        for table in pipeline["tables"]:
            for entry in table.get("entries", []):
                parts = zip(keys[table["name"]], entry["match_key"], strict=True)
                yield {target: _constant_component(part) for target, part in parts}


def _constant_component(part: Json) -> tuple[int, int]:
    if part["match_type"] == "range":
        return int(part["start"], 16), -1
    if part["match_type"] == "exact":
        return int(part["key"], 16), -1
    # Behind a prefix the bits are zeros, which are as good as others.
    return int(part["key"], 16), int(part.get("mask", "-1"), 16)


# -- entries -------------------------------------------------------------------------------------


class _Entries:
    """The updates that fill a program's tables."""

    def __init__(self, chance: random.Random, values: Values, program: Program) -> None:
        self._chance, self._values, self._info = chance, values, program.p4info
        info = program.p4info
        self._clones = b'"clone' in program.json
        self._actions = {each.preamble.id: each for each in info.actions}
        self._grouped = {
            each.preamble.id: each.with_selector and chance.random() < 0.7
            for each in info.action_profiles
        }

    def updates(self) -> Iterator[p4rt.Update]:
        for number in GROUPS:
            copies = {(self._chance.choice(PORTS), self._chance.choice((0, 1, 5))) for _ in PORTS}
            yield _insert(group(number, *sorted(copies)))
        for number in SESSIONS if self._clones else ():
            entity = p4rt.Entity()
            session = entity.packet_replication_engine_entry.clone_session_entry
            session.session_id = number
            session.replicas.add(egress_port=self._chance.choice(PORTS), instance=1)
            yield _insert(entity)
        for profile in self._info.action_profiles:
            yield from self._members(profile)
        for table in self._info.tables:
            # BMv2 treats all entries of the program as constant, whatever the program says.
            if not table.is_const_table and not table.has_initial_entries:
                yield from self._table(table)

    def _members(self, profile: Any) -> Iterator[p4rt.Update]:
        """Yield members of all the actions of its tables, and groups of members."""
        tables = [each for each in self._info.tables if each.preamble.id in profile.table_ids]
        references = [each for table in tables for each in table.action_refs]
        for number in MEMBERS:
            entity = p4rt.Entity()
            member = entity.action_profile_member
            member.action_profile_id, member.member_id = profile.preamble.id, number
            member.action.CopyFrom(self._call(references))
            yield _insert(entity)
        if not profile.with_selector:
            return
        for number in GROUPS:
            entity = p4rt.Entity()
            those = entity.action_profile_group
            those.action_profile_id, those.group_id = profile.preamble.id, number
            those.max_size = len(MEMBERS)
            for member in self._chance.sample(MEMBERS, number):
                those.members.add(member_id=member, weight=1)
            yield _insert(entity)

    def _table(self, table: Any) -> Iterator[p4rt.Update]:
        if not table.const_default_action_id and not table.implementation_id:
            references = [each for each in table.action_refs if each.scope != each.TABLE_ONLY]
            if references and self._chance.random() < 0.5:
                entity = p4rt.Entity()
                entity.table_entry.table_id = table.preamble.id
                entity.table_entry.is_default_action = True
                entity.table_entry.action.action.CopyFrom(self._call(references))
                yield Update(type=Update.MODIFY, entity=entity)
        references = [each for each in table.action_refs if each.scope != each.DEFAULT_ONLY]
        if not references or not table.match_fields:
            return
        priorities = self._chance.sample(range(1, 1000), _MOST_ENTRIES)
        seen = set()
        for priority in priorities[: self._chance.randint(1, min(_MOST_ENTRIES, table.size))]:
            entity = p4rt.Entity()
            entry = entity.table_entry
            entry.table_id = table.preamble.id
            for each in table.match_fields:
                self._match(entry, each)
            if str(entry.match) in seen:
                continue
            seen.add(str(entry.match))
            if any(each.match_type not in (each.EXACT, each.LPM) for each in table.match_fields):
                entry.priority = priority
            self._act(entry.action, table, references)
            yield _insert(entity)

    def _act(self, action: p4rt.TableAction, table: Any, references: list[Any]) -> None:
        if not table.implementation_id:
            action.action.CopyFrom(self._call(references))
        elif self._grouped[table.implementation_id]:
            action.action_profile_group_id = self._chance.choice(GROUPS)
        else:
            action.action_profile_member_id = self._chance.choice(MEMBERS)

    def _call(self, references: list[Any]) -> p4rt.Action:
        action = self._actions[self._chance.choice(references).id]
        call = p4rt.Action(action_id=action.preamble.id)
        for each in action.params:
            call.params.add(param_id=each.id, value=encode(self._values.draw(each.bitwidth)))
        return call

    def _match(self, entry: p4rt.TableEntry, field: Any) -> None:
        """Add a component to the entry's match, unless it should match anything."""
        bits, kind = field.bitwidth, field.match_type
        value, full = self._values.draw(bits), (1 << bits) - 1
        if kind == field.EXACT:
            entry.match.add(field_id=field.id).exact.value = encode(value)
        elif self._chance.random() < 0.2:
            return
        elif kind == field.OPTIONAL:
            entry.match.add(field_id=field.id).optional.value = encode(value)
        elif kind == field.LPM:
            length = self._chance.choice((bits, self._chance.randint(1, bits)))
            component = entry.match.add(field_id=field.id).lpm
            component.value = encode(value >> bits - length << bits - length)
            component.prefix_len = length
        elif kind == field.TERNARY:
            mask = self._chance.choice(
                (full, self._chance.getrandbits(bits), self._values.draw(bits))
            )
            if mask:
                component = entry.match.add(field_id=field.id).ternary
                component.value, component.mask = encode(value & mask), encode(mask)
        else:
            low, high = sorted((value, self._values.draw(bits)))
            # BMv2 takes a range from 0 to 255 for a match on anything, whatever the field's width.
            if low or set(encode(high)) != {0xFF}:
                component = entry.match.add(field_id=field.id).range
                component.low, component.high = encode(low), encode(high)


def _insert(entity: p4rt.Entity) -> p4rt.Update:
    return Update(type=Update.INSERT, entity=entity)
