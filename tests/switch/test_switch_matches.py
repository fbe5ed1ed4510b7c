"""All kinds of matches, priorities, and the program's own entries."""

import dataclasses
import json
import random
import struct
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st
from one_port import OnePort, action, running
from p4runtime_client import Names, update_errors
from switches import Switch, ask
from tiny_programs import program

from innet.p4runtime import code_pb2
from innet.p4runtime import p4runtime_pb2 as p4rt

RULES = "TestIngress.rules"


def probe(port: int, length: int, kind: int, address: int) -> bytes:
    return struct.pack("!HHIB", port << 12 | length, kind, address, 0)


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


@pytest.mark.parametrize("seed", range(3))
def test_every_change_of_the_entries_counts_from_the_next_packet_on(seed: int):
    chance = random.Random(seed)
    packets = [(1, 0, kind, address) for kind in (0, 7) for address in (0, 9)]
    with running("match_optional") as port:
        entries, act = port.engine.entries, action(port.engine, "set_result")
        placed: dict[int, tuple[int, int, int | None, int | None]] = {}
        for number in range(1, 40):
            if placed and chance.random() < 0.4:
                gone = chance.choice([*placed])
                entries.remove(RULES, gone)
                del placed[gone]
            else:
                kind, address = chance.choice((None, 0, 7)), chance.choice((None, 0, 9))
                priority = 2 * number if chance.random() < 0.5 else 2 * (50 - number) + 1
                place = entries.insert(
                    RULES, (kind or 0, address or 0, 1),
                    (0 if kind is None else 0xFFFF, 0 if address is None else 0xFFFFFFFF, 0xF),
                    priority, act, [number],
                )  # fmt: skip
                placed[place] = priority, number, kind, address
            wanted = [
                max(
                    (priority, number)
                    for priority, number, kind, address in [(0, 0, None, None), *placed.values()]
                    if kind in (None, packet[2]) and address in (None, packet[3])
                )[1]
                for packet in packets
            ]
            asked = [probe(*each) for each in packets]
            assert [answer[8] for answer in port.ask(*asked)] == wanted
            assert [answer[8] for answer in port.ask(*asked)] == wanted


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


def test_constant_entries_may_have_larger_priorities_than_there_are_entries(switch, controller):
    content = json.loads(program("match_const").json)
    tables = [table for part in content["pipelines"] for table in part["tables"]]
    for entry in next(table["entries"] for table in tables if table.get("entries")):
        entry["priority"] *= 100  # as for an entry with @priority
    changed = dataclasses.replace(program("match_const"), json=json.dumps(content).encode())
    controller.configure(changed)
    assert results(switch, *(packet for packet, _ in CONST)) == [wanted for _, wanted in CONST]
    entries = controller.read(Names(changed.p4info).entry("rules"))
    assert [each.table_entry.priority for each in entries] == [501, 401, 301, 201, 101, 1]


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
