"""Random table entries and packets for any program, made from its compiler's output.

Entries come from the P4Info and packets from the parser. They take their values from one small
pool, so that many packets match an entry. The result depends only on the program and the seed.
"""

import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from p4.v1 import p4runtime_pb2 as p4rt
from p4runtime_client import encode, group
from tiny_programs import Program

PORTS = (1, 2, 3, 4)
DROP_PORT = 511
GROUPS = SESSIONS = MEMBERS = (1, 2, 3)

_PORT_BITS = 9
_MOST_ENTRIES = 10
_MOST_STATES = 24
_LONGEST_REST = 60

Update = p4rt.Update
Json = dict[str, Any]


@dataclass
class Scenario:
    """A scenario for a switch: first the updates, one by one, then the packets, one by one."""

    updates: list[p4rt.Update] = field(default_factory=list)
    packets: list[tuple[int, bytes]] = field(default_factory=list)


def scenario(program: Program, seed: int, packets: int, *, whole: bool = False) -> Scenario:
    """Return random entries and packets of at least one byte. With `whole`, no packet is damaged."""
    chance = random.Random(seed)
    document = json.loads(program.json)
    values = Values(chance, set(_constants(document)))
    made = Scenario(list(_Entries(chance, values, program).updates()))
    aims = [*_constant_aims(document), *_aims(made.updates, program.p4info, document)]
    frames = Frames(chance, values, document, aims, whole=whole)
    made.packets = [(chance.choice(PORTS), frames.frame()) for _ in range(packets)]
    return made


class Values:
    """Numbers of any width: a few of each width, and those that the program itself mentions."""

    def __init__(self, chance: random.Random, constants: set[int]) -> None:
        self._chance = chance
        self._constants = sorted(constants)
        self._hot: dict[int, list[int]] = {}

    def draw(self, bits: int) -> int:
        """Return a number of this width, usually one of those that are drawn repeatedly."""
        if self._chance.random() < 0.1:
            return self._chance.getrandbits(bits)
        return self._chance.choice(self.hot(bits))

    def hot(self, bits: int) -> list[int]:
        """Return the numbers of this width that are drawn repeatedly."""
        if bits not in self._hot:
            self._hot[bits] = self._choose(bits)
        return self._hot[bits]

    def _choose(self, bits: int) -> list[int]:
        full, top = (1 << bits) - 1, 1 << bits - 1
        if bits == _PORT_BITS:
            return [*PORTS, *PORTS, DROP_PORT]
        edges = [0, 1, 2, 3, full, full - 1, top, top - 1]
        mentioned = [each for each in self._constants if bits // 2 < each.bit_length() <= bits]
        chosen = self._chance.sample(edges, 2)
        chosen += self._chance.sample(mentioned, min(3, len(mentioned)))
        chosen.append(self._chance.getrandbits(bits))
        return sorted({each & full for each in chosen})


def _constants(node: Any) -> Iterator[int]:
    """Yield all numbers that a compiled program mentions."""
    if isinstance(node, dict):
        if node.get("type") == "hexstr":
            yield abs(int(node["value"], 16))
        if isinstance(node.get("key"), str) and "match_type" in node:
            yield int(node["key"], 16)
        node = list(node.values())
    if isinstance(node, list):
        for each in node:
            yield from _constants(each)


# -- what packets should match -------------------------------------------------------------------

Aim = dict[tuple[str, str], tuple[int, int]]
"""Values and masks of header fields that an entry matches."""


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


# -- packets -------------------------------------------------------------------------------------


class _Bits:
    """A frame that is being built: a number, and the places of each header's fields in it."""

    def __init__(self) -> None:
        self.value = self.length = 0
        self.places: dict[tuple[str, str], tuple[int, int]] = {}
        self.forced: list[tuple[int, int, int, int]] = []

    def append(self, value: int, bits: int) -> None:
        self.value = self.value << bits | value
        self.length += bits

    def write(self, at: int, bits: int, value: int, mask: int) -> None:
        """Set the bits of a field that `mask` selects."""
        shift = self.length - at - bits
        if shift >= 0:
            self.value = self.value & ~(mask << shift) | (value & mask) << shift

    def read(self, at: int, bits: int) -> int:
        return self.value >> self.length - at - bits & (1 << bits) - 1


class Frames:
    """Frames that take a path through a program's parser, and frames that almost do."""

    def __init__(
        self,
        chance: random.Random,
        values: Values,
        document: Json,
        aims: list[Aim],
        *,
        whole: bool,
    ) -> None:
        self._chance, self._values, self._aims = chance, values, aims
        types = {each["name"]: each["fields"] for each in document["header_types"]}
        self._fields = {each["name"]: types[each["header_type"]] for each in document["headers"]}
        for each in document.get("header_stacks", []):
            self._fields[each["name"]] = types[each["header_type"]]
        unions = {each["name"]: each["headers"] for each in document.get("header_union_types", [])}
        for each in document.get("header_union_stacks", []):
            for member, kind in unions[each["union_type"]]:
                self._fields[f"{each['name']}.{member}"] = types[kind]
        parser = document["parsers"][0]
        self._start = parser["init_state"]
        self._states = {each["name"]: each for each in parser["parse_states"]}
        self._sums = [*_sums(document)]
        # If a program never checks which headers were parsed, BMv2 reads the missing ones from an
        # earlier packet.
        used = json.dumps([document["pipelines"], document["actions"]])
        self._whole = whole or not ('"parser_error"' in used or '"$valid$"' in used)

    def frame(self) -> bytes:
        """Return one frame. Most are good, and some are cut short, changed or random."""
        kind = 1.0 if self._whole else self._chance.random()
        if kind < 0.06:
            return self._chance.randbytes(self._chance.randint(1, 120))
        frame = bytearray(self._good())
        if kind < 0.18:
            del frame[self._chance.randint(1, len(frame)) :]
        elif kind < 0.3:
            for _ in range(self._chance.randint(1, 4)):
                at = self._chance.randrange(len(frame))
                frame[at] = self._chance.choice(
                    (0, 0xFF, frame[at] ^ 1, self._chance.getrandbits(8))
                )
        return bytes(frame)

    def _good(self) -> bytes:
        bits = _Bits()
        name = self._start
        for _ in range(_MOST_STATES):
            if name is None:
                break
            state = self._states[name]
            for operation in state["parser_ops"]:
                self._extract(bits, operation)
            name = self._follow(bits, state)
        self._finish(bits)
        rest = self._chance.randint(1, _LONGEST_REST) if self._chance.random() < 0.7 else 0
        return (
            bits.value.to_bytes(bits.length // 8, "big") + self._chance.randbytes(rest)
        ) or b"\0"

    def _extract(self, bits: _Bits, operation: Json) -> None:
        if operation["op"] == "advance":
            bits.append(0, 8 * self._chance.randint(0, 4))
        if not operation["op"].startswith("extract"):
            return
        target = operation["parameters"][0]["value"]
        header = ".".join(target) if isinstance(target, list) else target
        for name, width, *_ in self._fields.get(header, []):
            if width == "*":
                width = 32 * self._chance.randint(0, 4)  # noqa: PLW2901
            bits.places[header, name] = bits.length, width
            bits.append(self._values.draw(width) if width else 0, width)

    def _follow(self, bits: _Bits, state: Json) -> str | None:
        """Choose the next state, and set the keys accordingly."""
        ways = state["transitions"]
        chosen: Json = self._chance.choice(ways[:-1] * 3 + ways)
        if chosen["type"] == "hexstr":
            keys = state["transition_key"]
            sizes = [self._key_bits(key) for key in keys]
            shift = sum(-(-size // 8) * 8 for size in sizes)
            whole = (1 << shift) - 1
            value = int(chosen["value"], 16)
            mask = int(chosen["mask"], 16) if chosen["mask"] else whole
            for key, size in zip(keys, sizes, strict=True):
                shift -= -(-size // 8) * 8
                full = (1 << size) - 1
                wanted = size, value >> shift & full, mask >> shift & full
                if key["type"] == "lookahead":
                    bits.forced.append((bits.length + key["value"][0], *wanted))
                elif (place := bits.places.get(tuple(key["value"]))) and place[1] == size:
                    bits.write(place[0], *wanted)
        return chosen["next_state"]

    def _key_bits(self, key: Json) -> int:
        if key["type"] == "lookahead":
            return int(key["value"][1])
        header, name = key["value"]
        return next((width for each, width, *_ in self._fields.get(header, []) if each == name), 8)

    def _finish(self, bits: _Bits) -> None:
        end = max([bits.length, *(at + size for at, size, *_ in bits.forced)])
        end = -(-end // 8) * 8
        bits.append(0, end - bits.length)
        for aim in self._chance.sample(
            self._aims, min(len(self._aims), self._chance.randint(0, 3))
        ):
            for target, (value, mask) in aim.items():
                if target in bits.places:
                    at, size = bits.places[target]
                    full = (1 << size) - 1
                    bits.write(at, size, value & full, mask & full)
        for at, size, value, mask in bits.forced:
            bits.write(at, size, value, mask)
        for target, inputs in self._sums:
            if self._chance.random() < 0.85:
                _sum_up(bits, target, inputs)


def _sums(document: Json) -> Iterator[tuple[tuple[str, str], list[tuple[str, str]]]]:
    """Yield each verified checksum: its field, and the fields that it covers."""
    calculations = {each["name"]: each for each in document.get("calculations", [])}
    for each in document.get("checksums", []):
        calculation = calculations[each["calculation"]]
        if each.get("verify", True) and calculation["algo"] == "csum16":
            inputs = calculation["input"]
            if all(part["type"] == "field" for part in inputs):
                yield tuple(each["target"]), [tuple(part["value"]) for part in inputs]


def _sum_up(bits: _Bits, target: tuple[str, str], inputs: list[tuple[str, str]]) -> None:
    if target not in bits.places or any(each not in bits.places for each in inputs):
        return
    total = length = 0
    for at, size in (bits.places[each] for each in inputs):
        total, length = total << size | bits.read(at, size), length + size
    total <<= -length % 16
    whole = 0
    while total:
        whole, total = whole + (total & 0xFFFF), total >> 16
    while whole >> 16:
        whole = (whole & 0xFFFF) + (whole >> 16)
    bits.write(*bits.places[target], ~whole & 0xFFFF, 0xFFFF)
