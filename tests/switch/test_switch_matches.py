"""All kinds of matches, priorities, the program's own entries, action profiles and selectors."""

import itertools
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from checksums import crc16
from google.rpc import code_pb2
from hypothesis import given
from hypothesis import strategies as st
from one_port import OnePort, action, running
from p4.v1 import p4runtime_pb2 as p4rt
from p4runtime_client import Names, update_errors
from switches import Switch, receive
from tiny_programs import program

RULES = "TestIngress.rules"
FULL = {"port": 0xF, "length": 0xFFF, "kind": 0xFFFF, "address": 0xFFFFFFFF}


def probe(port: int, length: int, kind: int, address: int) -> bytes:
    return struct.pack("!HHIB", port << 12 | length, kind, address, 0)


def ask(switch: Switch, *frames: bytes) -> list[bytes]:
    answers = []
    for frame in frames:
        switch.hosts[0].send(frame)
        answers.append(receive(switch.hosts[0]))
    return answers


def results(switch: Switch, *probes: tuple[int, int, int, int]) -> list[int]:
    return [answer[8] for answer in ask(switch, *(probe(*each) for each in probes))]


# -- ranges ----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rule:
    """An entry of ``match_range`` in the test's terms."""

    low: int
    high: int
    kind: int
    mask: int
    address: int
    prefix: int
    port: int
    priority: int

    def matches(self, port: int, length: int, kind: int, address: int) -> bool:
        return (
            port == self.port
            and self.low <= length <= self.high
            and kind & self.mask == self.kind
            and (address ^ self.address) >> (32 - self.prefix) == 0
        )


def some_rule(chance: random.Random, priority: int) -> Rule:
    mask = chance.choice((0, 0xFFFF, 0xF000, 3, 1))
    prefix = chance.choice((0, 1, 8, 24, 31, 32))
    keep = (1 << 32) - (1 << 32 - prefix)
    low, high = sorted(chance.choice((0, 1, 7, 8, 255, 256, 4094, 4095)) for _ in range(2))
    address = chance.choice(ADDRESSES) & keep
    kind = chance.choice(KINDS) & mask
    return Rule(low, high, kind, mask, address, prefix, chance.randrange(2), priority)


ADDRESSES = (0, 1, 0x0A000001, 0x0A0000FF, 0x80000000, 0xFFFFFFFF)
KINDS = (0, 1, 2, 0x1001, 0xF000, 0xFFFF)
LENGTHS = (0, 1, 2, 6, 7, 8, 9, 254, 255, 256, 257, 4093, 4094, 4095)


@pytest.mark.parametrize("seed", range(4))
def test_the_rule_of_highest_priority_wins_and_of_equal_ones_the_first(seed):
    chance = random.Random(seed)
    with running("match_range") as port:
        # A new entry takes the lowest free place. Some entries are removed in between.
        placed: dict[int, tuple[int, Rule]] = {}
        for number in range(40):
            rule = some_rule(chance, chance.randrange(1, 6))
            prefix = 0xFFFFFFFF ^ (0xFFFFFFFF >> rule.prefix)
            place = port.engine.entries.insert(
                RULES,
                (rule.low, rule.kind, rule.address, rule.port),
                (rule.high, rule.mask, prefix, 0xF),
                rule.priority,
                action(port.engine, "set_result"),
                [number],
            )
            assert place == min(set(range(41)) - {*placed})
            placed[place] = number, rule
            if chance.random() < 0.3:
                gone = chance.choice([*placed])
                port.engine.entries.remove(RULES, gone)
                del placed[gone]
        for _ in range(400):
            packet = (
                chance.randrange(2), chance.choice(LENGTHS), chance.choice(KINDS),
                chance.choice(ADDRESSES),
            )  # fmt: skip
            matching = [
                (-rule.priority, place, number)
                for place, (number, rule) in placed.items()
                if rule.matches(*packet)
            ]
            wanted = min(matching)[2] if matching else 255
            [answer] = port.ask(probe(*packet))
            assert answer[8] == wanted


def test_of_many_entries_too_each_goes_to_the_lowest_place_that_is_free():
    chance = random.Random(5)
    with running("match_range") as port:

        def insert() -> int:
            act = action(port.engine, "set_result")
            values, masks = (0, 0, 0, 0), (0xFFF, 0, 0, 0)
            return port.engine.entries.insert(RULES, values, masks, 1, act, [0])

        assert [insert() for _ in range(5000)] == [*range(5000)]
        gone = chance.sample(range(5000), 300)
        for place in gone:
            port.engine.entries.remove(RULES, place)
        assert [insert() for _ in range(302)] == [*sorted(gone), 5000, 5001]


def test_ranges_are_written_through_p4runtime_with_their_bounds_included(switch, controller):
    controller.configure(program("match_range"))
    names = Names(program("match_range").p4info)
    narrow = names.entry("rules", {"port": 1, "length": (10, 20)}, "set_result", 5, result=1)
    one = names.entry("rules", {"port": 1, "length": (20, 20)}, "set_result", 9, result=2)
    wide = {"port": 1, "address": (0x0A000000, 8), "kind": (1, 1)}
    rest = names.entry("rules", wide, "set_result", 1, result=3)
    controller.insert(narrow, one, rest)
    assert controller.read(names.entry("rules")) == [narrow, one, rest]
    packets = [(1, length, 1, 0x0A000001) for length in (9, 10, 19, 20, 21, 4095)]
    assert results(switch, *packets, (2, 10, 1, 0)) == [3, 1, 1, 2, 3, 3, 255]
    counter = p4rt.Entity()
    counter.direct_counter_entry.table_entry.CopyFrom(rest.table_entry)
    [found] = controller.read(counter)
    assert found.direct_counter_entry.data.packet_count == 3
    controller.delete(one)
    assert results(switch, (1, 20, 1, 0)) == [1]


def test_ranges_that_make_no_sense_are_refused(controller):
    controller.configure(program("match_range"))
    names = Names(program("match_range").p4info)
    for bounds, code in (
        ((20, 10), code_pb2.INVALID_ARGUMENT),
        ((0, 4095), code_pb2.INVALID_ARGUMENT),  # has to be left out
        ((0, 4096), code_pb2.OUT_OF_RANGE),
    ):
        entry = names.entry("rules", {"port": 1, "length": bounds}, "set_result", 5, result=1)
        assert update_errors(controller.insert, entry)[0][0] == code
    unranked = names.entry("rules", {"port": 1, "length": (1, 2)}, "set_result", result=1)
    assert update_errors(controller.insert, unranked)[0][0] == code_pb2.INVALID_ARGUMENT


@pytest.fixture(scope="module")
def boxes() -> Iterator[OnePort]:
    with running("match_two_ranges") as port:
        for number, ((low, high), (first, last)) in enumerate(BOXES):
            port.engine.entries.insert(
                "TestIngress.boxes", (low, first), (high, last), 10 - number,
                action(port.engine, "set_result"), [number],
            )  # fmt: skip
        yield port


BOXES = [
    ((1 << 64, 1 << 64), (0, 15)),
    ((5, (1 << 99) + 3), (3, 4)),
    (((1 << 64) - 1, 1 << 80), (0, 7)),
    ((0, (1 << 100) - 1), (15, 15)),
]
EDGES = [0, 5, (1 << 64) - 1, 1 << 64, 1 << 80, (1 << 99) + 3, (1 << 100) - 1]


@given(
    st.sampled_from(EDGES).flatmap(
        lambda edge: st.integers(max(0, edge - 1), min(edge + 1, (1 << 100) - 1))
    ),
    st.integers(0, 15),
)
def test_ranges_of_any_width_are_compared_as_unsigned_numbers(boxes, wide, narrow):
    inside = (
        number
        for number, ((low, high), (first, last)) in enumerate(BOXES)
        if low <= wide <= high and first <= narrow <= last
    )
    frame = (wide << 12 | narrow << 8).to_bytes(14, "big")
    assert boxes.ask(frame)[0][-1] == next(inside, 0)


# -- optional matches, entries of the program, headers that are not there --------------------------


def test_an_optional_match_is_of_a_value_or_of_everything(switch, controller):
    controller.configure(program("match_optional"))
    names = Names(program("match_optional").p4info)
    for number, (priority, match) in enumerate(
        ((1, {}), (2, {"kind": 7}), (3, {"address": 0}), (4, {"kind": 7, "address": 9})), start=1
    ):
        entry = names.entry("rules", {"port": 1, **match}, "set_result", priority, result=number)
        controller.insert(entry)
    packets = [(1, 0, kind, address) for kind, address in ((1, 1), (7, 1), (7, 0), (7, 9), (1, 9))]
    assert results(switch, *packets, (2, 0, 7, 9)) == [1, 2, 3, 4, 1, 0]


CONST = [
    # Port, length, kind and address; then the number of the first matching entry of match_const.p4.
    ((1, 10, 0, 0), 1), ((1, 20, 0x10, 0x0A000001), 1), ((1, 21, 0x1F, 0x0A000001), 3),
    ((1, 21, 0x20, 0x0A000001), 4), ((1, 21, 0x20, 0), 99), ((1, 15, 0x12, 0), 1),
    ((2, 0, 0x8001, 0), 5), ((2, 4095, 1, 0), 6), ((3, 15, 0x10, 0x0A000001), 99),
]  # fmt: skip


def test_of_constant_entries_the_first_that_matches_wins(switch, controller):
    controller.configure(program("match_const"))
    assert results(switch, *(packet for packet, _ in CONST)) == [wanted for _, wanted in CONST]
    entries = controller.read(Names(program("match_const").p4info).entry("rules"))
    assert len(entries) == 6
    assert all(each.table_entry.is_const for each in entries)
    ranks = [each.table_entry.priority for each in entries]
    assert ranks == sorted(ranks, reverse=True)


def test_initial_entries_have_the_priorities_that_the_program_says(switch, controller):
    controller.configure(program("match_initial"))
    kinds = (0, 1, 2, 3, 4, 5, 6, 7)
    assert results(switch, *((0, 0, kind, 0) for kind in kinds)) == [0, 1, 2, 2, 3, 3, 2, 2]


def test_fields_of_a_header_that_is_not_valid_match_as_zeros():
    with running("match_invalid") as port:
        for number, (value, valid) in enumerate(((0, 0), (0, 1), (5, 0), (5, 1)), start=1):
            port.engine.entries.insert(
                "TestIngress.values", (value, valid), (0xFFFF, 1), 1,
                action(port.engine, "set_result"), [number],
            )  # fmt: skip
        frames = {b"\0\0": 1, b"\1\0\0\5": 4, b"\1\0\0\0": 2, b"\2\0\0\5": 1, b"\0\0\0\5": 1}
        assert [answer[1] for answer in port.ask(*frames)] == [*frames.values()]


# -- action profiles -------------------------------------------------------------------------------


class Profile:
    """The entities of a program with one action profile, and its tables."""

    def __init__(self, name: str) -> None:
        self.program = program(name)
        self.names = Names(self.program.p4info)
        self.id = self.program.p4info.action_profiles[0].preamble.id

    def call(self, name: str, **params: int) -> p4rt.Action:
        table = self.program.p4info.tables[0].preamble.alias
        keys = {"key": 0}
        return self.names.entry(table, keys, name, **params).table_entry.action.action

    def member(self, number: int, name: str = "", /, **params: int) -> p4rt.Entity:
        entity = p4rt.Entity()
        member = entity.action_profile_member
        member.action_profile_id, member.member_id = self.id, number
        if name:
            member.action.CopyFrom(self.call(name, **params))
        return entity

    def group(self, number: int, *members: tuple[int, int], max_size: int = 0) -> p4rt.Entity:
        entity = p4rt.Entity()
        group = entity.action_profile_group
        group.action_profile_id, group.group_id, group.max_size = self.id, number, max_size
        for member, weight in members:
            group.members.add(member_id=member, weight=weight)
        return entity

    def entry(self, table: str, match: dict, priority: int = 0, **refers: int) -> p4rt.Entity:
        entity = self.names.entry(table, match, priority=priority)
        for name, number in refers.items():
            setattr(entity.table_entry.action, f"action_profile_{name}_id", number)
        return entity

    def shot(self, key: int, *ways: tuple[int, int]) -> p4rt.Entity:
        entity = self.names.entry("routes", {"key": key})
        for way, weight in ways:
            actions = entity.table_entry.action.action_profile_action_set.action_profile_actions
            actions.add(action=self.call("send", way=way), weight=weight)
        return entity


SHARED, WAYS = Profile("match_profile"), Profile("match_selector")
PICK = struct.Struct("!BIBBB")


def picked(switch: Switch, *packets: tuple[int, int, int, int]) -> list[tuple[int, int, int]]:
    """Return first, second and hit of the answers to packets of key, flow, first and second."""
    answers = ask(switch, *(PICK.pack(*packet, 0) for packet in packets))
    return [PICK.unpack(answer)[2:] for answer in answers]


def test_tables_share_the_members_of_a_profile(switch, controller):
    controller.configure(SHARED.program)
    add, double = SHARED.member(1, "add", number=5), SHARED.member(2, "double")
    controller.insert(add, double)
    assert controller.read(SHARED.member(0)) == [add, double]
    controller.insert(
        SHARED.entry("one", {"key": 1}, member=1),
        SHARED.entry("one", {"key": 2}, member=2),
        SHARED.entry("other", {"first": (1, 1)}, 1, member=2),
    )
    packets = [(1, 0, 1, 3), (1, 0, 2, 3), (2, 0, 1, 3), (3, 0, 2, 3)]
    assert picked(switch, *packets) == [(1, 16, 1), (2, 8, 1), (1, 12, 1), (2, 3, 0)]
    controller.modify(SHARED.member(2, "add", number=100))
    assert picked(switch, *packets) == [(1, 108, 1), (2, 8, 1), (1, 203, 1), (2, 3, 0)]
    controller.modify(SHARED.entry("one", {"key": 1}, member=2))
    assert picked(switch, packets[1]) == [(2, 103, 1)]
    [entry] = controller.read(SHARED.entry("one", {"key": 1}))
    assert entry.table_entry.action.action_profile_member_id == 2


def test_a_default_entry_can_refer_to_a_member_and_be_taken_back(switch, controller):
    controller.configure(SHARED.program)
    controller.insert(SHARED.member(1, "add", number=5))
    default = SHARED.names.default("one")
    default.table_entry.action.action_profile_member_id = 1
    controller.modify(default)
    assert picked(switch, (9, 0, 0, 3)) == [(0, 8, 0)]
    assert update_errors(controller.delete, SHARED.member(1))[0][0] == code_pb2.FAILED_PRECONDITION
    controller.modify(SHARED.names.default("one"))
    assert picked(switch, (9, 0, 0, 3)) == [(0, 3, 0)]
    controller.delete(SHARED.member(1))


def test_members_are_not_taken_away_from_those_that_use_them(controller):
    controller.configure(WAYS.program)
    controller.insert(WAYS.member(1, "send", way=1), WAYS.member(2, "send", way=2))
    controller.insert(WAYS.group(1, (1, 1)), WAYS.entry("routes", {"key": 1}, member=2))
    controller.insert(WAYS.entry("routes", {"key": 2}, group=1))
    for used in (WAYS.member(1), WAYS.member(2), WAYS.group(1)):
        assert update_errors(controller.delete, used)[0][0] == code_pb2.FAILED_PRECONDITION
    controller.delete(WAYS.entry("routes", {"key": 1}), WAYS.entry("routes", {"key": 2}))
    controller.delete(WAYS.group(1), WAYS.member(1), WAYS.member(2))
    assert controller.read(WAYS.member(0), WAYS.group(0)) == []


def test_members_groups_and_references_that_make_no_sense_are_refused(controller):
    controller.configure(WAYS.program)
    controller.insert(WAYS.member(1, "send", way=1), WAYS.group(1, (1, 2), max_size=5))
    watched = WAYS.group(2, (1, 1))
    watched.action_profile_group.members[0].watch_port = b"\1"
    direct = WAYS.names.entry("routes", {"key": 1}, "send", way=1)
    for call, entity, code in (
        (controller.insert, WAYS.member(1, "drop"), code_pb2.ALREADY_EXISTS),
        (controller.insert, WAYS.member(0, "drop"), code_pb2.INVALID_ARGUMENT),
        (controller.insert, WAYS.member(2), code_pb2.INVALID_ARGUMENT),
        (controller.modify, WAYS.member(2, "drop"), code_pb2.NOT_FOUND),
        (controller.delete, WAYS.member(2), code_pb2.NOT_FOUND),
        (controller.insert, WAYS.group(1), code_pb2.ALREADY_EXISTS),
        (controller.insert, WAYS.group(0), code_pb2.INVALID_ARGUMENT),
        (controller.insert, WAYS.group(2, (2, 1)), code_pb2.NOT_FOUND),
        (controller.insert, WAYS.group(2, (1, 0)), code_pb2.INVALID_ARGUMENT),
        (controller.insert, WAYS.group(2, (1, 1), (1, 1)), code_pb2.INVALID_ARGUMENT),
        (controller.insert, WAYS.group(2, (1, 3), max_size=2), code_pb2.RESOURCE_EXHAUSTED),
        (controller.insert, watched, code_pb2.UNIMPLEMENTED),
        (controller.modify, WAYS.group(1, max_size=4), code_pb2.INVALID_ARGUMENT),
        (controller.modify, WAYS.group(2), code_pb2.NOT_FOUND),
        (controller.delete, WAYS.group(2), code_pb2.NOT_FOUND),
        (controller.insert, direct, code_pb2.INVALID_ARGUMENT),
        (controller.insert, WAYS.entry("routes", {"key": 1}, member=3), code_pb2.NOT_FOUND),
        (controller.insert, WAYS.entry("routes", {"key": 1}, group=3), code_pb2.NOT_FOUND),
        (controller.insert, WAYS.shot(1, (1, 1)), code_pb2.INVALID_ARGUMENT),  # not mixed
    ):
        assert update_errors(call, entity)[0][0] == code, entity
    assert controller.read(WAYS.group(0)) == [WAYS.group(1, (1, 2), max_size=5)]
    controller.configure(SHARED.program)
    assert update_errors(controller.insert, SHARED.group(1))[0][0] == code_pb2.INVALID_ARGUMENT


# -- selectors -------------------------------------------------------------------------------------

FLOWS = range(0, 4000, 37)


def chosen(flow: int, ways: list[int]) -> int:
    """Return BMv2's choice: by the selector's CRC-16 over the flow, modulo the number of actions."""
    return ways[crc16(struct.pack("!I", flow)) % len(ways)]


def ways_of(switch: Switch, key: int) -> list[int]:
    return [first for first, _, _ in picked(switch, *((key, flow, 0, 0) for flow in FLOWS))]


def test_a_flows_hash_chooses_among_the_members_of_a_group(switch, controller):
    controller.configure(WAYS.program)
    controller.insert(*(WAYS.member(number, "send", way=number) for number in (3, 1, 2)))
    controller.insert(WAYS.group(1, (1, 1), (2, 1), (3, 1)))
    controller.insert(WAYS.entry("routes", {"key": 1}, group=1))
    controller.insert(WAYS.entry("routes", {"key": 2}, member=2))
    # The members stand in the order in which they were inserted.
    assert ways_of(switch, 1) == [chosen(flow, [3, 1, 2]) for flow in FLOWS]
    assert ways_of(switch, 2) == [2] * len(FLOWS)
    controller.modify(WAYS.group(1, (1, 2), (3, 1)))
    # The second copy of member 1 has its own handle, behind those of 3, 1 and 2.
    assert ways_of(switch, 1) == [chosen(flow, [3, 1, 1]) for flow in FLOWS]
    controller.modify(WAYS.member(1, "send", way=9))
    assert ways_of(switch, 1) == [chosen(flow, [3, 9, 9]) for flow in FLOWS]


def test_the_copies_of_a_weighty_member_take_the_places_that_are_free(switch, controller):
    controller.configure(WAYS.program)
    controller.insert(*(WAYS.member(number, "send", way=number) for number in (1, 2, 3)))
    controller.delete(WAYS.member(1))
    controller.insert(WAYS.group(1, (2, 1), (3, 2)))
    controller.insert(WAYS.entry("routes", {"key": 1}, group=1))
    assert ways_of(switch, 1) == [chosen(flow, [3, 2, 3]) for flow in FLOWS]
    controller.modify(WAYS.group(1, (2, 1), (3, 1)))
    controller.insert(WAYS.member(4, "send", way=4))
    controller.modify(WAYS.group(1, (2, 1), (3, 1), (4, 1)))
    assert ways_of(switch, 1) == [chosen(flow, [4, 2, 3]) for flow in FLOWS]


def test_an_empty_group_does_nothing_and_is_a_hit(switch, controller):
    controller.configure(WAYS.program)
    controller.insert(WAYS.group(1), WAYS.entry("routes", {"key": 1}, group=1))
    assert picked(switch, (1, 5, 7, 7), (2, 5, 7, 7)) == [(7, 7, 1), (7, 7, 2)]


def test_a_set_of_actions_is_given_in_one_shot(switch, controller):
    controller.configure(WAYS.program)
    shot = WAYS.shot(1, (5, 1), (6, 2))
    controller.insert(shot)
    assert controller.read(WAYS.names.entry("routes")) == [shot]
    assert controller.read(WAYS.member(0), WAYS.group(0)) == []
    assert ways_of(switch, 1) == [chosen(flow, [5, 6, 6]) for flow in FLOWS]
    controller.modify(WAYS.shot(1, (7, 1), (8, 1)))
    assert ways_of(switch, 1) == [chosen(flow, [7, 8]) for flow in FLOWS]
    for wrong in (WAYS.shot(2, (1, 0)), WAYS.member(1, "drop"), WAYS.group(1)):
        assert update_errors(controller.insert, wrong)[0][0] == code_pb2.INVALID_ARGUMENT
    controller.delete(shot)
    controller.insert(WAYS.member(1, "drop"))


def test_a_group_changes_while_packets_flow_and_every_packet_meets_one_of_its_states(
    switch, controller
):
    controller.configure(WAYS.program)
    controller.insert(*(WAYS.member(number, "send", way=number) for number in (1, 2, 3, 4)))
    states = [[(1, 1), (2, 1)], [(3, 1), (4, 1)]]
    controller.insert(WAYS.group(1, *states[0]), WAYS.entry("routes", {"key": 1}, group=1))
    for state, flow in zip(itertools.cycle(states), FLOWS, strict=False):
        switch.hosts[0].send(PICK.pack(1, flow, 0, 0, 0))
        controller.modify(WAYS.group(1, *state))
        way = PICK.unpack(receive(switch.hosts[0]))[2]
        assert way in (chosen(flow, [1, 2]), chosen(flow, [3, 4]))
